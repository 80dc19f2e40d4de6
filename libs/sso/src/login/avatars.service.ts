import { Injectable } from '@nestjs/common';
import { OutboundError, OutboundHttp } from '@rookery/http';
import { Config, Logger } from '@rookery/platform';

/** A picture that a provider has of somebody. */
export interface Picture {
  readonly bytes: Uint8Array;
  readonly contentType: string;
}

/** Stores a picture. @returns its `mxc:` URI; `undefined` when it is not wanted */
export type PictureStore = (picture: Picture) => Promise<string | undefined>;

const timeoutMs = 10_000;
/** Where the settings name no limit of avatars. */
const usualLimitBytes = 10 * 1_048_576;
const images = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

/** Pictures of new users. Without a store there are none. */
@Injectable()
export class Avatars {
  #store: PictureStore | undefined;

  constructor(
    private readonly http: OutboundHttp,
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  /** Says where pictures are kept. */
  use(store: PictureStore): void {
    this.#store = store;
  }

  /** Whether pictures are taken over at all. */
  get available(): boolean {
    return this.#store !== undefined;
  }

  /** Fetches a picture and stores it. A picture that cannot be had is no reason to keep somebody out. */
  async take(url: string | undefined): Promise<string | undefined> {
    if (url === undefined || !this.#store) return undefined;
    try {
      const picture = await this.#fetch(url);
      return picture && (await this.#store(picture));
    } catch (err) {
      this.logger.info('The picture of a new user cannot be had', { err });
      return undefined;
    }
  }

  async #fetch(url: string): Promise<Picture | undefined> {
    const { status, headers, body } = await this.http.request({
      url,
      timeoutMs,
      maxBytes: this.config.get('max_avatar_size') ?? usualLimitBytes,
      headers: { accept: 'image/*' },
    });
    const contentType = String(headers['content-type'] ?? '')
      .split(';', 1)[0]!
      .trim()
      .toLowerCase();
    if (status !== 200) throw new OutboundError('bad_status', `The picture's address answered with ${status}`, status);
    const allowed = this.config.get('allowed_avatar_mimetypes');
    if (!images.has(contentType) || (allowed !== undefined && !allowed.includes(contentType))) return undefined;
    return { bytes: body, contentType };
  }
}
