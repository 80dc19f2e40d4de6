import type { Db, SqlBool, Tx } from '@rookery/database';

/** What decides whether a user counts. */
export interface CountedAccount {
  readonly userId: string;
  readonly createdMs: number;
  readonly isGuest: boolean;
  readonly appserviceId?: string | undefined;
  readonly userType?: string | undefined;
  /** When the user was last seen; absent while they do not count. */
  readonly countedMs?: number | undefined;
}

/** What decides about each of these users; those without an account, or whose account is closed, are absent. */
export async function countedAccounts(db: Db, userIds: readonly string[]): Promise<CountedAccount[]> {
  const rows = await db.query<{
    name: string;
    creation_ts: number;
    is_guest: SqlBool;
    appservice_id: string | null;
    user_type: string | null;
    timestamp: number | null;
  }>(
    `SELECT u.name, u.creation_ts, u.is_guest, u.appservice_id, u.user_type, m.timestamp
     FROM users u LEFT JOIN monthly_active_users m ON m.user_id = u.name WHERE ${db.dialect.anyOf('u.name')} AND u.deactivated = ?`,
    [userIds, false],
  );
  return rows.map((row) => ({
    userId: row.name,
    createdMs: row.creation_ts,
    isGuest: Boolean(row.is_guest),
    appserviceId: row.appservice_id ?? undefined,
    userType: row.user_type ?? undefined,
    countedMs: row.timestamp ?? undefined,
  }));
}

/** How many users count. */
export async function countActive(db: Db): Promise<number> {
  return (await db.get<{ total: number }>('SELECT COUNT(*) AS total FROM monthly_active_users'))!.total;
}

/** The same by application service; `native` for users of none. */
export async function countActiveByService(db: Db): Promise<{ readonly service: string; readonly total: number }[]> {
  return db.query(
    `SELECT COALESCE(u.appservice_id, 'native') AS service, COUNT(*) AS total
     FROM monthly_active_users m JOIN users u ON u.name = m.user_id GROUP BY COALESCE(u.appservice_id, 'native')`,
  );
}

/**
 * Counts users, or notes that they were seen again; rows are locked in one order, whichever process does. An account that is just being
 * closed is waited for, and does not count any more.
 */
export async function noteActive(tx: Tx, userIds: readonly string[], nowMs: number): Promise<void> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR SHARE' : '';
  await tx.run(
    `INSERT INTO monthly_active_users (user_id, timestamp)
     SELECT name, CAST(? AS BIGINT) FROM users WHERE ${tx.dialect.anyOf('name')} AND deactivated = ? ORDER BY name${lock}
     ON CONFLICT (user_id) DO UPDATE SET timestamp = excluded.timestamp
     WHERE monthly_active_users.timestamp <= excluded.timestamp`,
    [nowMs, userIds, false],
  );
}

/** Counts users who may not have been seen yet, without changing what is known of the others. */
export async function reservePlaces(tx: Tx, userIds: readonly string[], nowMs: number): Promise<void> {
  await tx.insertMany(
    'monthly_active_users',
    ['user_id', 'timestamp'],
    userIds.map((userId) => [userId, nowMs]),
    'ON CONFLICT (user_id) DO NOTHING',
  );
}

/** Stops counting users who were not seen since a moment, but for those who keep their places. */
export async function dropInactive(tx: Tx, beforeMs: number, keep: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM monthly_active_users WHERE timestamp <= ? AND ${tx.dialect.noneOf('user_id')}`, [
    beforeMs,
    keep,
  ]);
}

/** Stops counting all but the `most` users seen last, beside those who keep their places. */
export async function dropBeyond(tx: Tx, most: number, keep: readonly string[]): Promise<void> {
  const others = tx.dialect.noneOf('user_id');
  await tx.run(
    `DELETE FROM monthly_active_users WHERE ${others} AND user_id NOT IN (
       SELECT user_id FROM monthly_active_users WHERE ${others} ORDER BY timestamp DESC, user_id LIMIT ?)`,
    [keep, keep, most],
  );
}

/** Stops counting one user. */
export async function dropActive(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM monthly_active_users WHERE user_id = ?', [userId]);
}

/** Whose these addresses of one kind are. */
export async function ownersOf(db: Db, medium: string, addresses: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT user_id FROM user_threepids WHERE medium = ? AND ${db.dialect.anyOf('address')}`,
    [medium, addresses],
  );
  return rows.map((row) => row.user_id);
}
