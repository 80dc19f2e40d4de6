import { setImmediate as nextTurn } from 'node:timers/promises';
import { RedirectError, type WebHandler, type WebRequestContext } from '@rookery/module-api';
import { MatrixError } from '@rookery/matrix-types';
import type { HostServices } from './services.js';
import { ModuleLoadError } from './errors.js';
import { type Owner, runAs } from './owner.js';

/** A path of a module, taken apart. */
export interface WebResource {
  readonly module: string;
  readonly path: string;
  readonly segments: readonly string[];
  readonly handler: WebHandler;
}

/** Paths that belong to the server with everything below them, whatever a module says. */
const reserved = [
  '/_matrix',
  '/health',
  ...['client', 'server', 'support'].map((name) => `/.well-known/matrix/${name}`),
  ...['admin', 'mas', 'metrics', 'replication'].map((name) => `/_synapse/${name}`),
  ...[
    'media_upload_limit_exceeded',
    'new_user_consent',
    'oidc',
    'password_reset',
    'pick_idp',
    'pick_username',
    'rendezvous',
    'saml2',
    'sso',
    'sso_register',
    'unsubscribe',
    'v1/config',
  ].map((name) => `/_synapse/client/${name}`),
];
const isReserved = (path: string): boolean =>
  reserved.some((prefix) => path.startsWith(prefix) && (path.length === prefix.length || path[prefix.length] === '/'));

/** Who asks a module for a page. */
export interface WebAsker {
  readonly ip?: string;
  /**
   * Is told of every piece that is kept of the answer. @returns when the module may be asked for more; `undefined`: at once
   * @throws MatrixError where there is no room for more, or nobody wants the answer any more
   */
  gather?(bytes: number): Promise<void> | undefined;
}

const maxPathLength = 200;
/** A module's answer has to begin within this time, and to end within the other. */
const webTimeLimitMs = 60_000;
const webBodyLimitMs = 300_000;
/** Largest answer, bytes. It goes out as a whole. */
const maxAnswerBytes = 104_857_600;

/** Checks a path and takes it apart. @throws ModuleLoadError */
export function webResource(module: string, path: string, handler: WebHandler, owner: Owner): WebResource {
  const problem = (what: string): ModuleLoadError => new ModuleLoadError(module, `registerWebResource: ${what}`);
  const isPath = typeof path === 'string' && path.length <= maxPathLength && /^(?:\/[\x21-\x7e]+)+\/?$/.test(path);
  // What would mean something else in a request, or never come in one.
  if (!isPath || /\/\/|[?#%\\]|\/\.{1,2}(?:\/|$)/.test(path)) {
    throw problem(`${JSON.stringify(path)} is not a path; take one below /_synapse/client/`);
  }
  if (typeof handler !== 'function') throw problem(`the handler of ${path} is not a function`);
  if (isReserved(path)) {
    throw problem(`${path} belongs to the server; take one below /_synapse/client/`);
  }
  const segments = path.slice(1).split('/');
  const parameters = segments.filter((segment) => segment.startsWith(':'));
  if (parameters.some((name) => !/^:\w+$/.test(name)) || new Set(parameters).size < parameters.length) {
    throw problem(`the parameters of ${path} need different names of letters, digits and _`);
  }
  if (segments[0]?.startsWith(':') || segments[0] === '*') throw problem(`${path} begins with a parameter`);
  if (segments.some((segment, i) => segment.includes('*') && (segment !== '*' || i < segments.length - 1))) {
    throw problem(`* may only be the last segment of ${path}`);
  }
  return { module, path, segments, handler: (request, context) => runAs(owner, handler, request, context) };
}

/** Whether two paths could stand for one and the same request. */
export const samePath = (a: WebResource, b: WebResource): boolean =>
  a.segments.length === b.segments.length &&
  a.segments.every(
    (segment, i) => segment === b.segments[i] || (segment.startsWith(':') && b.segments[i]?.startsWith(':')),
  );

/** What of a path stands before its first parameter, without a slash at its end. */
export function webPrefix({ segments }: WebResource): string {
  const end = segments.findIndex((segment) => segment.startsWith(':') || segment === '*' || segment === '');
  return `/${segments.slice(0, end < 0 ? segments.length : end).join('/')}`;
}

/** Whether a module answers a request's path, in contrast to the server itself. @param paths as they were registered */
export function webPathFilter(paths: readonly string[]): (path: string) => boolean {
  const known = paths.map((path) => path.slice(1).split('/'));
  return (path) => {
    if (known.length === 0 || isReserved(path)) return false;
    const given = path.slice(1).split('/');
    return known.some((segments) => match(segments, given) !== undefined);
  };
}

/** The resource for a path without query, and its parameters. The first that fits, in the order of registration. */
export function findWebResource(
  resources: readonly WebResource[],
  path: string,
): { readonly resource: WebResource; readonly params: Readonly<Record<string, string>> } | undefined {
  if (resources.length === 0) return undefined;
  const given = path.slice(1).split('/');
  for (const resource of resources) {
    const params = match(resource.segments, given);
    if (params) return { resource, params };
  }
  return undefined;
}

function match(segments: readonly string[], given: readonly string[]): Record<string, string> | undefined {
  const params: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const [i, segment] of segments.entries()) {
    if (segment === '*') {
      params['*'] = given.slice(i).join('/');
      return params;
    }
    const part = given[i];
    if (part === undefined) return undefined;
    if (segment.startsWith(':')) {
      const value = decode(part);
      if (!value) return undefined;
      params[segment.slice(1)] = value;
    } else if (segment !== part) {
      return undefined;
    }
  }
  return given.length === segments.length ? params : undefined;
}

