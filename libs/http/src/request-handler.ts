import { MatrixError } from '@rookery/matrix-types';
import { type Clock, type Ids, LogContext, type Logger, type Tracer } from '@rookery/platform';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { RequestContext, type RequestContexts, type ListenerTraits } from './request-context.js';
import type { Forwarder } from './forwarding/forwarder.js';
import { HttpReply } from './reply.js';
import type { RequestMetrics } from './request-metrics.js';
import { respond, respondError } from './respond.js';
import type { WebMounts } from './web-mounts.js';

/** Longest request target, characters. The parser's limit on all headers together is higher. */
export const maxUrlLength = 16_384;
/** Largest number of query parameters. */
const maxQueryParameters = 100;

/** The prefixes of paths, without slashes. */
export interface PathPrefixes {
  /** In place of `_matrix`. */
  readonly protocol: string;
  /** In place of `_synapse`. */
  readonly service: string;
}

/** How one listener treats its requests. */
export interface HandlerPlan extends ListenerTraits {
  /** Header whose value becomes the request's id; lower case. */
  readonly requestIdHeader: string | undefined;
  /** Which paths are served here, written with the standard prefixes. */
  readonly serves: (path: string) => boolean;
  /** Every path answers with metrics: a listener of that type. */
  readonly metricsOnly: boolean;
}

/** What all listeners of an app share. */
export interface HandlerCore {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Takes a line for each request. */
  readonly accessLogger: Logger;
  /** Requests that take longer are warned of. */
  readonly slowMs: number | undefined;
  /** Absent where nothing is traced. */
  readonly tracer: Tracer | undefined;
  readonly prefixes: PathPrefixes;
  readonly requestMetrics: RequestMetrics;
  readonly mounts: WebMounts;
  readonly store: RequestContexts;
  readonly newRequestId: () => string;
  /** The framework's entry. */
  readonly route: (raw: IncomingMessage, response: ServerResponse) => void;
  /** The way to the process that writes; absent in that one. */
  readonly forwarder?: Forwarder | undefined;
  /** Metrics as text; `undefined` when they are switched off. */
  readonly metricsText: () => Promise<{ text: string; contentType: string }> | undefined;
  /** Whether there is a route for a path, whatever the method. */
  readonly knows: (path: string) => boolean;
  /** Answers where there is nothing. */
  readonly answerUnknown: (context: RequestContext) => void;
  /** Whether the server can do its work. */
  readonly healthy: () => Promise<boolean>;
  /** What an error means that is not the client's doing; `undefined`: nothing that could be told. */
  readonly explain: (error: unknown) => MatrixError | undefined;
  readonly draining: () => boolean;
  /** Told after each request. */
  readonly onFinished: () => void;
}

/** Ids of this process: a random start, then a counter. */
export function requestIds(ids: Ids): () => string {
  const start = ids.letters(4);
  let count = 0;
  return () => `${start}-${(++count).toString(36)}`;
}

/**
 * Turns a request target into a path with the standard prefixes.
 * @returns the target, or what is wrong with it
 */
