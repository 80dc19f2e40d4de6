import { Injectable } from '@nestjs/common';
import { Cache, Config, ReadGuard } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import type { Account } from '../store/account.query.js';
import type { TokenOwner } from './token.query.js';

/** Entries kept: one per active session or user. */
const maxEntries = 20_000;
/** How long an entry is believed: bounds what another process's change may take to be seen. */
const maxAgeMs = 60_000;

interface Entry<Value> {
  readonly value: Value;
  readonly loadedMs: number;
}

/** What was read about users, until something about one of them changes. */
export class UserCache<Value extends object> {
  readonly #entries: Cache<string, Entry<Value>>;
  readonly #keysByUser = new Map<string, Set<string>>();
  /** By user. */
  readonly #guard = new ReadGuard<string>();

  /** @param usersOf the users whose changes make a value old */
  constructor(
    config: Config,
    name: string,
    private readonly usersOf: (value: Value) => readonly string[],
  ) {
    this.#entries = new Cache(config, name, {
      ...{ invalidation: 'on write', elsewhere: 'told', max: 2 * maxEntries },
      onGone: (entry, key) => this.#unlink(entry.value, key),
    });
  }

  /** What is kept, else what `load` reads, which is kept unless one of its users was forgotten meanwhile. */
  async fetch(key: string, nowMs: number, load: () => Promise<Value | undefined>): Promise<Value | undefined> {
    const entry = this.#entries.get(key);
    if (entry && nowMs - entry.loadedMs < maxAgeMs) return entry.value;
    const reading = this.#guard.begin();
    try {
      const value = await load();
      if (value !== undefined && this.usersOf(value).every((userId) => reading.isCurrent(userId)))
        this.#keep(key, value, nowMs);
      return value;
    } finally {
      reading.end();
    }
  }

  /** Forgets everything about a user. Call it after the change is durable. */
  invalidateUser(userId: string): void {
    this.#guard.changed(userId);
    for (const key of [...(this.#keysByUser.get(userId) ?? [])]) this.#entries.delete(key);
  }

  /** Forgets everything about everybody: changes may have been missed. */
  invalidateAll(): void {
    this.#guard.changedAll();
    this.#entries.clear();
  }

  #keep(key: string, value: Value, nowMs: number): void {
    this.#entries.set(key, { value, loadedMs: nowMs });
    if (!this.#entries.has(key)) return;
    for (const userId of this.usersOf(value)) {
      const keys = this.#keysByUser.get(userId);
      if (keys) keys.add(key);
      else this.#keysByUser.set(userId, new Set([key]));
    }
  }

  #unlink(value: Value, key: string): void {
    for (const userId of this.usersOf(value)) {
      const keys = this.#keysByUser.get(userId);
      keys?.delete(key);
      if (keys?.size === 0) this.#keysByUser.delete(userId);
    }
  }
}

/** Who owns which token, by the token's hash, so that a request of an active session asks the database nothing. */
export class TokenCache extends UserCache<TokenOwner> {
  constructor(config: Config) {
    super(config, 'get_user_by_access_token', (owner) =>
      owner.puppetedBy === undefined ? [owner.userId] : [owner.userId, owner.puppetedBy],
    );
  }
}

/** Accounts by user id, for requests of application services, which act as many users with one token. */
export class AccountCache extends UserCache<Account> {
  constructor(config: Config) {
    super(config, 'get_user_by_id', (account) => [account.userId]);
  }
}

/** What is remembered for the requests of sessions: who owns which token, and accounts. */
@Injectable()
export class SessionCaches {
  readonly tokens: TokenCache;
  readonly accounts: AccountCache;
  readonly #invalidations: Invalidations;

  constructor(config: Config, invalidations: Invalidations) {
    this.tokens = new TokenCache(config);
    this.accounts = new AccountCache(config);
    this.#invalidations = invalidations;
  }

  /** Calls `onForgotten` when a user was forgotten because another process has changed something; `undefined`: everybody, since it may have. */
  follow(onForgotten: (userId: string | undefined) => void): void {
    this.#invalidations.on('sessions', {
      forget: (userIds) => {
        for (const userId of userIds) {
          this.#forget(userId);
          onForgotten(userId);
        }
      },
      forgetAll: () => {
        this.tokens.invalidateAll();
        this.accounts.invalidateAll();
        onForgotten(undefined);
      },
    });
  }

  /** Forgets everything about a user, here and in other processes. Call it after the change is durable. */
  forget(userId: string): void {
    this.#forget(userId);
    this.#invalidations.send('sessions', [userId]);
  }

  #forget(userId: string): void {
    this.tokens.invalidateUser(userId);
    this.accounts.invalidateUser(userId);
  }
}
