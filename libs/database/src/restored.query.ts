import type { Database, Db, Tx } from './database.js';
import { hasTable } from './schema-state.js';
import { skipAhead } from './streams/skip-ahead.query.js';

/** In a database that was put back to an earlier day, until a server has made it fit to go on. */
const marker = 'database_restored';

/** Notes that a database was put back to an earlier day: the next start of the server does what that asks for. */
export async function markRestored(tx: Tx, nowMs: number): Promise<void> {
  await tx.run(`CREATE TABLE IF NOT EXISTS ${marker} (restored_ts BIGINT NOT NULL)`);
  await tx.run(`INSERT INTO ${marker} (restored_ts) VALUES (?)`, [nowMs]);
}

/** In a database that was put back as a part of a larger whole, until the server has begun on that: from which backup. */
const partMarker = 'database_restored_part';

/** Notes from which backup a database was put back, of which another one is still to come. */
export async function markPart(tx: Tx, backup: string): Promise<void> {
  await tx.run(`CREATE TABLE IF NOT EXISTS ${partMarker} (backup TEXT NOT NULL)`);
  await tx.run(`DELETE FROM ${partMarker}`);
  await tx.run(`INSERT INTO ${partMarker} (backup) VALUES (?)`, [backup]);
}

/** From which backup a database was put back that no server has begun on since. */
export async function partOf(db: Db): Promise<string | undefined> {
  if (!(await hasTable(db, partMarker))) return undefined;
  return (await db.get<{ backup: string }>(`SELECT backup FROM ${partMarker}`))?.backup;
}

/** A server begins on it: what was put back is whole. */
export async function forgetPart(tx: Tx): Promise<void> {
  await tx.run(`DROP TABLE IF EXISTS ${partMarker}`);
}

/** Tables that say how a database came to be what it is, and are no part of what it holds. */
export const restoredMarkers: readonly string[] = [marker, partMarker];

/** Whether a database was put back to an earlier day and no server has made it fit to go on yet. */
export const isRestored = (db: Db): Promise<boolean> => hasTable(db, marker);

/** What is to be done with a database that was put back is to be done with a copy of it. Does nothing for any other. */
export async function passOnRestored(source: Db, tx: Tx): Promise<void> {
  if (!(await isRestored(source))) return;
  const row = await source.get<{ at: number | null }>(`SELECT MAX(restored_ts) AS at FROM ${marker}`);
  await markRestored(tx, row?.at ?? 0);
}

/**
 * Makes a database that was put back to an earlier day fit to go on, in one transaction: its counters go on far behind where
 * anybody may have seen them, and each of the steps sees to what else may be known otherwise outside. Needs the newest schema,
 * and nobody else on the database.
 * @returns whether it was such a database
 */
export async function reviveRestored(
  database: Database,
  steps: readonly ((tx: Tx, nowMs: number) => Promise<void>)[],
  nowMs: number,
): Promise<boolean> {
  if (!(await isRestored(database))) return false;
  await database.write(
    async (tx) => {
      await skipAhead(tx);
      for (const step of steps) await step(tx, nowMs);
      await tx.run(`DROP TABLE ${marker}`);
    },
    { name: 'revive_restored', limitMs: Infinity },
  );
  return true;
}
