import type { SignOnCallback } from '@rookery/module-api';
import { Readable } from 'node:stream';

/** What of a Passport strategy is used: any that extends `passport-strategy`, or looks like it. */
export interface PassportStrategy {
  readonly name?: string | undefined;
  // Strategies type their request as Express's, and their options as their own.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  authenticate(request: any, options?: any): unknown;
}

/** One step of a sign-on, for whoever makes the strategy. */
export interface StrategyContext {
  /** Where the provider sends browsers back to: the strategy's `callbackURL`, `callbackUrl` or `redirect_uri`. */
  readonly callbackUrl: string;
  /** `uia`: a user confirms an operation; ask the provider to have them prove themselves again. */
  readonly purpose: 'login' | 'uia';
  /** What strategies keep between the steps; sealed in the browser, JSON of at most 2 KiB. The same as `req.session`. */
  readonly session: Record<string, unknown>;
}

/** What a strategy said. */
export type StrategyOutcome =
  | { readonly kind: 'success'; readonly user: unknown; readonly info: unknown }
  | { readonly kind: 'fail'; readonly challenge: unknown; readonly status: number | undefined }
  | { readonly kind: 'redirect'; readonly location: string }
  | { readonly kind: 'page'; readonly html: string; readonly status: number }
  | { readonly kind: 'pass' };

/** The largest number of fields of a form that counts. */
const maxFields = 100;

/**
 * Asks a strategy about a request. It sees a request that looks like Express's: a stream with `method`, `url`, `originalUrl`,
 * `headers`, `query`, `body`, `session`, `ip` and `res`.
 * @throws whatever the strategy fails with
 */
export async function ask(
  strategy: PassportStrategy,
  context: Omit<SignOnCallback, 'state'>,
  session: Record<string, unknown>,
  options: Readonly<Record<string, unknown>>,
): Promise<StrategyOutcome> {
  const bytes = new Uint8Array(await context.request.arrayBuffer());
  return new Promise((resolve, reject) => {
    const page = (html: string, status: number): void => resolve({ kind: 'page', html, status });
    const redirect = (location: unknown): void =>
      resolve({ kind: 'redirect', location: new URL(String(location), context.request.url).href });
    // Of its own for each request, as Passport does it.
    const asked = Object.assign(Object.create(strategy) as PassportStrategy, {
      success: (user: unknown, info: unknown) => resolve({ kind: 'success', user, info }),
      fail: (challenge?: unknown, status?: unknown) => {
        const isStatus = typeof challenge === 'number';
        const given = isStatus ? challenge : status;
        resolve({
          kind: 'fail',
          challenge: isStatus ? undefined : challenge,
          status: typeof given === 'number' ? given : undefined,
        });
      },
      redirect,
      pass: () => resolve({ kind: 'pass' }),
      error: (error: unknown) => reject(error instanceof Error ? error : new Error(String(error))),
    });
    try {
      const answered = asked.authenticate(expressLike(context, session, bytes, page, redirect), { ...options });
      // Some are asynchronous and forget to catch.
      if (answered instanceof Promise) answered.catch(reject);
    } catch (error) {
      reject(error instanceof Error ? error : new Error(String(error)));
    }
  });
}

function expressLike(
  { request, ip }: Omit<SignOnCallback, 'state'>,
  session: Record<string, unknown>,
  bytes: Uint8Array,
  page: (html: string, status: number) => void,
  redirect: (location: unknown) => void,
): object {
  const url = new URL(request.url);
  const protocol = url.protocol.slice(0, -1);
  const headers: Record<string, string> = { ...Object.fromEntries(request.headers), host: url.host };
  const socket = { encrypted: protocol === 'https', remoteAddress: ip };
  const path = url.pathname + url.search;
  return Object.assign(Readable.from(bytes.length === 0 ? [] : [Buffer.from(bytes)]), {
    method: request.method,
    url: path,
    originalUrl: path,
    path: url.pathname,
    protocol,
    secure: protocol === 'https',
    host: url.host,
    hostname: url.hostname,
    headers,
    headersDistinct: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]])),
    get: (name: string) => headers[name.toLowerCase()],
    header: (name: string) => headers[name.toLowerCase()],
    query: fieldsOf(url.searchParams),
    body: bodyOf(bytes, headers['content-type'] ?? ''),
    params: {},
    cookies: {},
    session,
    socket,
    connection: socket,
    ip,
    res: responseLike(page, redirect),
    logIn: (_user: unknown, ...rest: unknown[]) => (rest.at(-1) as () => void)(),
    logout: (...rest: unknown[]) => (rest.at(-1) as () => void)(),
    isAuthenticated: () => false,
  });
}

/** For strategies that answer by themselves: a form that sends itself to the provider. */
function responseLike(page: (html: string, status: number) => void, redirect: (location: unknown) => void): object {
  let location: unknown;
  const response = {
    statusCode: 200,
    setHeader(name: string, value: unknown) {
      if (name.toLowerCase() === 'location') location = value;
      return response;
    },
    status(code: number) {
      response.statusCode = code;
      return response;
    },
    writeHead(code: number, ...more: unknown[]) {
      response.statusCode = code;
      for (const [name, value] of Object.entries((more.at(-1) ?? {}) as object)) response.setHeader(name, value);
      return response;
    },
    type: () => response,
    send: (body: unknown) => response.end(body),
    redirect: (...args: unknown[]) => redirect(args.at(-1)),
    end(body: unknown = '') {
      if (location !== undefined && response.statusCode >= 300 && response.statusCode < 400) redirect(location);
      else page(String(body), response.statusCode);
      return response;
    },
  };
  return Object.assign(response, { set: response.setHeader, header: response.setHeader });
}

type Fields = Record<string, string | string[]>;

function fieldsOf(parameters: URLSearchParams): Fields {
  const fields = Object.create(null) as Fields;
  for (const [name, value] of [...parameters].slice(0, maxFields)) {
    const before = fields[name];
    fields[name] = before === undefined ? value : [...(typeof before === 'string' ? [before] : before), value];
  }
  // Some call its methods.
  return { ...fields };
}

function bodyOf(bytes: Uint8Array, type: string): unknown {
  const text = new TextDecoder().decode(bytes);
  if (!type.startsWith('application/json')) return fieldsOf(new URLSearchParams(text));
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return {};
  }
}
