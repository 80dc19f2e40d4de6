import type { Db, SqlBool, Tx } from '@rookery/database';

/**
 * Which of these users have neither agreed to a version of the policy nor been sent a notice of it. Closed accounts and
 * those of application services are left out.
 */
export async function usersToRemind(
  db: Db,
  userIds: readonly string[],
  version: string,
): Promise<{ readonly userId: string; readonly isGuest: boolean }[]> {
  const rows = await db.query<{ name: string; is_guest: SqlBool }>(
    `SELECT name, is_guest FROM users WHERE ${db.dialect.anyOf('name')} AND deactivated = ? AND appservice_id IS NULL
     AND (consent_version IS NULL OR consent_version <> ?)
     AND (consent_server_notice_sent IS NULL OR consent_server_notice_sent <> ?)`,
    [userIds, false, version, version],
  );
  return rows.map((row) => ({ userId: row.name, isGuest: Boolean(row.is_guest) }));
}

/** Records that a user was sent the notice of a version. */
export async function setReminded(tx: Tx, userId: string, version: string): Promise<void> {
  await tx.run('UPDATE users SET consent_server_notice_sent = ? WHERE name = ?', [version, userId]);
}
