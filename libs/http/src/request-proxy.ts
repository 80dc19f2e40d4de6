import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Logger, Semaphore } from '@rookery/platform';
import type { InboundRequest } from './access.js';
import { IpGuard } from './ip-guard.js';
import { isDecoded, OutboundError, OutboundHttp, type OutboundStream } from './outbound-http.js';
import { HttpReply } from './reply.js';

/** Paths that a program beside the server answers in its place (MSC4512). */
export interface ProxiedPaths {
  /** Segments without slashes at the ends, behind the version: `foo/bar`. */
  readonly prefix: string;
  /** Base address of the program, without a slash at its end. */
  readonly url: string;
}

/** As whom a request is passed on. */
export interface ProxiedAs {
  readonly header: 'x-matrix-user-identifier' | 'x-matrix-origin';
  readonly name: string;
}

/** The routes of {@link ProxiedPaths}, for `@All`. Routes of the server's own go before these. */
export function proxiedRoutes(api: 'client' | 'federation', { prefix }: ProxiedPaths): string[] {
  return ['unstable/:proxiedFeature', ':proxiedVersion(^v[^/]+$)'].flatMap((version) => {
    const path = `/_matrix/${api}/${version}/${prefix}`;
    return [path, `${path}/*`];
  });
}

/** Whether a route is one of {@link proxiedRoutes}. */
export const isProxiedRoute = (route: string): boolean => route.includes('/:proxied');

/** Largest body of a proxied request, bytes. */
export const proxiedBodyBytes = 1_048_576;
/** Largest answer, bytes. */
const maxAnswerBytes = 104_857_600;
/** For everything, to the last byte of the answer. */
const timeoutMs = 60_000;
/** Requests to one program at a time. */
const connections = 64;
/** Of these, and of those that wait, for one user or server. */
const maxOfOne = 8;
const maxWaiting = 256;
/** When to come again, where too many wait. */
const retryMs = 2_000;

const methods = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;

/** What belongs to one connection. @see RFC 9110, 7.6.1 */
const hopByHop = [
  ...['connection', 'keep-alive', 'proxy-authenticate', 'proxy-authorization', 'proxy-connection'],
  ...['te', 'trailer', 'trailers', 'transfer-encoding', 'upgrade'],
];
/**
 * Beside those of the connection: what proves who somebody is, what only this server may say, and what is about bytes that go out
 * another way than they came.
 */
