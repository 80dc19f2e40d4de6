import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { IpGuard, OutboundError, OutboundHttp, outboundOptionsOf, type OutboundStream } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config, Metrics } from '@rookery/platform';
import { blockedUrls, type UrlRule } from './url-rules.js';

/** What was found behind an address. */
export interface Fetched {
  readonly status: number;
  readonly contentType: string;
  readonly etag: string | undefined;
  readonly bytes: Buffer;
  /** Where redirects ended. */
  readonly url: URL;
}

const timeoutMs = 15_000;

/** Fetches pages and images for previews: from no address that the settings forbid, and no more than they allow. */
@Injectable()
export class PageFetcher implements OnModuleDestroy {
  #outbound: OutboundHttp | undefined;
  #blocked: UrlRule = () => true;

  constructor(
    private readonly config: Config,
    private readonly metrics: Metrics,
  ) {}

  async onModuleDestroy(): Promise<void> {
    await this.#outbound?.close();
  }

  /** Reads the patterns of addresses that are forbidden. @throws SyntaxError for one that is none */
  prepare(): void {
    this.#blocked = blockedUrls(this.config.get('url_preview_url_blacklist'));
  }

  /** Whether the settings forbid to look at an address. */
  isBlocked(url: URL): boolean {
    return this.#blocked(url);
  }

  /**
   * Fetches what an address leads to.
   * @throws MatrixError 403 `M_UNKNOWN`: the address, or one it leads to, is forbidden; 502 `M_UNKNOWN`: it gives nothing
   */
  async fetch(url: URL, accept: string): Promise<Fetched> {
    if (this.isBlocked(url)) throw forbidden();
    try {
      const answer = await this.#client().stream({
        url,
        timeoutMs,
        maxBytes: this.config.get('max_spider_size'),
        headers: { accept, 'accept-language': this.config.get('url_preview_accept_language').join(', ') },
      });
      return await this.#read(answer);
    } catch (error) {
      if (!(error instanceof OutboundError)) throw error;
      if (error.reason === 'blocked') throw forbidden();
      throw unreachable();
    }
  }

  async #read({ status, headers, body, url }: OutboundStream): Promise<Fetched> {
    if (this.isBlocked(url) || status < 200 || status > 299) {
      body.on('error', () => undefined).destroy();
      throw this.isBlocked(url) ? forbidden() : unreachable();
    }
    const pieces: Buffer[] = [];
    for await (const piece of body) pieces.push(piece as Buffer);
    const type = headers['content-type'];
    const etag = headers['etag'];
    return {
      status,
      url,
      bytes: Buffer.concat(pieces),
      contentType: typeof type === 'string' ? type : 'text/html',
      etag: typeof etag === 'string' ? etag.slice(0, 200) : undefined,
    };
  }

  #client(): OutboundHttp {
    const { config } = this;
    const blocked = config.get('url_preview_ip_range_blacklist') ?? config.get('ip_range_blacklist');
    this.#outbound ??= new OutboundHttp({
      ...outboundOptionsOf(config, '1', this.metrics),
      guard: new IpGuard(blocked, config.get('url_preview_ip_range_whitelist')),
      userAgent: `Rookery (bot)${config.get('user_agent_suffix') === undefined ? '' : ` ${config.get('user_agent_suffix')}`}`,
    });
    return this.#outbound;
  }
}

const forbidden = (): MatrixError => MatrixError.previewForbidden();
const unreachable = (): MatrixError => MatrixError.badGateway('The address could not be looked at');