function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

/** Lets a module answer a request. Never rejects: what goes wrong becomes an error answer. */
export async function answerWebRequest(
  services: HostServices,
  resource: WebResource,
  request: Request,
  context: WebRequestContext,
  asker: WebAsker = {},
): Promise<Response> {
  const { module, handler, path } = resource;
  const { clock, log } = services;
  const timers: { cancel(): void }[] = [];
  const late = (limitMs: number, what: string): Promise<never> =>
    new Promise((_, reject) => {
      timers.push(clock.after(limitMs, () => reject(new Error(`${what} within ${limitMs} ms`))));
    });
  try {
    const begun = late(webTimeLimitMs, 'No answer');
    const response = await Promise.race([Promise.resolve(handler(request, context)), begun]);
    return await wholeAnswer(response, late(webBodyLimitMs, 'The answer did not end'), asker);
  } catch (error) {
    const meant = intendedAnswer(error);
    if (meant) return meant;
    log.error('A web resource of a module failed', {
      module,
      path,
      requestId: context.requestId,
      err: error,
    });
    return Response.json({ errcode: 'M_UNKNOWN', error: 'A module of this server failed' }, { status: 500 });
  } finally {
    for (const timer of timers) timer.cancel();
  }
}

/** What a module wants to have answered by throwing it; `undefined` for anything else, and for what cannot be sent. */
function intendedAnswer(error: unknown): Response | undefined {
  try {
    if (MatrixError.is(error)) {
      const { status, errcode, message, extra } = error;
      return Response.json({ ...extra, errcode, error: message }, { status });
    }
    if (RedirectError.is(error)) {
      return new Response(null, { status: error.status, headers: { location: error.location } });
    }
  } catch {
    // No such status, no such header, nothing that JSON can hold.
  }
  return undefined;
}

/**
 * An answer whose body is all there: what breaks off, or never ends, becomes an error that the client can read. A module may
 * carry another implementation of fetch: its answer counts when it looks like one.
 */
async function wholeAnswer(value: unknown, late: Promise<never>, asker: WebAsker): Promise<Response> {
  late.catch(() => {});
  if (!isResponse(value)) throw new Error('The handler gave no Response');
  const { status, headers } = value;
  const body = value.body ? await bodyOf(value, late, asker) : undefined;
  const answer = new Response(body && !emptyStatus.has(status) ? streamOf(body) : null, { status });
  for (const [name, text] of headers) answer.headers.append(name, text);
  return answer;
}

