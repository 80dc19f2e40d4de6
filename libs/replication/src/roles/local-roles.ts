import { eachLimit } from '@rookery/platform';
import type { Rpc, RpcMethod } from '../rpc/rpc.js';
import { type Role, Roles, type RoleWork } from './roles.js';

/** The roles of a server that is a single process: it has them all. */
export class LocalRoles extends Roles {
  readonly #rpc: Rpc;
  readonly #works: { readonly role: Role; readonly work: RoleWork }[] = [];
  #hasStarted = false;

  constructor(
    rpc: Rpc,
    readonly instance = 'main',
  ) {
    super();
    this.#rpc = rpc;
  }

  take(role: Role, work: RoleWork = {}): void {
    if (this.#hasStarted) throw new Error(`The role ${role.name} was taken too late`);
    this.#works.push({ role, work });
  }

  holds(): boolean {
    return true;
  }

  holdsAny(): boolean {
    return true;
  }

  holderOf(): string {
    return this.instance;
  }

  refresh(): Promise<void> {
    return Promise.resolve();
  }

  ask<Request, Response>(
    _role: Role,
    _shard: number,
    method: RpcMethod<Request, Response>,
    request: Request,
  ): Promise<Response> {
    return this.#rpc.call(method, request);
  }

  async start(): Promise<void> {
    this.#hasStarted = true;
    for (const { role, work } of this.#works)
      for (let shard = 0; shard < role.shards; shard++) await work.start?.(shard);
  }

  async stop(): Promise<void> {
    if (!this.#hasStarted) return;
    for (const { role, work } of this.#works.splice(0).reverse())
      await eachLimit(Array(role.shards).keys(), role.shards, async (shard) => work.stop?.(shard));
  }
}
