import {
  type BackgroundUpdate,
  type Database,
  type Db,
  defineBackgroundUpdate,
  queueBackgroundUpdate,
  type Tx,
} from '@rookery/database';

const index = 'state_group_edges_unique';
/** Makes rows of a group findable while the unique index is missing. */
const helper = 'state_group_edges_mending';

/**
 * Removes doubled rows of `state_group_edges`, one of each pair of groups stays, and makes the unique index that keeps them
 * away. Restored data may lack it. What reads the edges meanwhile sees doubled ones as one.
 */
const update: BackgroundUpdate = defineBackgroundUpdate({
  name: 'state_group_edges_unique_idx',
  store: 'state',
  async run({ tx, progress, batchSize }) {
    const after = Number(progress['after'] ?? -1);
    if (progress['after'] === undefined)
      await tx.run(`CREATE INDEX IF NOT EXISTS ${helper} ON state_group_edges (state_group)`);
    const groups = await tx.query<{ state_group: number }>(
      `SELECT DISTINCT state_group FROM state_group_edges WHERE state_group > ? ORDER BY state_group
       LIMIT ${Math.trunc(batchSize)}`,
      [after],
    );
    const last = groups.at(-1)?.state_group;
    const removed = last === undefined ? 0 : await removeDoubled(tx, after, last);
    const total = Number(progress['removed'] ?? 0) + removed;
    if (last !== undefined) return { items: groups.length, progress: { after: last, removed: total }, finished: false };
    await tx.run(`DROP INDEX IF EXISTS ${index}`);
    await tx.run(`CREATE UNIQUE INDEX ${index} ON state_group_edges (state_group, prev_state_group)`);
    await tx.run(`CREATE INDEX IF NOT EXISTS state_group_edges_prev ON state_group_edges (prev_state_group)`);
    await tx.run(`DROP INDEX ${helper}`);
    return { items: 0, progress: { after, removed: total }, finished: true };
  },
});

/** Keeps one row of each pair whose group lies behind one and up to another. */
function removeDoubled(tx: Tx, after: number, upTo: number): Promise<number> {
  const [row, first] = tx.dialect.name === 'postgres' ? ['ctid', '(array_agg(ctid))[1]'] : ['rowid', 'MIN(rowid)'];
  return tx.run(
    `DELETE FROM state_group_edges WHERE state_group > ? AND state_group <= ? AND ${row} NOT IN (
       SELECT ${first} FROM state_group_edges WHERE state_group > ? AND state_group <= ?
       GROUP BY state_group, prev_state_group)`,
    [after, upTo, after, upTo],
  );
}

/** Whether nothing keeps rows of `state_group_edges` from being doubled: its unique index is gone, or never came to be. */
async function lackIndex(db: Db): Promise<boolean> {
  const found = await db.get(
    db.dialect.name === 'postgres'
      ? `SELECT 1 AS found FROM pg_index WHERE indrelid = to_regclass('state_group_edges') AND indisunique AND indisvalid`
      : `SELECT 1 AS found FROM pragma_index_list('state_group_edges') WHERE "unique" = 1`,
  );
  return found === undefined;
}

/** Queues what mends the edges, where they may be doubled. @returns whether it was needed */
async function queueRepair(database: Database): Promise<boolean> {
  if (!(await lackIndex(database))) return false;
  await database.write((tx) => queueBackgroundUpdate(tx, update.name), { name: 'queue_edges_repair' });
  return true;
}

/** The edges of state groups in restored data, which may be doubled. */
export const stateGroupEdges = { update, lackIndex, queueRepair } as const;
