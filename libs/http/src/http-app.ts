import type { INestApplication, LoggerService } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { MatrixError } from '@rookery/matrix-types';
import {
  type Clock,
  type Ids,
  type Logger,
  type Metrics,
  processTls,
  type Timer,
  type Tracer,
} from '@rookery/platform';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { RequestContexts } from './request-context.js';
import type { ProcessAddress } from './forwarding/fellow-connection.js';
import { FellowListener } from './forwarding/fellow-listener.js';
import { Forwarder, type ForwardingOptions } from './forwarding/forwarder.js';
import { HttpRootModule, type HttpRootOptions } from './http-root.module.js';
import { type BoundAddress, Listeners, type ListenerSettings, type TlsFiles } from './listeners.js';
import { MatrixFastifyAdapter } from './matrix-fastify-adapter.js';
import { createRequestHandler, type HandlerCore, type PathPrefixes, requestIds } from './request-handler.js';
import type { PageContent } from './reply.js';
import { RequestMetrics } from './request-metrics.js';
import { resourceFilter } from './resources.js';
import { WebMounts } from './web-mounts.js';

/** What the HTTP side of a server needs. */
export interface HttpAppOptions {
  readonly serverName: string;
  readonly listeners: readonly ListenerSettings[];
  readonly tls?: TlsFiles | undefined;
  /** Default `_matrix` and `_synapse`. */
  readonly prefixes?: PathPrefixes | undefined;
  /** Absent when metrics are off. */
  readonly metrics?: Metrics | undefined;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly logger: Logger;
  /** Takes a line for each request; `logger` unless told. */
  readonly accessLogger?: Logger | undefined;
  /** Absent where nothing is traced. */
  readonly tracer?: Tracer | undefined;
  /** Requests that take longer, milliseconds, are warned of. Absent: none. */
  readonly slowMs?: number | undefined;
  /** What an error of a lower layer means for a client: a database that is away. Whatever else is 500 `M_UNKNOWN`. */
  readonly explain?: ((error: unknown) => MatrixError | undefined) | undefined;
  /** What a browser shows where there is nothing; default: the error that programs get. */
  readonly notFoundPage?: (() => PageContent) | undefined;
  /** How this process and its fellows give requests to each other. Absent where it is the whole server. */
  readonly forwarding?: ForwardingOptions | undefined;
  /** Other processes of this machine listen on the same TCP ports; the system spreads connections. */
  readonly sharesPorts?: boolean | undefined;
  /** Whether the server can do its work; asked by `/health`. Default: it can. */
  readonly healthy?: (() => Promise<boolean>) | undefined;
}

/** How often bodies that do not arrive and answers that nobody reads are looked for. */
const checkMs = 5_000;

/** Nest's own words go to our log; its banners are for debugging. */
function nestLogger(logger: Logger): LoggerService {
  const text = (message: unknown): string => (message instanceof Error ? message.message : String(message));
  return {
    log: (message: unknown) => logger.debug(text(message)),
    debug: (message: unknown) => logger.debug(text(message)),
    verbose: (message: unknown) => logger.debug(text(message)),
    warn: (message: unknown) => logger.warn(text(message)),
    error: (message: unknown, ...more: unknown[]) => {
      // Why an application could not be made is told to whoever wanted it.
      if (more.at(-1) === 'ExceptionHandler') logger.debug(text(message));
      else logger.error(text(message), { stack: more[0] });
    },
    fatal: (message: unknown) => logger.error(text(message)),
  };
}

/** A Nest application on Fastify behind our listeners. */
export class HttpApp {
  readonly #store: RequestContexts;
  readonly #listeners: Listeners;
  readonly #core: HandlerCore;
  readonly #watch: Timer;
  #fellows: FellowListener | undefined;
  #draining = false;
  #onIdle: (() => void) | undefined;

