import type { CanActivate, ExecutionContext } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { OnlyAtWriterError } from '@rookery/platform';
import type { IncomingMessage } from 'node:http';
import {
  type AccessOptions,
  accessMetadata,
  type GuardedRequest,
  type InboundRequest,
  type RequestAuthenticator,
} from './access.js';
import type { ForwardingOptions } from './forwarding/forwarder.js';
import { RequestContext, smallBodyBytes, userBodyBytes } from './request-context.js';
import type { RateLimiter } from './rate-limiter.js';

type Handler = ReturnType<ExecutionContext['getHandler']>;
type Controller = ReturnType<ExecutionContext['getClass']>;
type FrameworkRequest = GuardedRequest & { readonly raw: IncomingMessage; readonly query: InboundRequest['query'] };

interface Endpoint {
  readonly access: AccessOptions;
  readonly servlet: string;
  /** Thrown where this process may not answer. */
  readonly elsewhere: RouteElsewhereError;
}

/** A route that this process may not answer, whatever is asked. */
export class RouteElsewhereError extends OnlyAtWriterError {
  /** @param servlet its name in logs and metrics */
  constructor(readonly servlet: string) {
    super(servlet);
  }
}

/** What a route declared with `@Access`, on the method or on its class. */
export function accessOf(handler: object, controller: object): AccessOptions | undefined {
  return (Reflect.getMetadata(accessMetadata, handler) ?? Reflect.getMetadata(accessMetadata, controller)) as
    AccessOptions | undefined;
}

/**
 * The guard before every route: checks the token first, and reads the body only for those who may send one. Routes for other
 * servers have that of `federation` besides, which checks the signature.
 */
export class AccessGuard implements CanActivate {
  readonly #endpoints = new WeakMap<Controller, WeakMap<Handler, Endpoint>>();

  /**
   * @param authenticator absent on a process that serves no route with a token
   * @param limiter absent where no route names one
   * @param forwarding absent where this process is the whole server
   */
  constructor(
    private readonly authenticator: RequestAuthenticator | undefined,
    private readonly limiter?: RateLimiter,
    private readonly forwarding?: ForwardingOptions,
  ) {}

  async canActivate(execution: ExecutionContext): Promise<true> {
    const request = execution.switchToHttp().getRequest<FrameworkRequest>();
    const { access, servlet, elsewhere } = this.#endpointOf(execution.getClass(), execution.getHandler());
    const context = RequestContext.of(request.raw);
    context.servlet = servlet;
    context.query = request.query;
    request.inbound = context;
    if (access.anyProcess) {
      const hearing = this.forwarding?.heard?.();
      if (hearing !== undefined) await hearing;
    } else if (this.forwarding?.writer !== undefined) throw elsewhere;
    if (access.ownAuth && this.authenticator?.isDelegated) {
      const serves = access.ownAuth === 'users' && this.authenticator.isOfAppservice(context);
      if (!serves) throw MatrixError.unrecognized();
    }
    if (access.auth !== 'none') {
      if (this.authenticator === undefined) throw new Error('No RequestAuthenticator is provided');
      const requester = await this.authenticator.authenticate(context, access);
      if (requester === undefined && access.auth === 'required') throw MatrixError.missingToken();
      request.requester = requester;
      if (requester !== undefined) {
        context.userId = requester.userId;
        context.vouchFor(requester.userId);
      }
    }
    if (access.limiter !== undefined && context.hasBody) await this.#assertLeft(access.limiter, context);
    if (!access.streamBody && !access.lateBody) {
      const reading = context.readBody(
        access.bodyLimitBytes ?? (access.auth === 'required' && !access.ownAuth ? userBodyBytes : smallBodyBytes),
      );
      if (reading !== undefined) await reading;
    }
    const { largeAnswer: large } = access;
    if (large === true || (large !== undefined && large !== false && large(context))) {
      const waiting = context.takeTurn();
      if (waiting !== undefined) await waiting;
    }
    return true;
  }

  /** @throws MatrixError 429 `M_LIMIT_EXCEEDED` where the route would throw it once it has the body */
  async #assertLeft(name: string, context: RequestContext): Promise<void> {
    const { authenticator, limiter } = this;
    if (limiter === undefined) throw new Error('No RateLimiter is provided');
    if (authenticator?.isOfAppservice(context) || (await limiter.mayTake(name, context.ip))) return;
    await limiter.take(name, context.ip);
  }

  #endpointOf(controller: Controller, handler: Handler): Endpoint {
    let handlers = this.#endpoints.get(controller);
    if (handlers === undefined) this.#endpoints.set(controller, (handlers = new WeakMap()));
    let endpoint = handlers.get(handler);
    if (endpoint === undefined) {
      const access = accessOf(handler, controller);
      if (access === undefined) throw new Error(`${controller.name}.${handler.name} declares no @Access`);
      const servlet = `${controller.name.replace(/Controller$/, '')}.${handler.name}`;
      handlers.set(handler, (endpoint = { access, servlet, elsewhere: new RouteElsewhereError(servlet) }));
    }
    return endpoint;
  }
}
