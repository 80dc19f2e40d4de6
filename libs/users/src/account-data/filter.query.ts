import type { Db, Tx } from '@rookery/database';

export async function findFilter(db: Db, userId: string, filterId: number): Promise<string | undefined> {
  return (
    await db.get<{ filter_json: string }>('SELECT filter_json FROM user_filters WHERE user_id = ? AND filter_id = ?', [
      userId,
      filterId,
    ])
  )?.filter_json;
}

export async function findFilterByHash(db: Db, userId: string, hash: string): Promise<number | undefined> {
  return (
    await db.get<{ filter_id: number }>('SELECT filter_id FROM user_filters WHERE user_id = ? AND filter_hash = ?', [
      userId,
      hash,
    ])
  )?.filter_id;
}

/** The number of the next filter of a user. */
export async function nextFilterId(db: Db, userId: string): Promise<number> {
  return (
    (
      await db.get<{ next: number }>(
        'SELECT COALESCE(MAX(filter_id) + 1, 0) AS next FROM user_filters WHERE user_id = ?',
        [userId],
      )
    )?.next ?? 0
  );
}

/** @returns whether the number and the filter were new */
export async function insertFilter(
  tx: Tx,
  userId: string,
  filterId: number,
  hash: string,
  json: string,
): Promise<boolean> {
  return (
    (await tx.run(
      'INSERT INTO user_filters (user_id, filter_id, filter_hash, filter_json) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
      [userId, filterId, hash, json],
    )) > 0
  );
}