  private constructor(
    /** The application, for what composes it. */
    readonly nest: INestApplication,
    adapter: MatrixFastifyAdapter,
    private readonly options: HttpAppOptions,
    private readonly forwarder: Forwarder | undefined,
    mounts: WebMounts,
  ) {
    const { clock, ids, logger, metrics } = options;
    const requestMetrics = new RequestMetrics(options.serverName, () => this.#store.open);
    const routing = adapter.getInstance().routing as (raw: IncomingMessage, response: ServerResponse) => void;
    this.#listeners = new Listeners(options.tls, logger, options.sharesPorts);
    this.#store = new RequestContexts(() => clock.monotonicMs(), options.forwarding?.told);
    this.#watch = clock.every(checkMs, () => this.#store.check());
    this.#core = {
      clock,
      logger,
      accessLogger: options.accessLogger ?? logger,
      slowMs: options.slowMs,
      tracer: options.tracer,
      prefixes: options.prefixes ?? { protocol: '_matrix', service: '_synapse' },
      requestMetrics,
      mounts,
      store: this.#store,
      newRequestId: requestIds(ids),
      route: routing,
      forwarder,
      explain: (error) => options.explain?.(error),
      answerUnknown: (context) => adapter.answerUnknown(context),
      healthy: async () => (await options.healthy?.()) ?? true,
      knows: (path) => adapter.knows(path),
      draining: () => this.#draining,
      metricsText: () =>
        metrics?.render().then(({ contentType, body }) => ({ contentType, text: body + requestMetrics.expose() })),
      onFinished: () => {
        if (this.#store.open.size === 0) this.#onIdle?.();
      },
    };
  }

  /**
   * Builds the module graph and its routes. Nothing listens yet.
   * @throws Error when a route declares no `@Access`, or a provider is missing
   */
  static async create(application: HttpRootOptions['application'], options: HttpAppOptions): Promise<HttpApp> {
    const { forwarding, clock, logger } = options;
    const forwarder = forwarding?.writer && new Forwarder(forwarding.writer, forwarding.secret, clock, logger);
    const adapter = new MatrixFastifyAdapter(
      (_context, error) => {
        options.logger.error('A request failed', { err: error });
        return options.explain?.(error);
      },
      options.notFoundPage,
      forwarder,
    );
    const mounts = new WebMounts();
    const root = HttpRootModule.around({ application, adapter, forwarding, mounts, logger });
    const nest = await NestFactory.create(root, adapter, {
      bodyParser: false,
      abortOnError: false,
      bufferLogs: false,
      logger: nestLogger(options.logger),
    });
    await nest.init();
    await adapter.getInstance().ready();
    return new HttpApp(nest, adapter, options, forwarder, mounts);
  }

  /** Opens every listener of the settings. @throws ListenError; what was opened is closed again */
  async listen(): Promise<readonly BoundAddress[]> {
    try {
      for (const listener of this.options.listeners) {
        const resources = listener.resources ?? [];
        const handler = createRequestHandler(this.#core, {
          xForwarded: listener.xForwarded ?? listener.path !== undefined,
          compress: resources.some(({ compress }) => compress === true),
          requestIdHeader: listener.requestIdHeader?.toLowerCase(),
          metricsOnly: listener.type === 'metrics',
          serves: resourceFilter(
            resources.flatMap(({ names }) => names),
            listener.extraPaths,
          ),
        });
        await this.#listeners.open(listener, handler);
      }
      await this.#listenForFellows();
    } catch (error) {
      this.#listeners.destroy();
      this.#fellows?.destroy();
      throw error;
    }
    return this.addresses;
  }

  /** Opens what other processes of the server give their requests to. */
  async #listenForFellows(): Promise<void> {
    const { listen, secret } = this.options.forwarding ?? {};
    if (listen === undefined || secret === undefined) return;
    const plan = {
      xForwarded: 'fellow' as const,
      compress: false,
      requestIdHeader: 'x-request-id',
      metricsOnly: false,
    };
    const handler = createRequestHandler(this.#core, { ...plan, serves: () => true });
    const tls = listen.tls === true ? processTls(secret).server : undefined;
    this.#fellows = await FellowListener.open(listen, secret, tls, handler, this.options.logger);
  }

  /** Where other processes of the server reach this one. */
  get fellowsAddress(): ProcessAddress | undefined {
    return this.#fellows?.address;
  }

  /** Gives up what was passed on to a process that writes no more: what only read is asked again of the next one. */
  leaveWriter(): void {
    this.forwarder?.close();
  }

  /** Where the listeners ended up. */
  get addresses(): readonly BoundAddress[] {
    return this.#listeners.addresses;
  }

  /** Reads the TLS certificate again. */
  reloadTls(): void {
    this.#listeners.reloadTls();
  }

  /**
   * Accepts nothing new, ends waiting requests with what they have, and lets the others finish.
   * @param limitMs after which connections are cut
   * @returns whether every request was answered
   */
  async drain(limitMs: number): Promise<boolean> {
    this.#draining = true;
    this.#listeners.stopAccepting();
    this.#fellows?.stopAccepting();
    this.forwarder?.stopWaiting();
    for (const context of this.#store.open) context.response.shouldKeepAlive = false;
    for (const context of this.#store.waiting) context.abort();
    if (this.#store.open.size > 0) {
      const limit = new AbortController();
      const idle = new Promise<void>((resolve) => (this.#onIdle = resolve));
      await Promise.race([idle, this.options.clock.sleep(limitMs, limit.signal)]);
      limit.abort();
    }
    const complete = this.#store.open.size === 0;
    this.#watch.cancel();
    this.#listeners.destroy();
    this.#fellows?.destroy();
    this.forwarder?.close();
    return complete;
  }

  /** Drains, then closes the module graph. */
  async close(limitMs = 5_000): Promise<void> {
    await this.drain(limitMs);
    await this.nest.close();
  }
}
