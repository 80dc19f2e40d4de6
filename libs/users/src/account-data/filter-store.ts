import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError, parseSyncFilter, type SyncFilter } from '@rookery/matrix-types';
import { Cache, Config } from '@rookery/platform';
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

/** Filters that clients have stored. A filter never changes, so what was read once is kept. */
@Injectable()
export class FilterStore {
  readonly #cache: Cache<string, KeptFilter>;

  constructor(
    private readonly database: Database,
    config: Config,
  ) {
    this.#cache = new Cache(config, 'filters', {
      ...{ invalidation: 'never', max: 32_000_000 },
      sizeOf: (entry) => 2 * entry.size + parsedBytes,
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
    const key = `${filterId}\n${userId}`;
    const cached = this.#cache.get(key);
    if (cached) return cached;
    const json = /^\d{1,9}$/.test(filterId) ? await findFilter(this.database, userId, Number(filterId)) : undefined;
    if (json === undefined) throw MatrixError.notFound('Unknown filter');
    const kept: KeptFilter = { filter: JSON.parse(json) as JsonObject, size: json.length };
    this.#cache.set(key, kept);
    return kept;
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
