import type { Db, Tx } from '@rookery/database';

/** The highest position that the table knows. */
export async function highestProfileUpdate(db: Db): Promise<number> {
  const row = await db.get<{ highest: number | null }>('SELECT MAX(stream_id) AS highest FROM profile_updates');
  return row?.highest ?? 0;
}

/** Notes that fields of a profile changed. Of each field the last change is kept. */
export async function insertProfileUpdates(
  tx: Tx,
  streamId: number,
  userId: string,
  fields: readonly string[],
): Promise<void> {
  await tx.run(
    `INSERT INTO profile_updates (user_id, field, stream_id) VALUES ${fields.map(() => '(?, ?, ?)').join(', ')}
     ON CONFLICT (user_id, field) DO UPDATE SET stream_id = excluded.stream_id`,
    fields.flatMap((field) => [userId, field, streamId]),
  );
}

/** Fields whose last change lies in `(after, upTo]`, by user. */
export async function profileUpdatesBetween(
  db: Db,
  after: number,
  upTo: number,
): Promise<ReadonlyMap<string, readonly string[]>> {
  const rows = await db.query<{ user_id: string; field: string }>(
    'SELECT user_id, field FROM profile_updates WHERE stream_id > ? AND stream_id <= ?',
    [after, upTo],
  );
  const fields = new Map<string, string[]>();
  for (const { user_id: userId, field } of rows) {
    const known = fields.get(userId);
    if (known) known.push(field);
    else fields.set(userId, [field]);
  }
  return fields;
}
