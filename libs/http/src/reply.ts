import type { Readable } from 'node:stream';

/** An answer that is not a plain 200 with JSON: pages, redirects, empty bodies, other status codes. */
export class HttpReply {
  constructor(
    readonly status: number,
    /** Names in lower case. A list sends the header several times (`set-cookie`). */
    readonly headers: Readonly<Record<string, string | string[]>>,
    /** A stream is piped and destroyed when the client goes away; give it a `content-length` where it is known. */
    readonly body: string | Uint8Array | Readable | undefined,
  ) {}

  /** JSON with another status or more headers. */
  static json(status: number, body: unknown, headers: Record<string, string | string[]> = {}): HttpReply {
    return new HttpReply(status, { 'content-type': 'application/json', ...headers }, JSON.stringify(body));
  }
  /** A page, with the strict content security policy that all our pages carry. */
  static html(status: number, html: string, headers: Record<string, string | string[]> = {}): HttpReply {
    return new HttpReply(
      status,
      {
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy':
          "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; form-action 'self'; frame-ancestors 'self'; base-uri 'none'",
        'cache-control': 'no-store',
        'referrer-policy': 'no-referrer',
        'x-content-type-options': 'nosniff',
        ...headers,
      },
      html,
    );
  }
  static redirect(location: string, status = 302, headers: Record<string, string | string[]> = {}): HttpReply {
    return new HttpReply(status, { location, 'cache-control': 'no-store', ...headers }, undefined);
  }
}
