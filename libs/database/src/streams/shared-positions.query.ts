import type { Db, Tx } from '../database.js';

/**
 * Takes positions of a stream to which several processes write, for rows of this transaction. Whoever takes some holds the counter until
 * the transaction has ended, so that positions become readable in their order and without a gap; one that is rolled back gives its own
 * back.
 * @returns the last of `count` positions in a row
 */
export async function takeShared(tx: Tx, stream: string, count: number): Promise<number> {
  if (!Number.isSafeInteger(count) || count < 1) throw new RangeError('At least one position must be taken');
  const row = await tx.get<{ stream_id: number }>(
    `INSERT INTO stream_positions (stream_name, instance_name, stream_id) VALUES (?, '', ?)
       ON CONFLICT (stream_name, instance_name)
       DO UPDATE SET stream_id = stream_positions.stream_id + excluded.stream_id
       RETURNING stream_id`,
    [stream, count],
  );
  return row?.stream_id ?? 0;
}

/** How far streams are that several processes write, by name: all up to there can be read. What has no counter yet is absent. */
export async function readShared(db: Db, streams: readonly string[]): Promise<ReadonlyMap<string, number>> {
  if (streams.length === 0) return new Map();
  const rows = await db.query<{ stream_name: string; stream_id: number }>(
    `SELECT stream_name, stream_id FROM stream_positions
     WHERE instance_name = '' AND ${db.dialect.anyOf('stream_name')}`,
    [streams],
  );
  return new Map(rows.map((row) => [row.stream_name, row.stream_id]));
}

/** Numbers up to this one are taken, whatever the counter says: the rows of the stream go so far. */
export async function raiseShared(tx: Tx, stream: string, takenUpTo: number): Promise<void> {
  await tx.run(
    `INSERT INTO stream_positions (stream_name, instance_name, stream_id) VALUES (?, '', ?)
       ON CONFLICT (stream_name, instance_name) DO UPDATE SET stream_id = excluded.stream_id
       WHERE stream_positions.stream_id < excluded.stream_id`,
    [stream, takenUpTo],
  );
}
