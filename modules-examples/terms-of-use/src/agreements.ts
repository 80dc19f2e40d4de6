import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { ModuleApi } from '@rookery/module-api';

/** That somebody agreed. */
export interface Agreement {
  readonly user_id: string;
  readonly version: string;
  readonly ts: number;
  readonly ip: string | null;
}

const prefix = 'agreed/';
/** User ids can be longer than keys may be. */
const keyOf = (userId: string): string => prefix + createHash('sha256').update(userId).digest('hex');

/** Who has agreed to what, and the links with which they do. */
export class Agreements {
  readonly #version: (userId: string) => Promise<string | undefined>;
  #key: Promise<string> | undefined;

  constructor(private readonly api: ModuleApi) {
    // Asked for every message.
    this.#version = api.registerCachedFunction('version', (userId) => this.#load(userId), { maxEntries: 50_000 });
  }

  /** The version that somebody agreed to last. */
  versionOf(userId: string): Promise<string | undefined> {
    return this.#version(userId);
  }

  async #load(userId: string): Promise<string | undefined> {
    return ((await this.api.store.get(keyOf(userId))) as Agreement | undefined)?.version;
  }

  async agree(userId: string, version: string, ip: string | undefined): Promise<void> {
    const agreement: Agreement = { user_id: userId, version, ts: this.api.getCurrentTimeMsec(), ip: ip ?? null };
    await this.api.store.put(keyOf(userId), agreement);
    await this.api.invalidateCache('version', userId);
  }

  /** Some agreements, in an order that stays; where the next ones begin. */
  async list(after: string | undefined, limit: number): Promise<{ agreements: Agreement[]; next: string | undefined }> {
    const found = await this.api.store.list({
      prefix,
      limit,
      ...(after === undefined ? {} : { after: prefix + after }),
    });
    return {
      agreements: found.map(({ value }) => value as Agreement),
      next: found.length === limit ? found.at(-1)?.key.slice(prefix.length) : undefined,
    };
  }

  /** What a link has to carry, so that nobody agrees for somebody else. */
  async proofOf(userId: string): Promise<string> {
    return createHmac('sha256', await this.#secret())
      .update(userId)
      .digest('hex');
  }

  async isProof(userId: string, proof: string): Promise<boolean> {
    const expected = Buffer.from(await this.proofOf(userId));
    const given = Buffer.from(proof);
    return given.length === expected.length && timingSafeEqual(given, expected);
  }

  /** Made once, and the same in all processes. */
  #secret(): Promise<string> {
    this.#key ??= this.api.store
      .transaction(async (tx) => {
        const known = await tx.get('secret');
        if (typeof known === 'string') return known;
        const made = randomBytes(32).toString('hex');
        await tx.put('secret', made);
        return made;
      })
      .catch((error: unknown) => {
        this.#key = undefined;
        throw error;
      });
    return this.#key;
  }
}
