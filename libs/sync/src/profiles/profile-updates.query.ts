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

interface FieldRow {
  readonly user_id: string;
  readonly field: string;
}

/** Fields whose last change lies in `(after, upTo]`, by user; `undefined` where there are more than `limit`. */
export async function profileUpdatesBetween(
  db: Db,
  after: number,
  upTo: number,
  limit: number,
): Promise<ReadonlyMap<string, readonly string[]> | undefined> {
  const rows = await db.query<FieldRow>(
    `SELECT user_id, field FROM profile_updates WHERE stream_id > ? AND stream_id <= ? LIMIT ${Math.trunc(limit) + 1}`,
    [after, upTo],
  );
  return rows.length > limit ? undefined : byUser(rows);
}

/** The same of some users. */
export async function profileUpdatesOf(
  db: Db,
  userIds: readonly string[],
  after: number,
  upTo: number,
): Promise<ReadonlyMap<string, readonly string[]>> {
  return byUser(
    await db.query<FieldRow>(
      `SELECT user_id, field FROM profile_updates WHERE ${db.dialect.anyOf('user_id')} AND stream_id > ? AND stream_id <= ?`,
      [userIds, after, upTo],
    ),
  );
}

function byUser(rows: readonly FieldRow[]): ReadonlyMap<string, readonly string[]> {
  const fields = new Map<string, string[]>();
  for (const { user_id: userId, field } of rows) {
    const known = fields.get(userId);
    if (known) known.push(field);
    else fields.set(userId, [field]);
  }
  return fields;
}
