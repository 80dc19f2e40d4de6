import { type ArgumentsHost, Catch, type ExceptionFilter } from '@nestjs/common';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { MatrixError } from '@rookery/matrix-types';
import { OnlyAtWriterError } from '@rookery/platform';
import { fastify, type FastifyReply, type FastifyRequest, type RouteOptions } from 'fastify';
import FindMyWay from 'find-my-way';
import { RouteElsewhereError } from './access-guard.js';
import type { Forwarder } from './forwarding/forwarder.js';
import { RequestContext } from './request-context.js';
import { isForPeople, wantsPage } from './for-people.js';
import { HttpReply, type PageContent } from './reply.js';
import { isProxiedRoute } from './request-proxy.js';
import { respond, respondError } from './respond.js';

/** No identifier is longer than 255 bytes; percent-encoding triples that, and some paths carry keys. */
const maxPathParameterLength = 2048;

/** Told of errors that are not the client's doing; what it gives is the answer. */
export type UnexpectedErrorSink = (context: RequestContext, error: unknown) => MatrixError | undefined;

const isFrameworkError = (error: unknown): error is { code: string } =>
  typeof error === 'object' && error !== null && String((error as { code?: unknown }).code).startsWith('FST_ERR_');

/** @throws Error where a route has a schema of the framework's own */
function noSchemas(): never {
  throw new Error('Routes have no schemas for Fastify: bodies are checked by JsonBody');
}

/**
 * Fastify for Nest, with everything between route and socket ours: answers are written by {@link respond}, bodies are read by
 * the guard, unknown paths and methods get Matrix errors.
 */
export class MatrixFastifyAdapter extends FastifyAdapter {
  /** Which methods exist for a path; made when a request found no route for the first time. */
  #known: FindMyWay.Instance<FindMyWay.HTTPVersion.V1> | undefined;
  readonly #methods = new Map<string, Set<string>>();
  /** Names of routes that this process may not answer, by method and path; learned with the first request to each. */
  readonly #elsewhere = new Map<string, string>();

