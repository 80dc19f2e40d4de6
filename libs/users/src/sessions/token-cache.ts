import { LRUCache } from 'lru-cache';
import type { TokenOwner } from './token.query.js';

/** Entries kept: one per active session. */
const maxEntries = 20_000;
/** How long an entry is believed: bounds what another process's change may take to be seen. */
const maxAgeMs = 60_000;

interface Entry {
  readonly owner: TokenOwner;
  readonly loadedMs: number;
}

/** Who owns which token, by the token's hash, so that a request of an active session asks the database nothing. */
export class TokenCache {
  readonly #entries = new LRUCache<string, Entry>({
    max: maxEntries,
    dispose: (entry, hash) => this.#unlink(entry.owner, hash),
  });
  readonly #hashesByUser = new Map<string, Set<string>>();
  #invalidations = 0;

  get(hash: string, nowMs: number): TokenOwner | undefined {
    const entry = this.#entries.get(hash);
    return entry && nowMs - entry.loadedMs < maxAgeMs ? entry.owner : undefined;
  }

  /** Take this before reading the database; {@link set} needs it. */
  get generation(): number {
    return this.#invalidations;
  }

  /** Keeps what was read, unless something was invalidated since: the row may be older than the change. */
  set(hash: string, owner: TokenOwner, nowMs: number, generation: number): void {
    if (generation !== this.#invalidations) return;
    this.#entries.set(hash, { owner, loadedMs: nowMs });
    for (const userId of usersOf(owner)) {
      const hashes = this.#hashesByUser.get(userId);
      if (hashes) hashes.add(hash);
      else this.#hashesByUser.set(userId, new Set([hash]));
    }
  }

  /** Forgets all tokens that a user owns or is acted for with. Call it after the change is durable. */
  invalidateUser(userId: string): void {
    this.#invalidations++;
    for (const hash of [...(this.#hashesByUser.get(userId) ?? [])]) this.#entries.delete(hash);
  }

  #unlink(owner: TokenOwner, hash: string): void {
    for (const userId of usersOf(owner)) {
      const hashes = this.#hashesByUser.get(userId);
      hashes?.delete(hash);
      if (hashes?.size === 0) this.#hashesByUser.delete(userId);
    }
  }
}

const usersOf = (owner: TokenOwner): string[] =>
  owner.puppetedBy === undefined ? [owner.userId] : [owner.userId, owner.puppetedBy];
