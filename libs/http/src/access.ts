import { SetMetadata, createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { Requester, RequestOrigin } from '@rookery/platform';
import type { Readable } from 'node:stream';
import type { LimiterName } from './rate-limiter.js';

/** One inbound request, without the framework's types; for controllers. Services take the {@link RequestOrigin} that it is. */
export interface InboundRequest extends RequestOrigin {
  readonly query: Readonly<Record<string, string | readonly string[] | undefined>>;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  /**
   * The JSON body parsed, whatever the content type says; `undefined` when there is none. A long one comes as a promise,
   * for it is read in slices.
   * @param maxValues most values and keys; default 500,000
   * @throws MatrixError 400 `M_NOT_JSON`, 400 `M_BAD_JSON`, 413 `M_TOO_LARGE` (see `parseJsonInSlices`)
   */
  json(maxValues?: number): unknown;
  /** The body as received; `undefined` when there was none, on routes that declare `streamBody`, and on those with `lateBody` until it was read. */
  readonly rawBody?: Buffer | undefined;
  /** The body on routes that declare `streamBody`; the route counts its bytes itself. */
  readonly stream: Readable;
  /** Aborts when the client goes away, and when the server shuts down: a waiting request then answers what it has. */
  readonly signal: AbortSignal;
}

/** A request on a route that declares `lateBody`. */
export interface LateRequest extends InboundRequest {
  /** All `Authorization` headers as they came: {@link headers} has the first one only. */
  readonly authorizations: readonly string[];
  /**
   * Reads the whole body into {@link rawBody}; for guards of routes that declare `lateBody`.
   * @returns `undefined` when there is none to wait for
   * @throws MatrixError 413 `M_TOO_LARGE`, 415 `M_UNKNOWN` for codings other than gzip, 408 `M_UNKNOWN` when it takes
   *   longer than two minutes, 429 `M_LIMIT_EXCEEDED` when too many bytes of unfinished requests are held for the client
   */
  readBody(limitBytes: number): Promise<void> | undefined;
  /** The request is proven to be of that server or user: what it holds counts for them from now on. */
  vouchFor(name: string): void;
  /**
   * Waits until a large answer may be made for who sent it, as `largeAnswer` does; `undefined`: at once. For guards of routes that
   * declare `lateBody`, once they know who that is.
   * @throws MatrixError 429 `M_LIMIT_EXCEEDED` when too many of its requests wait, or this one did for too long
   */
  takeTurn(): Promise<void> | undefined;
}

/** Who may call an endpoint, and what it costs. Every route declares it. */
export interface AccessOptions {
  /** `required`: a valid access token; `optional`: one may be there; `none`: none is looked at. */
  readonly auth: 'required' | 'optional' | 'none';
  /** Whether guests may call it. Default false: 403 `M_GUEST_ACCESS_FORBIDDEN`. */
  readonly guests?: boolean;
  /** Whether locked accounts may call it (logout). Default false: 401 `M_USER_LOCKED`. */
  readonly locked?: boolean;
  /** Whether expired accounts (account validity) may call it. Default false. */
  readonly expired?: boolean;
  /** Whether suspended accounts may call it. Default true; endpoints that act on others say false: 403 `M_USER_SUSPENDED`. */
  readonly suspended?: boolean;
  /** Whether calling it is what makes a user active (sync): 403 `M_RESOURCE_LIMIT_EXCEEDED` past the monthly limit. */
  readonly active?: boolean;
  /**
   * Part of how this server authenticates users itself: 404 `M_UNRECOGNIZED` where another service does. `users`: to users alone;
   * application services, who authenticate by their own tokens, are served all the same.
   */
  readonly ownAuth?: boolean | 'users';
  /** Only server administrators: 403 `M_FORBIDDEN`. */
  readonly admin?: boolean;
  /** Largest body accepted, bytes; default 262,144 where a token is required, 65,536 elsewhere and with {@link ownAuth}. */
  readonly bodyLimitBytes?: number;
  /**
   * A limiter by the client's address that the route asks: where it has nothing left, the request is refused before its body is
   * read. Nothing is taken. Requests of application services are left to the route.
   */
  readonly limiter?: LimiterName;
  /**
   * The answer may be large: only a few of those are made at once for one client, and none while it leaves too much unread. A
   * function says of which requests that is true, where the others wait for something to happen.
   */
  readonly largeAnswer?: boolean | ((request: InboundRequest) => boolean);
  /** The body is left for another guard to read, once it knows who sends it ({@link LateRequest.readBody}). */
  readonly lateBody?: boolean;
  /**
   * Where several processes share a database: any of them may answer, since the route reads only, and what it reads from memory
   * is kept true in all of them. Default: the process that writes answers, and the others pass the request on to it.
   */
  readonly anyProcess?: boolean;
  /** The route reads {@link InboundRequest.stream} itself (uploads): nothing is buffered, no limit is applied. */
  readonly streamBody?: boolean;
}

export const accessMetadata = 'rookery:access';

/** Declares who may call a route. A route without it does not start. */
export const Access = (options: AccessOptions): MethodDecorator & ClassDecorator =>
  SetMetadata(accessMetadata, options);

/** Turns a request's token into a {@link Requester}. Implemented by `users`, used by the guard. */
export abstract class RequestAuthenticator {
  /** Whether another service authenticates users. */
  get isDelegated(): boolean {
    return false;
  }
  /** Whether a request carries the token of an application service; limits by address are not for those. */
  isOfAppservice(_request: InboundRequest): boolean {
    return false;
  }
  /**
   * @returns `undefined` only when `access.auth` is `optional` and there is no token
   * @throws MatrixError 401 `M_MISSING_TOKEN`, 401 `M_UNKNOWN_TOKEN` (with `soft_logout`), 401 `M_USER_LOCKED`,
   *   403 `M_GUEST_ACCESS_FORBIDDEN`, 403 `M_USER_SUSPENDED`, 403 `M_RESOURCE_LIMIT_EXCEEDED`, 403 `M_FORBIDDEN`
   */
  abstract authenticate(request: InboundRequest, access: AccessOptions): Promise<Requester | undefined>;
}

/** What the guard leaves on the framework's request for the parameter decorators. */
export interface GuardedRequest {
  inbound: InboundRequest;
  requester: Requester | undefined;
}

const guarded = (context: ExecutionContext): GuardedRequest => context.switchToHttp().getRequest<GuardedRequest>();

/** Injects the {@link Requester}; `undefined` on routes without a token. */
export const Who = createParamDecorator((_: unknown, context: ExecutionContext) => guarded(context).requester);

/** Injects the {@link InboundRequest}. */
export const Inbound = createParamDecorator((_: unknown, context: ExecutionContext) => guarded(context).inbound);