  constructor(
    private readonly onUnexpected: UnexpectedErrorSink,
    private readonly notFoundPage?: () => PageContent,
    private readonly forwarder?: Forwarder,
  ) {
    const instance = fastify({
      logger: false,
      // The request handler makes a GET of it.
      exposeHeadRoutes: false,
      routerOptions: { ignoreTrailingSlash: true, maxParamLength: maxPathParameterLength },
      // Two libraries, which are loaded for what is not there: bodies are checked by `JsonBody`, answers are written by `respond`.
      schemaController: { compilersFactory: { buildValidator: noSchemas, buildSerializer: noSchemas } },
      frameworkErrors: (_error: unknown, request: FastifyRequest, reply: FastifyReply) => {
        this.answerError(request, reply, MatrixError.invalidParam('The URL is not valid'));
      },
    });
    // The adapter's own request hooks serve Nest's CORS, CSRF, versions and middleware, none of which is used; they would
    // cost every request.
    const { addHook } = instance;
    instance.addHook = () => instance;
    super(instance);
    instance.addHook = addHook;
    instance.decorateRequest('inbound', undefined);
    instance.decorateRequest('requester', undefined);
    instance.addHook('onRoute', (route) => {
      // What others answer is no endpoint of the server's: errors and former prefixes are as they would be without it.
      if (isProxiedRoute(route.url)) return;
      if (forwarder !== undefined) this.#passOn(route, forwarder);
      // Routes that differ in the names of their parameters only are one path.
      let parameter = 0;
      const path = route.url.replace(/:\w+/g, () => `:p${parameter++}`);
      let known = this.#methods.get(path);
      if (known === undefined) {
        known = new Set();
        this.#methods.set(path, known);
        this.#known = undefined;
      }
      for (const method of [route.method].flat()) {
        known.add(method);
        if (method === 'GET') known.add('HEAD');
      }
    });
    instance.setErrorHandler((error, request, reply) => this.answerError(request, reply, error));
    instance.setNotFoundHandler((request, reply) => this.#answerUnknown(request, reply));
  }

  /** There is no middleware to prepare for. */
  override async init(): Promise<void> {}

  /** Nest's own handlers are not wanted: ours are in place already. */
  override setErrorHandler(): ReturnType<FastifyAdapter['setErrorHandler']> {
    return undefined as unknown as ReturnType<FastifyAdapter['setErrorHandler']>;
  }
  override setNotFoundHandler(): ReturnType<FastifyAdapter['setNotFoundHandler']> {
    return undefined as unknown as ReturnType<FastifyAdapter['setNotFoundHandler']>;
  }

  /** The status that Nest proposes is not used: a plain object is a 200, `POST` or not; all else is an `HttpReply`. */
  override reply(reply: FastifyReply, body: unknown): FastifyReply {
    reply.hijack();
    respond(RequestContext.of(reply.request.raw), body);
    return reply;
  }

  /** Answers with an error, also one of the framework. */
  answerError(request: FastifyRequest, reply: FastifyReply, error: unknown): void {
    const context = RequestContext.of(request.raw);
    reply.hijack();
    if (error instanceof OnlyAtWriterError && this.forwarder !== undefined) {
      if (error instanceof RouteElsewhereError) {
        const { method, url } = request.routeOptions;
        this.#elsewhere.set(`${String(method)} ${url}`, error.servlet);
      }
      return this.forwarder.forward(context);
    }
    respondError(context, isFrameworkError(error) ? MatrixError.badJson('The request is malformed') : error, (cause) =>
      this.onUnexpected(context, cause),
    );
  }

  /** Has requests to a route given away before the framework looks at them, once it is known that this process may not answer them. */
  #passOn(route: RouteOptions, forwarder: Forwarder): void {
    const [own, name] = [route.handler, `${String(route.method)} ${route.url}`];
    const elsewhere = this.#elsewhere;
    route.handler = function (request, reply) {
      const servlet = elsewhere.get(name);
      if (servlet === undefined) return own.call(this, request, reply);
      const context = RequestContext.of(request.raw);
      context.servlet = servlet;
      context.query = request.query as RequestContext['query'];
      reply.hijack();
      forwarder.forward(context);
    };
  }

  #everyPath(): FindMyWay.Instance<FindMyWay.HTTPVersion.V1> {
    const router = FindMyWay({ ignoreTrailingSlash: true, maxParamLength: maxPathParameterLength });
    for (const [path, methods] of this.#methods) router.on('GET', path, () => undefined, methods);
    return router;
  }

  /** Whether there is a route for a path, whatever the method. */
  knows(path: string): boolean {
    return (this.#known ??= this.#everyPath()).find('GET', path) !== null;
  }

  /** Answers where there is nothing: a page for a person who has gone astray, else an error. */
  answerUnknown(context: RequestContext): void {
    const reads = context.method === 'GET' || context.method === 'HEAD';
    if (this.notFoundPage && reads && wantsPage(context.headers) && isForPeople(context.path))
      return respond(context, HttpReply.page(404, this.notFoundPage()));
    respondError(context, MatrixError.unrecognized(), (cause) => this.onUnexpected(context, cause));
  }

  #answerUnknown(request: FastifyRequest, reply: FastifyReply): void {
    const context = RequestContext.of(request.raw);
    const found = (this.#known ??= this.#everyPath()).find('GET', context.path) as { store?: Set<string> } | null;
    reply.hijack();
    if (found?.store === undefined) return this.answerUnknown(context);
    const body = MatrixError.methodNotAllowed().toBody();
    respond(context, HttpReply.json(405, body, { allow: [...found.store, 'OPTIONS'].join(', ') }));
  }
}

/** The only exception filter: what a controller or the guard throws becomes a Matrix error body. */
@Catch()
export class MatrixErrorFilter implements ExceptionFilter {
  constructor(private readonly adapter: MatrixFastifyAdapter) {}

  catch(error: unknown, host: ArgumentsHost): void {
    const http = host.switchToHttp();
    this.adapter.answerError(http.getRequest<FastifyRequest>(), http.getResponse<FastifyReply>(), error);
  }
}
