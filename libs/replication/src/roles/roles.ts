import { crc32 } from 'node:zlib';
import type { RpcMethod } from '../rpc/rpc.js';

/** A duty that one process has at a time; one of several shards is split among processes, a shard each or more. */
export interface Role {
  /** snake_case, unique in a server: `rooms`, `typing`, `pusher`. */
  readonly name: string;
  readonly shards: number;
}

/** What a process does with a role. */
export interface RoleWork {
  /** This process has the shard from now on: the work begins. A rejection gives it back. */
  start?(shard: number): Promise<void> | void;
  /**
   * This process is to give the shard up: what is under way ends, and nothing new begins ({@link Roles.holds} denies it already).
   * Another process begins once this has resolved. Shards that are given up together are so at the same time. Called as well where {@link start} was rejected, or had not come to its turn. Not called where the
   * process has lost the right to write: it ends then.
   */
  stop?(shard: number): Promise<void> | void;
}

/** Declares a duty; the lib whose work it is exports it. */
export function defineRole(name: string, shards = 1): Role {
  return Object.freeze({ name, shards });
}

/** The shard that a key belongs to: the same in every process and every version. */
export function shardOf(role: Role, key: string): number {
  return role.shards === 1 ? 0 : crc32(key) % role.shards;
}

/**
 * Which process has which duty. A server that is a single process has all of them, at once and for good; among several, each
 * role is held by a lease, and a process that dies, hangs or is cut off loses all of its own within ten seconds.
 */
export abstract class Roles {
  /** Name of this process. */
  abstract readonly instance: string;
  /**
   * Says that this process can take the role. It begins to take some once the server listens; a server that is a single process
   * begins with all when it has its streams open. A role can be of several parts: they begin in this order and end in reverse.
   */
  abstract take(role: Role, work?: RoleWork): void;
  /**
   * Whether this process has the shard now. Costs nothing; ask it before whatever leaves the server (a push, a request), since
   * only the database refuses by itself what comes from a process that has lost its leases.
   */
  abstract holds(role: Role, shard?: number): boolean;
  /** Whether this process has any shard of a role, by its name. */
  abstract holdsAny(roleName: string): boolean;
  /** Name of the process that has the shard as far as this one knows; `undefined` between two holders. */
  abstract holderOf(role: Role, shard?: number): string | undefined;
  /** Learns anew who has what, where others may have taken something since. Never rejects. */
  abstract refresh(): Promise<void>;
  /**
   * Calls the process that has the shard, which may be this one; where it has just moved, the one that has it then. Rejects as the
   * handler did. The handler has to be given to {@link Rpc.handle} in every process that can take the role.
   * @throws MatrixError 503 when nobody has taken it in time
   */
  abstract ask<Request, Response>(
    role: Role,
    shard: number,
    method: RpcMethod<Request, Response>,
    request: Request,
  ): Promise<Response>;
  /** Begins; what is taken later is refused. */
  abstract start(): Promise<void>;
  /** Gives everything up, in order. Never rejects. */
  abstract stop(): Promise<void>;
}
