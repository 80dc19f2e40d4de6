import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SystemClock } from '@rookery/platform';
import { eventually, startMailSink, type TestHomeserver, type TestResponse, type TestUser } from '@rookery/testing';
import type { Logger as SdkLogger } from 'matrix-js-sdk/lib/logger.js';
import PostalMime, { type Email } from 'postal-mime';

/** A body of JSON. */
export type Json = Record<string, unknown>;

const ignore = (): void => {};

/** Keeps the SDK from telling of every request. */
export const quiet: SdkLogger = {
  trace: ignore,
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  getChild: () => quiet,
};

/** The time of day, which a test can put forward; timers take their time all the same. */
export class ForwardClock extends SystemClock {
  #byMs = 0;

  advance(byMs: number): void {
    this.#byMs += byMs;
  }
  override nowMs(): number {
    return super.nowMs() + this.#byMs;
  }
  override monotonicMs(): number {
    return super.monotonicMs() + this.#byMs;
  }
}

/** A mail as it arrived. */
export interface Mail extends Email {
  readonly raw: string;
  readonly recipients: readonly string[];
}

/** A mail server on the loopback address. */
export interface MailServer {
  readonly port: number;
  /** All mails that have arrived. */
  readonly mails: readonly Mail[];
  /** The next mail to an address, in the order of arrival; each is given once. */
  next(address: string): Promise<Mail>;
  stop(): Promise<void>;
}

export async function startMailServer(): Promise<MailServer> {
  const mails: Mail[] = [];
  const read = new Set<Mail>();
  const sink = await startMailSink(async ({ raw, recipients }) => {
    mails.push({ ...(await PostalMime.parse(raw)), raw, recipients });
  });
  return {
    port: sink.settings.smtp_port,
    mails,
    async next(address) {
      const mail = await eventually(() => mails.find((one) => !read.has(one) && one.recipients.includes(address)));
      read.add(mail);
      return mail;
    },
    stop: sink.stop,
  };
}

