import type { Readable } from 'node:stream';
import { jsonParts } from './json-parts.js';

/** A rendered page. */
export interface PageContent {
  readonly html: string;
  /** Unguessable; carried by the page's own scripts. */
  readonly nonce?: string | undefined;
  /** Written by the operator. */
  readonly custom?: boolean | undefined;
}

/** How a page is sent. */
export interface PageOptions {
  readonly headers?: Record<string, string | string[]>;
  /** The answer to a form of the page may redirect to another site, which browsers otherwise refuse to follow. */
  readonly formsLeadAway?: boolean;
}

const headerSafe = (url: string): string => url.toWellFormed().replace(/[^\x21-\x7e]/gu, encodeURIComponent);

const captchaSites = 'https://www.recaptcha.net https://www.google.com';

function policyOf({ nonce, custom }: PageContent, formsLeadAway: boolean): string {
  const rules = ["frame-ancestors 'self'", "base-uri 'none'"];
  if (custom) return rules.join('; ');
  rules.push("default-src 'none'", "style-src 'unsafe-inline'", "img-src 'self' https: data:");
  if (!formsLeadAway) rules.push("form-action 'self'");
  if (nonce !== undefined) {
    rules.push(
      `script-src 'nonce-${nonce}' 'strict-dynamic'`,
      `connect-src 'self' ${captchaSites}`,
      `frame-src ${captchaSites}`,
    );
  }
  return rules.join('; ');
}

/** An answer that is not a plain 200 with JSON: pages, redirects, empty bodies, other status codes. */
export class HttpReply {
  constructor(
    readonly status: number,
    /** Names in lower case. A list sends the header several times (`set-cookie`). */
    readonly headers: Readonly<Record<string, string | string[]>>,
    /**
     * Bytes may come in parts, which go out as one body. A stream is piped and destroyed when the client goes away; give it a
     * `content-length` where it is known.
     */
    readonly body: string | Uint8Array | readonly Uint8Array[] | Readable | undefined,
    /** What a stream holds in memory until it is read, bytes, where that is more than the pieces on their way. */
    readonly heldBytes = 0,
  ) {}

  /** JSON with another status or more headers. */
  static json(status: number, body: unknown, headers: Record<string, string | string[]> = {}): HttpReply {
    return new HttpReply(status, { 'content-type': 'application/json', ...headers }, JSON.stringify(body));
  }
  /**
   * JSON of status 200 that may be long: it is written a part at a time, as for routes with `largeAnswer`, on one whose requests wait for
   * others, and must not have a turn meanwhile.
   */
  static async large(body: object): Promise<HttpReply> {
    return new HttpReply(200, { 'content-type': 'application/json' }, await jsonParts(body));
  }
  /** A page without scripts, with the strict content security policy that all our pages carry. */
  static html(status: number, html: string, headers: Record<string, string | string[]> = {}): HttpReply {
    return HttpReply.page(status, { html }, { headers });
  }
  /** A page from a template. Only scripts that carry its nonce run; the operator's own pages may do what they like. */
  static page(status: number, page: PageContent, options: PageOptions = {}): HttpReply {
    return new HttpReply(
      status,
      {
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy': policyOf(page, options.formsLeadAway ?? false),
        'cache-control': 'no-store',
        'referrer-policy': 'no-referrer',
        'x-content-type-options': 'nosniff',
        ...options.headers,
      },
      page.html,
    );
  }
  /** A redirect. What may not stand in a header is percent-encoded. */
  static redirect(location: string, status = 302, headers: Record<string, string | string[]> = {}): HttpReply {
    return new HttpReply(
      status,
      { location: headerSafe(location), 'cache-control': 'no-store', ...headers },
      undefined,
    );
  }
}