export function normalizeTarget(target: string, prefixes: PathPrefixes): string | MatrixError {
  if (target.length > maxUrlLength) return MatrixError.urlTooLong();
  let url = target;
  if (url.charCodeAt(0) !== 0x2f) url = url.replace(/^https?:\/\/[^/?#]*/i, '') || '/';
  if (url.charCodeAt(0) !== 0x2f) return MatrixError.invalidParam('The URL is not valid');
  if (url.includes('%')) {
    if (url.includes('%00')) return MatrixError.invalidParam('The URL holds a zero byte');
    try {
      decodeURIComponent(url);
    } catch {
      return MatrixError.invalidParam('The URL is not percent-encoded UTF-8');
    }
  }
  const query = url.indexOf('?');
  if (query >= 0) {
    let parameters = 1;
    for (let i = query + 1; i < url.length; i++) if (url.charCodeAt(i) === 0x26) parameters++;
    if (parameters > maxQueryParameters) return MatrixError.invalidParam('Too many query parameters');
  }
  if (prefixes.protocol === '_matrix' && prefixes.service === '_synapse') return withoutAliases(url);
  for (const [standard, own] of [
    ['/_matrix/', `/${prefixes.protocol}/`],
    ['/_synapse/', `/${prefixes.service}/`],
  ] as const) {
    if (url.startsWith(own)) return withoutAliases(standard + url.slice(own.length));
    if (url.startsWith(standard)) return MatrixError.unrecognized();
  }
  return url;
}

const firstReleases = '/_matrix/client/r0/';

/** What the first releases of the client API had is the same under `v3`; each path is one route. */
const withoutAliases = (url: string): string =>
  url.startsWith(firstReleases) ? `/_matrix/client/v3/${url.slice(firstReleases.length)}` : url;

const formerPrefix = /^\/_matrix\/client\/(?:unstable|api\/v1)\//;

/**
 * What has no route of its own under the prefixes of experiments and of the time before the first release is the same as
 * under `v3`, where that has one: old bots use them.
 */
function withoutFormerPrefix(url: string, knows: (path: string) => boolean): string {
  const prefix = formerPrefix.exec(url)?.[0];
  if (prefix === undefined) return url;
  const [path = ''] = url.split('?', 1);
  const rest = url.slice(prefix.length);
  // The administrators' API was here once; it is not anymore.
  if (knows(path) || rest.startsWith('admin/')) return url;
  const stable = `/_matrix/client/v3/${rest}`;
  return knows(stable.split('?', 1)[0]!) ? stable : url;
}

/** What is wrong with the frame of a request, where different readers of the same bytes may see different requests. */
function frameProblem({ httpVersionMajor, rawHeaders }: IncomingMessage): MatrixError | undefined {
  if (httpVersionMajor !== 1) return MatrixError.badRequest('The request line names no version of HTTP/1');
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2)
    if (rawHeaders[i]!.length === 4 && rawHeaders[i]!.toLowerCase() === 'host') hosts++;
  return hosts > 1 ? MatrixError.badRequest('The request has more than one Host header') : undefined;
}

/** The function a listener's server calls for each request. */
export function createRequestHandler(core: HandlerCore, plan: HandlerPlan): RequestListener {
  const unexpected = (error: unknown): MatrixError | undefined => {
    core.logger.error('A request failed', { err: error });
    return core.explain(error);
  };

  async function serveMetrics(context: RequestContext): Promise<void> {
    context.servlet = 'metrics';
    const metrics = await core.metricsText();
    if (metrics === undefined) return respondError(context, MatrixError.unrecognized(), unexpected);
    respond(
      context,
      new HttpReply(200, { 'content-type': metrics.contentType, 'cache-control': 'no-store' }, metrics.text),
    );
  }

  function serve(context: RequestContext, refusal: MatrixError | undefined): void {
    const { method, raw } = context;
    if (refusal !== undefined) return respondError(context, refusal, unexpected);
    if (method === 'OPTIONS')
      return respond(context, new HttpReply(204, { 'access-control-max-age': '86400' }, undefined));
    const { path } = context;
    const reads = method === 'GET' || method === 'HEAD';
    if (path === '/health' && reads) {
      context.servlet = 'health';
      core.healthy().then(
        (isHealthy) =>
          respond(
            context,
            new HttpReply(
              isHealthy ? 200 : 503,
              { 'content-type': 'text/plain; charset=utf-8', 'cache-control': 'no-store' },
              isHealthy ? 'OK' : 'The database is away',
            ),
          ),
        (error: unknown) => respondError(context, error, unexpected),
      );
      return;
    }
    if (reads && (plan.metricsOnly || (path === '/_synapse/metrics' && plan.serves(path)))) {
      serveMetrics(context).catch((error: unknown) => respondError(context, error, unexpected));
      return;
    }
    const mount = core.mounts.find(path);
    if (mount !== undefined && !plan.metricsOnly) {
      context.servlet = `web:${mount.path}`;
      if (core.forwarder !== undefined) return core.forwarder.forward(context);
      mount.serve(context).catch((error: unknown) => respondError(context, error, unexpected));
      return;
    }
    if (!plan.serves(path)) return core.answerUnknown(context);
    // Answered like GET, without the body: routes of its own would be as many again.
    if (method === 'HEAD') raw.method = 'GET';
    core.route(raw, context.response);
  }

  function finish(context: RequestContext): void {
    core.store.open.delete(context);
    context.finished();
    const { response, method, servlet } = context;
    const elapsedMs = core.clock.monotonicMs() - context.startedMs;
    const { sentBytes, cost } = context;
    core.requestMetrics.record(method, servlet ?? 'unrecognized', response.statusCode, elapsedMs, sentBytes, cost);
    const level = servlet === 'health' || servlet === 'metrics' ? 'debug' : 'info';
    if (core.accessLogger.isEnabled(level)) logFinished(context, level, elapsedMs);
    if (core.slowMs !== undefined) logSlow(context, elapsedMs, core.slowMs);
    context.trace?.end(
      ...([`${method} ${servlet ?? 'unrecognized'}`, 'server', elapsedMs] as const),
      {
        'http.request.method': method,
        'http.response.status_code': response.statusCode,
        request_id: context.requestId,
      },
      response.statusCode >= 500,
      core.tracer?.isForced(context.userId),
    );
    core.onFinished();
  }

  /** What a client waits for on purpose does not count. */
  function logSlow(context: RequestContext, elapsedMs: number, slowMs: number): void {
    const asked = context.query['timeout'];
    const waitedMs = typeof asked === 'string' && /^\d{1,9}$/.test(asked) ? Number(asked) : 0;
    if (elapsedMs - waitedMs < slowMs) return;
    const { waitMs, durationMs, transactions, modulesMs = 0, serversMs = 0 } = context.cost;
    const whole = (ms: number): number => Math.round(ms);
    core.logger.warn('A request was slow', {
      ...{ method: context.method, path: context.path.slice(0, 500), route: context.servlet, ms: whole(elapsedMs) },
      ...{ queueMs: whole(waitMs), databaseMs: whole(durationMs), transactions },
      ...{ modulesMs: whole(modulesMs), serversMs: whole(serversMs) },
    });
  }

  function logFinished(context: RequestContext, level: 'debug' | 'info', elapsedMs: number): void {
    const { response, method, servlet } = context;
    const complete = response.writableFinished;
    core.accessLogger[level](complete ? 'Answered' : 'Client went away', {
      method,
      path: context.path.slice(0, 500),
      route: servlet,
      status: complete ? response.statusCode : undefined,
      ms: Math.round(elapsedMs * 10) / 10,
      user: context.userId,
      ip: context.ip,
    });
  }

  return (raw, response) => {
    const own = plan.requestIdHeader === undefined ? undefined : raw.headers[plan.requestIdHeader];
    const requestId = typeof own === 'string' && /^[\w.:/=+-]{1,128}$/.test(own) ? own : core.newRequestId();
    // A fellow process has normalised it.
    const named = plan.xForwarded === 'fellow' ? (raw.url ?? '/') : normalizeTarget(raw.url ?? '/', core.prefixes);
    const target = typeof named === 'string' ? withoutFormerPrefix(named, core.knows) : named;
    const url = typeof target === 'string' ? target : (raw.url ?? '/').slice(0, 500);
    if (typeof target === 'string') raw.url = target;
    const context = new RequestContext(requestId, url, raw, response, plan, core.clock.monotonicMs(), core.store);
    core.store.open.add(context);
    response.once('close', () => finish(context));
    const begin = (): void => {
      // The client may have gone before its turn came.
      if (response.destroyed) return;
      if (core.draining()) response.shouldKeepAlive = false;
      // Whoever watches the server comes past the proxy.
      if (plan.xForwarded === true && context.headers['x-forwarded-proto'] === undefined && context.path !== '/health')
        core.logger.warn('The proxy sent no X-Forwarded-Proto header; set it to https or http');
      try {
        serve(context, frameProblem(raw) ?? (typeof target === 'string' ? undefined : target));
      } catch (error) {
        respondError(context, error, unexpected);
      }
    };
    context.trace = core.tracer?.begin();
    core.store.arrivals.add(() => LogContext.run({ requestId }, begin, context.cost, context.trace));
  };
}