const notPassedOn: ReadonlySet<string> = new Set([
  ...hopByHop,
  ...['authorization', 'cookie', 'x-matrix-user-identifier', 'x-matrix-origin'],
  ...['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'x-real-ip'],
  ...['host', 'expect', 'content-length', 'content-encoding', 'accept-encoding'],
]);
/** Cookies of this host are the server's own. */
const notPassedBack: ReadonlySet<string> = new Set([...hopByHop, 'set-cookie']);

type Headers = Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * Passes requests on to programs beside the server, which their operator trusts, and streams the answers back (MSC4512). Their
 * addresses stand in the settings, so that none is refused; proxies are not used.
 */
@Injectable()
export class RequestProxy implements OnModuleDestroy {
  readonly #http = new OutboundHttp({ guard: new IpGuard([]), userAgent: 'Rookery', connections });
  /** By the address of the program: as many as there are in the settings. */
  readonly #places = new Map<string, Semaphore>();

  constructor(private readonly logger: Logger) {}

  onModuleDestroy(): Promise<void> {
    return this.#http.close();
  }

  /**
   * @returns the program's answer, whatever its status
   * @throws MatrixError 502 or 504 `M_UNKNOWN` when there is none, 400 `M_INVALID_PARAM` for a path that leads elsewhere,
   *   405 `M_UNRECOGNIZED` for a method that no program needs, 503 `M_UNKNOWN` when it is given up, 429 `M_LIMIT_EXCEEDED` when too much waits already
   */
  async pass(request: InboundRequest, { url }: ProxiedPaths, as: ProxiedAs): Promise<HttpReply> {
    const method = methods.find((one) => one === request.method);
    if (method === undefined) throw MatrixError.methodNotAllowed();
    const { path, query } = splitTarget(request.url);
    if (leadsElsewhere(path)) throw MatrixError.invalidParam('The path has segments that are . or ..');
    let release: (() => void) | undefined;
    try {
      release = await this.#placesOf(url).acquire({ holder: as.name, signal: request.signal });
      const answer = await this.#http.stream({
        ...{ method, url: `${url}${path}${query}`, timeoutMs, maxBytes: maxAnswerBytes, maxRedirects: 0 },
        headers: { ...passedOn(request.headers), 'accept-encoding': 'identity', [as.header]: as.name },
        ...(request.rawBody === undefined ? {} : { body: request.rawBody }),
        signal: request.signal,
      });
      answer.body.once('close', release);
      return new HttpReply(answer.status, passedBack(answer), answer.body);
    } catch (error) {
      release?.();
      throw this.#explained(error, request);
    }
  }

  #placesOf(url: string): Semaphore {
    let places = this.#places.get(url);
    if (places === undefined) {
      const refuse = (): Error => MatrixError.limitExceeded(retryMs);
      places = new Semaphore(connections, { maxWaiting, maxPerHolder: maxOfOne, refuse });
      this.#places.set(url, places);
    }
    return places;
  }

  #explained(error: unknown, { requestId, signal }: InboundRequest): unknown {
    // Who asked went away, or the server stops.
    if (signal.aborted) return MatrixError.requestGivenUp();
    if (!(error instanceof OutboundError)) return error;
    this.logger.warn('A proxied request was not answered', { requestId, reason: error.message });
    return error.reason === 'timeout'
      ? MatrixError.gatewayTimeout('The application service did not answer in time')
      : MatrixError.badGateway('The application service could not be reached');
  }
}

/**
 * Whether a path has segments by which some reader would go up in it, percent-encoded ones too. What is passed on under a prefix
 * has to stay there, whoever reads it next.
 */
export function leadsElsewhere(path: string): boolean {
  return path
    .replaceAll(/%2e/gi, '.')
    .split(/[/\\]|%2f|%5c/i)
    .some((segment) => segment === '.' || segment === '..');
}

/** A request's target without the token that it may hold. */
function splitTarget(target: string): { path: string; query: string } {
  const at = target.indexOf('?');
  if (at < 0) return { path: target, query: '' };
  const parameters = target
    .slice(at + 1)
    .split('&')
    .filter((one) => !new URLSearchParams(one).has('access_token'));
  return { path: target.slice(0, at), query: parameters.length === 0 ? '' : `?${parameters.join('&')}` };
}

/** Headers but those of a set, and those that `Connection` names. */
function without(headers: Headers, dropped: ReadonlySet<string>): [string, string | readonly string[]][] {
  const ofConnection = new Set(
    [headers['connection'] ?? []]
      .flat()
      .flatMap((value) => value.split(','))
      .map((name) => name.trim().toLowerCase()),
  );
  return Object.entries(headers).flatMap(([name, value]): [string, string | readonly string[]][] =>
    value === undefined || dropped.has(name) || ofConnection.has(name) ? [] : [[name, value]],
  );
}

const passedOn = (headers: Headers): Record<string, string> =>
  Object.fromEntries(without(headers, notPassedOn).map(([name, value]) => [name, [value].flat().join(', ')]));

function passedBack({ headers }: OutboundStream): Record<string, string | string[]> {
  const kept = without(headers, notPassedBack).map(([name, value]) => [
    name,
    typeof value === 'string' ? value : [...value],
  ]);
  const back = Object.fromEntries(kept) as Record<string, string | string[]>;
  if (isDecoded(headers)) {
    delete back['content-encoding'];
    delete back['content-length'];
  }
  return back;
}
