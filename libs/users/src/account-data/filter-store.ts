import { createHash } from 'node:crypto';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError, parseSyncFilter, type SyncFilter } from '@rookery/matrix-types';
import { Cache, Config } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import { UserHooks } from '../hooks.js';
import { holdAccount } from '../store/account-hold.query.js';
import { findFilter, findFilterByHash, insertFilter, nextFilterId } from './filter.query.js';

/** Largest filter as JSON, bytes. */
const largestFilterBytes = 65_536;
/** Most filters of one user. */
const maxFilters = 1_000;
/** What a filter takes in memory besides its text twice, bytes. */
const parsedBytes = 3_000;

interface KeptFilter {
  readonly filter: JsonObject;
  readonly size: number;
  /** Once a sync needed it. */
  parsed?: SyncFilter;
}

/** Filters that clients have stored. A filter never changes, so what was read once is kept until somebody's account is closed. */
@Injectable()
export class FilterStore implements OnModuleInit {
  readonly #cache: Cache<string, KeptFilter>;

  constructor(
    private readonly database: Database,
    private readonly hooks: UserHooks,
    private readonly invalidations: Invalidations,
    config: Config,
  ) {
    this.#cache = new Cache(config, 'filters', {
      ...{ invalidation: 'on write', elsewhere: 'told', max: 32_000_000 },
      sizeOf: (entry) => 2 * entry.size + parsedBytes,
    });
    const forgetAll = (): void => this.#cache.clear();
    invalidations.on(this.#cache.name, { forget: forgetAll, forgetAll });
  }

  onModuleInit(): void {
    // The filters go with the account; should it be opened again, their numbers begin anew.
    this.hooks.deactivated.subscribe({
      inTransaction: async (tx) =>
        tx.unlessRolledBack(() => {
          this.#cache.clear();
          this.invalidations.send(this.#cache.name, []);
        }),
    });
  }

  /**
   * A stored filter.
   * @throws MatrixError 404 `M_NOT_FOUND`
   */
  async get(userId: string, filterId: string): Promise<JsonObject> {
    return (await this.#kept(userId, filterId)).filter;
  }

  /**
   * The same as a sync goes by it.
   * @throws MatrixError 404 `M_NOT_FOUND`, 400 `M_BAD_JSON` where another server stored it
   */
  async parsed(userId: string, filterId: string): Promise<SyncFilter> {
    const kept = await this.#kept(userId, filterId);
    return (kept.parsed ??= parseSyncFilter(kept.filter));
  }

  async #kept(userId: string, filterId: string): Promise<KeptFilter> {
    return this.#cache.fetch(`${filterId}\n${userId}`, async (): Promise<KeptFilter> => {
      const json = /^\d{1,9}$/.test(filterId) ? await findFilter(this.database, userId, Number(filterId)) : undefined;
      if (json === undefined) throw MatrixError.notFound('Unknown filter');
      return { filter: JSON.parse(json) as JsonObject, size: json.length };
    });
  }

  /**
   * Stores a filter; the same one twice has one id.
   * @returns its id
   * @throws MatrixError 400 `M_BAD_JSON`, 413 `M_TOO_LARGE`, 403 `M_USER_DEACTIVATED`
   */
  async create(userId: string, filter: JsonObject): Promise<string> {
    const json = JSON.stringify(filter);
    if (Buffer.byteLength(json) > largestFilterBytes)
      throw MatrixError.tooLarge(`A filter may not be larger than ${largestFilterBytes} bytes`);
    parseSyncFilter(filter);
    const hash = createHash('sha256').update(json).digest('base64url');
    for (;;) {
      const known = await findFilterByHash(this.database, userId, hash);
      if (known !== undefined) return String(known);
      const next = await nextFilterId(this.database, userId);
      if (next >= maxFilters) throw MatrixError.tooLarge(`Not more than ${maxFilters} filters can be stored`);
      // Another request may take the number, or store the same filter; then look again.
      const isNew = await this.database.write(
        async (tx) => {
          await holdAccount(tx, userId);
          return insertFilter(tx, userId, next, hash, json);
        },
        { name: 'filter', anyProcess: true },
      );
      if (isNew) return String(next);
    }
  }
}