function streamOf(pieces: readonly Uint8Array[]): ReadableStream {
  let next = 0;
  return new ReadableStream({
    pull: (to) => (next < pieces.length ? to.enqueue(pieces[next++]) : to.close()),
  });
}

/** Statuses whose answers have no body. */
const emptyStatus = new Set([204, 205, 304]);

/** Smallest piece that is kept as it came, bytes: smaller ones are put together up to this size. */
const pieceBytes = 65_536;
/** Pieces that are read before others have their turn. */
const piecesInTurn = 500;
/** The same in bytes: what a module makes as it is read takes it time. */
const bytesInTurn = 4_194_304;

/** The body in the pieces in which it came: a copy of a large one would take longer than anybody may wait. */
async function bodyOf(response: Response, late: Promise<never>, asker: WebAsker): Promise<readonly Uint8Array[]> {
  const tooLarge = (): Error => new Error(`The answer is larger than ${maxAnswerBytes} bytes`);
  if (!(response.body instanceof ReadableStream)) {
    const bytes = new Uint8Array(await Promise.race([response.arrayBuffer(), late]));
    if (bytes.length > maxAnswerBytes) throw tooLarge();
    await asker.gather?.(bytes.length);
    return [bytes];
  }
  const reader = response.body.getReader();
  const pieces = new Pieces();
  let failure: Error | undefined;
  const stop = (error: Error): void => {
    failure ??= error;
    // What waits for a piece goes on with the end of them.
    reader.cancel(error).catch(() => {});
  };
  late.catch(stop);
  const roomFor = async (bytes: number): Promise<void> => {
    try {
      await asker.gather?.(bytes);
    } catch (error) {
      // The module is told: it need not go on.
      stop(error as Error);
    }
  };
  let [count, size] = [0, 0];
  for (;;) {
    const { done, value } = await reader.read();
    if (failure !== undefined) throw failure;
    if (done) return pieces.all();
    // Only bytes have a length that can be counted.
    if (!(value instanceof Uint8Array)) stop(new Error('The answer holds something other than bytes'));
    else if (pieces.add(value) > maxAnswerBytes) stop(tooLarge());
    else await roomFor(value.length);
    if (failure !== undefined) throw failure;
    count++;
    size += value?.length ?? 0;
    if (count < piecesInTurn && size < bytesInTurn) continue;
    [count, size] = [0, 0];
    await nextTurn();
  }
}

/** Bytes as they come. */
class Pieces {
  readonly #whole: Uint8Array[] = [];
  #open = Buffer.allocUnsafe(0);
  #used = 0;
  #size = 0;

  /** @returns how many bytes there are now */
  add(bytes: Uint8Array): number {
    this.#size += bytes.length;
    if (bytes.length >= pieceBytes) {
      this.#close();
      this.#whole.push(bytes);
      return this.#size;
    }
    // Up to the last byte: pieces of a little more than half the size would hold twice what they are.
    const first = bytes.subarray(0, this.#open.length - this.#used);
    this.#put(first);
    if (first.length === bytes.length) return this.#size;
    this.#close();
    this.#open = Buffer.allocUnsafe(pieceBytes);
    this.#put(bytes.subarray(first.length));
    return this.#size;
  }

  #put(bytes: Uint8Array): void {
    this.#open.set(bytes, this.#used);
    this.#used += bytes.length;
  }

  all(): readonly Uint8Array[] {
    this.#close();
    return this.#whole;
  }

  #close(): void {
    if (this.#used > 0) this.#whole.push(this.#open.subarray(0, this.#used));
    this.#open = this.#open.subarray(this.#used);
    this.#used = 0;
  }
}

const isResponse = (value: unknown): value is Response =>
  value instanceof Response ||
  (typeof value === 'object' &&
    value !== null &&
    typeof (value as Response).status === 'number' &&
    typeof (value as Response).arrayBuffer === 'function' &&
    typeof (value as Response).headers?.get === 'function');
