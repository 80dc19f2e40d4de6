import { createHash } from 'node:crypto';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { OutboundError, OutboundHttp } from '@rookery/http';
import { Config, Logger } from '@rookery/platform';
import { holdAccount, type Origin, ProfileService, UserHooks } from '@rookery/users';
import { type Picture, SsoPorts } from '../ports.js';
import { findAvatar, forgetAvatar, recordAvatar } from './avatar.query.js';

const timeoutMs = 10_000;
/** Where the settings name no limit of avatars. */
const usualLimitBytes = 10 * 1_048_576;

/** Kinds of pictures by how they begin. */
const images: readonly (readonly [type: string, beginning: RegExp])[] = [
  ['image/png', /^\x89PNG\r\n/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/gif', /^GIF8[79]a/],
  ['image/webp', /^RIFF[^]{4}WEBP/],
];

/** Pictures of people, from the provider into their profile. Without a store there are none. */
@Injectable()
export class Avatars implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly http: OutboundHttp,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly profiles: ProfileService,
    private readonly hooks: UserHooks,
    private readonly ports: SsoPorts,
  ) {}

  onModuleInit(): void {
    this.hooks.deactivated.subscribe({ inTransaction: (tx, { userId }) => forgetAvatar(tx, userId) });
  }

  /** Whether pictures are taken over at all. */
  get available(): boolean {
    return this.ports.pictures.given !== undefined;
  }

  /**
   * Puts a picture into a profile, unless it is there already. A picture that cannot be had keeps nobody out.
   * @param url where the provider has it
   */
  async apply(userId: string, url: string | undefined, origin: Origin): Promise<void> {
    if (url === undefined || url === '' || !this.ports.pictures.given) return;
    try {
      const picture = await this.#fetch(url);
      if (!picture) return;
      const digest = createHash('sha256').update(picture.bytes).digest('base64url');
      const last = await findAvatar(this.database, userId);
      const shown = (await this.profiles.get(userId))?.avatar_url;
      if (last?.digest === digest && last.uri === shown) return;
      const uri = await this.ports.pictures.given(userId, picture);
      await this.database.write(
        async (tx) => {
          await holdAccount(tx, userId);
          await recordAvatar(tx, userId, digest, uri);
        },
        { name: 'sso_avatar' },
      );
      await this.profiles.update(userId, { avatar_url: uri }, { origin, byAdmin: true, onlyWhileOpen: true });
    } catch (err) {
      this.logger.info('The picture of somebody who signed on cannot be had', { userId, err });
    }
  }

  /** The address is the person's choice: it is not allowed to reach the server's own network. */
  async #fetch(url: string): Promise<Picture | undefined> {
    const { status, body } = await this.http.request({
      url,
      timeoutMs,
      maxBytes: this.config.get('max_avatar_size') ?? usualLimitBytes,
      headers: { accept: 'image/*' },
    });
    if (status !== 200) throw new OutboundError('bad_status', `The picture's address answered with ${status}`, status);
    const beginning = body.subarray(0, 16).toString('latin1');
    const contentType = images.find(([, pattern]) => pattern.test(beginning))?.[0];
    const allowed = this.config.get('allowed_avatar_mimetypes');
    if (contentType === undefined || (allowed !== undefined && !allowed.includes(contentType))) return undefined;
    return { bytes: body, contentType };
  }
}
