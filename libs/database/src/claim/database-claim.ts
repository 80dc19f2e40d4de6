import { setTimeout as pause } from 'node:timers/promises';
import { type Logger, SilentLogger } from '@rookery/platform';
import { DatabaseError } from '../errors.js';
import type { DatabaseOptions } from '../options.js';
import { type DatabaseClaim, heldByAnother } from './claim.js';
import { claimSqlite } from './sqlite-claim.js';

/** For {@link claimDatabase}. */
export interface ClaimOptions {
  readonly logger?: Logger | undefined;
  /**
   * How long to wait for a server that is about to end, milliseconds of real time: what it waits for happens in another
   * process. 5,000 unless told, since a database may notice a moment later than the system that a process was killed.
   */
  readonly waitMs?: number | undefined;
  /** The server has several processes, side by side: only those that would be alone are kept off. PostgreSQL only. */
  readonly isShared?: boolean | undefined;
}

const defaultWaitMs = 5_000;
const againMs = 100;

/**
 * Makes this process the only server on a database. Commands that write a few rows beside a server need no claim.
 * @throws DatabaseError when another server has it
 */
export async function claimDatabase(
  options: DatabaseOptions,
  { logger = new SilentLogger(), waitMs = defaultWaitMs, isShared = false }: ClaimOptions = {},
): Promise<DatabaseClaim> {
  const tries = Math.max(1, Math.ceil(waitMs / againMs));
  const claim = options.name === 'sqlite3' ? claimSqlite : (await import('./postgres-claim.js')).claimPostgres;
  if (isShared && options.name === 'sqlite3')
    throw new DatabaseError(
      'SQLite serves one process only',
      'Several processes need PostgreSQL (database.name: psycopg2).',
    );
  for (let left = tries; ; left--) {
    const taken = await claim(options as never, logger, isShared);
    if ('release' in taken) return taken;
    if (left === tries) logger.info('Waiting for the server that still uses the database', { by: taken.heldBy });
    if (left <= 1) throw heldByAnother(taken.heldBy);
    await pause(againMs);
  }
}

/**
 * Makes this process the only server on several databases: all of them, or none.
 * @throws DatabaseError when another server has one of them
 */
export async function claimDatabases(
  all: readonly DatabaseOptions[],
  options: ClaimOptions = {},
): Promise<DatabaseClaim> {
  const claims: DatabaseClaim[] = [];
  const release = async (): Promise<void> => {
    for (const claim of claims) await claim.release();
  };
  try {
    for (const one of all) claims.push(await claimDatabase(one, options));
  } catch (error) {
    await release();
    throw error;
  }
  return { lost: Promise.race(claims.map((claim) => claim.lost)), release };
}