/** A request that {@link startWebServer} got. */
export interface WebRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** A web server on the loopback address that stands for a service the homeserver asks. */
export async function startWebServer(
  answer: (request: WebRequest) => { readonly status?: number; readonly body: unknown },
): Promise<{ readonly url: string; readonly requests: WebRequest[]; stop(): Promise<void> }> {
  const requests: WebRequest[] = [];
  const server = createServer((incoming, response) => {
    const chunks: Buffer[] = [];
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
    incoming.on('end', () => {
      const url = new URL(incoming.url ?? '/', 'http://localhost');
      const request: WebRequest = {
        method: incoming.method ?? '',
        path: url.pathname,
        query: url.searchParams,
        headers: incoming.headers,
        body: Buffer.concat(chunks).toString(),
      };
      requests.push(request);
      const { status = 200, body } = answer(request);
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** An identity server that proves phone numbers: it remembers the code that it would have sent. */
export async function startNumberServer() {
  const sessions = new Map<string, { secret: string; msisdn: string; code: string; provedMs?: number }>();
  const server = await startWebServer(({ method, path, query, body }) => {
    const base = '/_matrix/identity/api/v1';
    const sent = (body === '' ? {} : JSON.parse(body)) as Record<string, string>;
    if (method === 'POST' && path === `${base}/validate/msisdn/requestToken`) {
      const sid = String(sessions.size + 1);
      const msisdn = `44${(sent['phone_number'] ?? '').replace(/\D/g, '').replace(/^0/, '')}`;
      sessions.set(sid, { secret: sent['client_secret'] ?? '', msisdn, code: `${100_000 + sessions.size}` });
      return { body: { success: true, sid, msisdn, intl_fmt: `+${msisdn}` } };
    }
    if (method === 'POST' && path === `${base}/validate/msisdn/submitToken`) {
      const found = sessions.get(sent['sid'] ?? '');
      const success = found?.secret === sent['client_secret'] && found?.code === sent['token'];
      if (found && success) found.provedMs = Date.now();
      return { body: { success } };
    }
    if (method === 'GET' && path === `${base}/3pid/getValidated3pid`) {
      const found = sessions.get(query.get('sid') ?? '');
      if (!found || found.secret !== query.get('client_secret') || found.provedMs === undefined)
        return { status: 404, body: { errcode: 'M_NO_VALID_SESSION', error: 'No valid session' } };
      return { body: { medium: 'msisdn', address: found.msisdn, validated_at: found.provedMs } };
    }
    return { status: 404, body: { errcode: 'M_UNRECOGNIZED', error: path } };
  });
  return { ...server, codeOf: (sid: string): string => sessions.get(sid)?.code ?? '' };
}

const entities: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', '#x27': "'", '#39': "'" };

/** The text that HTML shows where an attribute or text was escaped. */
export const unescapeHtml = (text: string): string =>
  text.replace(/&([#\w]+);/g, (whole, name: string) => entities[name] ?? whole);

/** The link in the text part of a mail; the HTML part must hold the same. */
export function linkOf(mail: Mail): URL {
  const [link] = /https?:\/\/\S+/.exec(mail.text ?? '') ?? [];
  if (link === undefined) throw new Error(`No link in ${mail.text}`);
  expect(unescapeHtml(mail.html ?? '')).toContain(link);
  return new URL(link);
}

/** A page as a browser gets it. */
export interface Page {
  readonly status: number;
  readonly headers: Headers;
  readonly html: string;
  readonly url: string;
}

/** Opens a page of the server as a browser would, whatever host its public address names. */
export async function openPage(homeserver: TestHomeserver, url: string | URL, init?: RequestInit): Promise<Page> {
  const { pathname, search } = new URL(url, homeserver.baseUrl);
  const address = `${homeserver.baseUrl}${pathname}${search}`;
  const response = await fetch(address, { redirect: 'manual', ...init });
  return { status: response.status, headers: response.headers, html: await response.text(), url: address };
}

const attribute = (tag: string, name: string): string | undefined => {
  const [, value] = new RegExp(`\\s${name}="([^"]*)"`).exec(tag) ?? [];
  return value === undefined ? undefined : unescapeHtml(value);
};

/** Fills in the only form of a page and sends it as a browser would. */
export async function submitForm(
  homeserver: TestHomeserver,
  page: Page,
  typed: Readonly<Record<string, string>> = {},
): Promise<Page> {
  const [, tag, inside] = /(<form\b[^>]*>)([\s\S]*?)<\/form>/.exec(page.html) ?? [];
  if (tag === undefined || inside === undefined) throw new Error(`No form in ${page.html}`);
  expect(attribute(tag, 'method')).toBe('post');
  const fields = new URLSearchParams();
  for (const [input] of inside.matchAll(/<input\b[^>]*>/g)) {
    const name = attribute(input, 'name');
    if (name !== undefined) fields.set(name, attribute(input, 'value') ?? '');
  }
  for (const [name, value] of Object.entries(typed)) fields.set(name, value);
  // An empty action is the page itself, with its query.
  const action = new URL(attribute(tag, 'action') || page.url, page.url);
  return openPage(homeserver, action, {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body: fields.toString(),
  });
}

/** A page that is ours runs no scripts but its own, is framed by no other site. */
export function expectSafe(page: Page): void {
  const policy = page.headers.get('content-security-policy') ?? '';
  expect(policy).toMatch(/default-src 'none'/);
  expect(policy).toMatch(/frame-ancestors '(self|none)'/);
  expect(policy).not.toContain('unsafe-eval');
  expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
  expect(page.html).toContain('name="viewport"');
}

/** What a request of interactive auth answers while stages are missing. */
export interface Challenge {
  readonly session: string;
  readonly flows: readonly { readonly stages: readonly string[] }[];
  readonly params: Readonly<Record<string, Json>>;
  readonly completed?: readonly string[];
  readonly errcode?: string;
}

/** A server and its ways. */
export const asJson = (response: TestResponse<Json>): Json => ({ status: response.status, ...response.body });

/** Runs a request that has to answer with a challenge. */
export async function challengeOf(answer: Promise<TestResponse<Json>>): Promise<Challenge> {
  const { status, body } = await answer;
  expect({ status, body }).toMatchObject({ status: 401, body: { session: expect.any(String) } });
  return body as unknown as Challenge;
}

/** Asks for something that needs interactive auth, and confirms it with a password. */
export async function withPassword(
  user: TestUser,
  method: string,
  path: string,
  body: object,
  password: string,
): Promise<TestResponse<Json>> {
  const { session, flows } = await challengeOf(user.request(method, path, body));
  expect(flows).toContainEqual({ stages: ['m.login.password'] });
  const identifier = { type: 'm.id.user', user: user.userId };
  return user.request(method, path, { ...body, auth: { type: 'm.login.password', session, identifier, password } });
}

/** Somebody's session by a password login. */
export async function logIn(
  homeserver: TestHomeserver,
  name: string,
  password = `password of ${name}`,
  more: object = {},
): Promise<TestUser> {
  const { status, body } = await homeserver.request('POST', '/login', {
    type: 'm.login.password',
    identifier: { type: 'm.id.user', user: name },
    password,
    ...more,
  });
  expect({ status, body }).toMatchObject({ status: 200 });
  const accessToken = String(body['access_token']);
  return {
    userId: String(body['user_id']),
    deviceId: String(body['device_id']),
    accessToken,
    request: (method, path, content) => homeserver.request(method, path, content, accessToken),
  };
}
