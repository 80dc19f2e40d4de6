import { createHash, randomBytes } from 'node:crypto';
import type { DocumentStore, ModuleApi } from '@rookery/module-api';

/** What is stored of an account. */
export interface Account {
  readonly userId: string;
  readonly expiresAtMs: number;
  /** The token of the mail that was sent for this period. */
  readonly token?: string;
}

const digest = (text: string): string => createHash('sha256').update(text).digest('hex');
const accounts = 'account/';
const keyOf = (userId: string): string => accounts + digest(userId);
/** Tokens are stored as digests: who reads the database cannot renew accounts. */
const tokenKeyOf = (token: string): string => `token/${digest(token)}`;

/** When accounts run out. */
export class Accounts {
  readonly #expiry: (userId: string) => Promise<number>;

  constructor(
    private readonly api: ModuleApi,
    private readonly periodMs: number,
  ) {
    // Asked for every request: remembered for a minute, and forgotten in all processes when it changes.
    this.#expiry = api.registerCachedFunction('expiry', (userId) => this.#load(userId), {
      maxEntries: 10_000,
      ttlMs: 60_000,
    });
  }

  /** Milliseconds since the epoch; never, for administrators. An account that is seen for the first time begins now. */
  expiryOf(userId: string): Promise<number> {
    return this.#expiry(userId);
  }

  async #load(userId: string): Promise<number> {
    if (await this.api.isUserAdmin(userId)) return Infinity;
    const known = (await this.api.store.get(keyOf(userId))) as Account | undefined;
    return known?.expiresAtMs ?? this.begin(userId);
  }

  /** Begins a period; the end of it. A token of the one before is worth nothing any more. @param expiresAtMs default: after the usual time */
  async begin(userId: string, expiresAtMs = this.api.getCurrentTimeMsec() + this.periodMs): Promise<number> {
    await this.api.store.transaction(async (tx) => {
      await this.#forgetToken(tx, userId);
      await tx.put(keyOf(userId), { userId, expiresAtMs } satisfies Account);
    });
    await this.api.invalidateCache('expiry', userId);
    return expiresAtMs;
  }

  /** Begins a period for the user of a token. Whether the token was good; it is good once. */
  async renew(token: string): Promise<boolean> {
    const userId = await this.api.store.get(tokenKeyOf(token));
    if (typeof userId !== 'string') return false;
    await this.begin(userId);
    return true;
  }

  /** A new token for an account that got none in this period; `undefined` when it did. */
  async newToken(userId: string): Promise<string | undefined> {
    const token = randomBytes(32).toString('hex');
    return this.api.store.transaction(async (tx) => {
      const account = (await tx.get(keyOf(userId))) as Account | undefined;
      if (!account || account.token !== undefined) return undefined;
      await tx.put(keyOf(userId), { ...account, token: digest(token) });
      await tx.put(tokenKeyOf(token), userId);
      return token;
    });
  }

  /** Takes a token back whose mail could not be sent, so that it is tried again. */
  async withdrawToken(userId: string): Promise<void> {
    await this.api.store.transaction(async (tx) => {
      const account = (await tx.get(keyOf(userId))) as Account | undefined;
      if (!account) return;
      await this.#forgetToken(tx, userId);
      await tx.put(keyOf(userId), { userId, expiresAtMs: account.expiresAtMs } satisfies Account);
    });
  }

  /** Accounts that run out before a moment and got no mail yet. */
  async *endingBefore(momentMs: number): AsyncIterable<Account> {
    let after: string | undefined;
    do {
      const page = await this.api.store.list({ prefix: accounts, ...(after === undefined ? {} : { after }) });
      after = page.length > 0 ? page.at(-1)?.key : undefined;
      for (const { value } of page) {
        const account = value as Account;
        if (account.expiresAtMs < momentMs && account.token === undefined) yield account;
      }
    } while (after !== undefined);
  }

  async #forgetToken(tx: DocumentStore, userId: string): Promise<void> {
    const account = (await tx.get(keyOf(userId))) as Account | undefined;
    if (account?.token !== undefined) await tx.delete(`token/${account.token}`);
  }
}
