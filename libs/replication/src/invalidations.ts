import { defineRpc, type Rpc } from './rpc/rpc.js';

/** What is remembered of what the database says, and ceases to be true when another process writes. */
export interface Forgetful {
  /** Forgets what is remembered of these keys, in the order and spelling of whoever sends them. Must be quick. */
  forget(keys: readonly string[]): void;
  /** Forgets everything: news may have been missed. */
  forgetAll(): void;
}

interface Stale {
  readonly cache: string;
  readonly keys: readonly string[];
}

const forget = defineRpc<Stale, void>('forget');

/** Makes other processes forget what is true no more. Costs nothing where there is no other. */
export class Invalidations {
  readonly #rpc: Rpc;
  readonly #caches = new Map<string, Forgetful>();

  constructor(rpc: Rpc) {
    this.#rpc = rpc;
    rpc.handle(forget, async ({ cache, keys }) => this.#caches.get(cache)?.forget(keys));
  }

  /** Listens for a cache, by its name. @throws Error when somebody does already */
  on(cache: string, forgetful: Forgetful): void {
    if (this.#caches.has(cache)) throw new Error(`There are two caches ${cache}`);
    this.#caches.set(cache, forgetful);
  }

  /**
   * Call it after the commit, once this process has forgotten. Resolves when every other process has, or cannot answer clients
   * any more: what follows is true everywhere. Never rejects.
   */
  async send(cache: string, keys: readonly string[]): Promise<void> {
    await this.#rpc.callOthers(forget, { cache, keys });
  }

  /** News may have been missed: forgets everything here. */
  forgetAll(): void {
    for (const cache of this.#caches.values()) cache.forgetAll();
  }
}
