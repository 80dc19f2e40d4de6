import type { Socket } from 'node:net';
import { MatrixError } from '@rookery/matrix-types';

/** A call from one process to another, by name. Requests and responses are JSON. */
export interface RpcMethod<Request, Response> {
  /** snake_case, unique. */
  readonly name: string;
  /** How long a call may take, milliseconds; as calls do unless told. For what is better done without than waited for. */
  readonly timeoutMs?: number | undefined;
  /** Only for the compiler. */
  readonly types?: (request: Request) => Response;
}

/** Declares a call; the lib that answers it exports it. */
export function defineRpc<Request, Response>(
  name: string,
  options: { readonly timeoutMs?: number } = {},
): RpcMethod<Request, Response> {
  return Object.freeze({ name, ...options });
}

/** What a process says that was asked for a connection: the connection, or why there is none, as JSON. */
export type Opening<Refusal> = { readonly connection: Socket } | { readonly refusal: Refusal };

/**
 * Told, for metrics, that a call to another process begins. What it gives is told how that ended: 200, the status of what the handler
 * threw, 503 where it could not be asked. Both must be quick.
 */
export type CallWatcher = (method: string) => (status: number) => void;

/** Name of a process by its number, for {@link Rpc.call}: good for as long as the process lives, whichever place it takes. */
export const instanceOf = (processNumber: number): string => `#${processNumber}`;

/** Calls the process that can do what this one cannot. */
export abstract class Rpc {
  /** Number of this process, which no other ever has; `undefined` where there is no other. */
  get processNumber(): number | undefined {
    return undefined;
  }
  #watcher: CallWatcher | undefined;

  /** Tells of calls to other processes from now on, in place of who was told before. */
  watch(watcher: CallWatcher): void {
    this.#watcher = watcher;
  }

  /** Makes a call to another process, and tells who watches. */
  protected async watched<Response>(method: string, call: () => Promise<Response>): Promise<Response> {
    const ended = this.#watcher?.(method);
    let status = 500;
    try {
      const answer = await call();
      status = 200;
      return answer;
    } catch (error) {
      if (MatrixError.is(error)) status = error.status;
      throw error;
    } finally {
      ended?.(status);
    }
  }

  /** Answers a method in this process. @throws when it is answered already */
  abstract handle<Request, Response>(
    method: RpcMethod<Request, Response>,
    handler: (request: Request) => Promise<Response>,
  ): void;
  /**
   * Rejects as the handler did: a MatrixError arrives as one.
   * @param instance name of the process to ask; this one unless told
   */
  abstract call<Request, Response>(
    method: RpcMethod<Request, Response>,
    request: Request,
    instance?: string,
  ): Promise<Response>;
  /**
   * Calls every other process. Resolves once each has answered, whatever it did, or has lost the right to answer clients; at the
   * latest after some seconds. Never rejects. Costs nothing where there is no other.
   * @returns the answers of those that gave one, by the name of the process
   */
  abstract callOthers<Request, Response>(
    method: RpcMethod<Request, Response>,
    request: Request,
  ): Promise<ReadonlyMap<string, Response>>;
  /**
   * Answers a method with a connection that this process opened; what is said by it goes between the process that asked and whoever is at
   * its other end. Where there is no other process, nobody asks.
   * @param handler its signal aborts when nobody waits for the connection any more
   * @throws when it is answered already
   */
  handleOpening<Request, Refusal>(
    _method: RpcMethod<Request, Refusal>,
    _handler: (request: Request, signal: AbortSignal) => Promise<Opening<Refusal>>,
  ): void {}
  /**
   * Asks a process for a connection, which the caller ends. Rejects where that process could not be asked, in which case nothing was said to
   * anybody else; and as the handler did.
   */
  open<Request, Refusal>(
    _method: RpcMethod<Request, Refusal>,
    _request: Request,
    instance: string,
    _signal: AbortSignal,
  ): Promise<Opening<Refusal>> {
    return Promise.reject(new Error(`There is no process ${instance} that could be asked for a connection`));
  }
}

/** Calls within a server that is a single process: every instance is this one. */
export class InProcessRpc extends Rpc {
  readonly #handlers = new Map<string, (request: never) => Promise<unknown>>();

  handle<Request, Response>(
    method: RpcMethod<Request, Response>,
    handler: (request: Request) => Promise<Response>,
  ): void {
    if (this.#handlers.has(method.name)) throw new Error(`The call ${method.name} is answered already`);
    this.#handlers.set(method.name, handler);
  }

  async call<Request, Response>(method: RpcMethod<Request, Response>, request: Request): Promise<Response> {
    const handler = this.#handlers.get(method.name) as ((request: Request) => Promise<Response>) | undefined;
    if (!handler) throw new Error(`Nobody answers the call ${method.name}`);
    return handler(request);
  }

  callOthers<_Request, Response>(): Promise<ReadonlyMap<string, Response>> {
    return Promise.resolve(new Map<string, Response>());
  }
}
