import type pg from 'pg';
import { DatabaseError } from '../errors.js';

// Not that of the last checkpoint, which comes a while after the promotion.
const timeline = `
  SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline`;

/** What a server says that does not tell, or has no such thing: not supported, not allowed, not known, not now. */
const refusals = /^(0A|42|55)/;

/**
 * The history that a PostgreSQL server writes, its timeline. Another one begins where a standby is promoted or a backup recovered: what the
 * server before took last may be missing in it, and whoever remembers that is wrong.
 */
export class ServerHistory {
  #timeline: string | undefined;

  /**
   * Whether a connection leads to another history than the first one that was seen; no where the server does not tell.
   * @throws what the connection breaks with
   */
  async isAnother(client: pg.Client, timeoutMs: number): Promise<boolean> {
    try {
      const { rows } = await client.query<{ timeline: string | null }>({
        ...{ text: timeline, query_timeout: timeoutMs },
      } as pg.QueryConfig);
      const now = rows[0]?.timeline ?? undefined;
      this.#timeline ??= now;
      return now !== undefined && now !== this.#timeline;
    } catch (error) {
      if (refusals.test(String((error as { readonly code?: unknown }).code))) return false;
      throw error;
    }
  }
}

/** Why a server cannot go on with what it remembers. */
export const anotherHistory = (): DatabaseError =>
  new DatabaseError(
    'The database went on from another copy, in which the last changes may be missing: what is remembered of it may be wrong',
    'The server ends, and can start anew at once. A standby was promoted, or a backup recovered.',
  );
