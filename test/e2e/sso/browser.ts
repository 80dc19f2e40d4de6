import { request as send, type IncomingHttpHeaders } from 'node:http';
import { unescapeHtml } from '../accounts/support.js';

interface Cookie {
  readonly name: string;
  readonly value: string;
  readonly host: string;
  readonly path: string;
  readonly secure: boolean;
  readonly sameSite: string;
}

/** What a browser shows. */
export interface Shown {
  readonly url: URL;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly html: string;
  /** Where a redirect leads. */
  readonly location: URL | undefined;
}

/** What a request sends. */
export interface Sent {
  /** Fields of a form, sent by POST. */
  readonly form?: Readonly<Record<string, string>> | URLSearchParams;
  /** The page that it comes from; a form of another site gets fewer cookies. */
  readonly from?: URL;
}

/**
 * A browser with a cookie jar that keeps the rules which matter here: host, path, `Secure`, `SameSite`, `Max-Age`. Names of
 * hosts lead where a test says.
 */
export class Browser {
  readonly #cookies: Cookie[] = [];

  /** @param hosts addresses of real servers by origin */
  constructor(private readonly hosts: Readonly<Record<string, string>> = {}) {}

  /** The cookies for an address by name. */
  cookies(url: string | URL): Record<string, string> {
    return Object.fromEntries(this.#cookiesFor(new URL(url), 'GET', undefined).map(({ name, value }) => [name, value]));
  }

  /** Puts a cookie in, or another in its place. */
  setCookie(url: string | URL, header: string): void {
    const target = new URL(url);
    const [pair = '', ...rest] = header.split(';').map((part) => part.trim());
    const at = pair.indexOf('=');
    const attributes = new Map(
      rest.map((part) => {
        const [key = '', value = ''] = part.split('=', 2);
        return [key.toLowerCase(), value];
      }),
    );
    const cookie: Cookie = {
      name: pair.slice(0, at),
      value: pair.slice(at + 1),
      host: target.hostname,
      path: attributes.get('path') ?? '/',
      secure: attributes.has('secure'),
      sameSite: (attributes.get('samesite') ?? 'lax').toLowerCase(),
    };
    if (cookie.secure && target.protocol !== 'https:') return;
    if (cookie.sameSite === 'none' && !cookie.secure) return;
    const same = this.#cookies.findIndex(
      ({ name, host, path }) => name === cookie.name && host === cookie.host && path === cookie.path,
    );
    if (same >= 0) this.#cookies.splice(same, 1);
    if (attributes.get('max-age') !== '0') this.#cookies.push(cookie);
  }

  /** Makes one request and stays there. */
  async go(address: string | URL, { form, from }: Sent = {}): Promise<Shown> {
    const url = new URL(address);
    const method = form === undefined ? 'GET' : 'POST';
    const real = new URL(this.hosts[url.origin] ?? url.origin);
    const cookies = this.#cookiesFor(url, method, from);
    const body = form === undefined ? undefined : new URLSearchParams(form).toString();
    const { status, headers, html } = await exchange(real, url, method, body, cookies);
    for (const header of headers['set-cookie'] ?? []) this.setCookie(url, header);
    const location = headers.location;
    return { url, status, headers, html, location: location === undefined ? undefined : new URL(location, url) };
  }

  /** Follows redirects until a page comes, or one leads to an address that is in no reach. */
  async follow(address: string | URL, sent: Sent = {}): Promise<Shown> {
    let shown = await this.go(address, sent);
    for (let i = 0; i < 20 && shown.location && this.#reaches(shown.location); i++) {
      shown = await this.go(shown.location);
    }
    return shown;
  }

  /** Fills in the only form of a page and sends it; follows what comes. */
  async submit(page: Shown, typed: Readonly<Record<string, string>> = {}): Promise<Shown> {
    const { action, method, fields } = formOf(page);
    for (const [name, value] of Object.entries(typed)) fields.set(name, value);
    if (method === 'get') {
      action.search = fields.toString();
      return this.follow(action);
    }
    return this.follow(action, { form: fields, from: page.url });
  }

  #reaches(url: URL): boolean {
    return url.origin in this.hosts || url.hostname === '127.0.0.1';
  }

  #cookiesFor(url: URL, method: string, from: URL | undefined): Cookie[] {
    const isRemote = from !== undefined && from.hostname !== url.hostname;
    return this.#cookies.filter(
      ({ host, path, secure, sameSite }) =>
        host === url.hostname &&
        (url.pathname === path || url.pathname.startsWith(path.endsWith('/') ? path : `${path}/`)) &&
        (!secure || url.protocol === 'https:') &&
        (method === 'GET' || !isRemote || sameSite === 'none'),
    );
  }
}

/** The only form of a page, with the values that it begins with. */
export function formOf(page: Shown): { action: URL; method: string; fields: URLSearchParams } {
  const [, tag, inside] = /(<form\b[^>]*>)([\s\S]*?)<\/form>/.exec(page.html) ?? [];
  if (tag === undefined || inside === undefined) throw new Error(`No form in ${page.html}`);
  const fields = new URLSearchParams();
  for (const [input] of inside.matchAll(/<input\b[^>]*>/g)) {
    const name = attribute(input, 'name');
    const ticked = attribute(input, 'type') !== 'checkbox' || /\schecked\b/.test(input);
    if (name !== undefined && ticked) fields.append(name, attribute(input, 'value') ?? '');
  }
  const action = new URL(attribute(tag, 'action') || page.url.href, page.url);
  return { action, method: (attribute(tag, 'method') ?? 'get').toLowerCase(), fields };
}

/** Where the first link with these words leads. */
export function linkOf(page: Shown, words: RegExp): URL {
  for (const [, tag = '', text = ''] of page.html.matchAll(/(<a\b[^>]*>)([\s\S]*?)<\/a>/g)) {
    const href = attribute(tag, 'href');
    if (href !== undefined && words.test(text)) return new URL(href, page.url);
  }
  throw new Error(`No such link in ${page.html}`);
}

const attribute = (tag: string, name: string): string | undefined => {
  const [, value] = new RegExp(`\\s${name}=["']([^"']*)["']`).exec(tag) ?? [];
  return value === undefined ? undefined : unescapeHtml(value);
};

function exchange(
  real: URL,
  url: URL,
  method: string,
  body: string | undefined,
  cookies: readonly Cookie[],
): Promise<{ status: number; headers: IncomingHttpHeaders; html: string }> {
  return new Promise((resolve, reject) => {
    const request = send(
      {
        host: real.hostname,
        port: real.port,
        method,
        path: url.pathname + url.search,
        headers: {
          host: url.host,
          accept: 'text/html',
          ...(cookies.length === 0 ? {} : { cookie: cookies.map(({ name, value }) => `${name}=${value}`).join('; ') }),
          ...(body === undefined ? {} : { 'content-type': 'application/x-www-form-urlencoded' }),
        },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            html: Buffer.concat(chunks).toString(),
          }),
        );
      },
    );
    request.on('error', reject);
    request.end(body);
  });
}
