import type { Db, Tx } from '@rookery/database';

/** What of an account only modules ask for. */
export async function consentNoticeSent(db: Db, userId: string): Promise<string | undefined> {
  const row = await db.get<{ consent_server_notice_sent: string | null }>(
    'SELECT consent_server_notice_sent FROM users WHERE name = ?',
    [userId],
  );
  return row?.consent_server_notice_sent ?? undefined;
}

/** Ties a user of a sign-in provider to an account. Whether the pair was free, or the account's already. */
export async function insertExternalId(
  tx: Tx,
  authProvider: string,
  externalId: string,
  userId: string,
): Promise<boolean> {
  const changed = await tx.run(
    `INSERT INTO user_external_ids (auth_provider, external_id, user_id) VALUES (?, ?, ?)
     ON CONFLICT (auth_provider, external_id) DO UPDATE SET user_id = excluded.user_id
     WHERE user_external_ids.user_id = excluded.user_id`,
    [authProvider, externalId, userId],
  );
  return changed > 0;
}

/** Users who were seen between two moments, with the application service that made their account. */
export async function activeUsersByService(
  db: Db,
  startMs: number,
  endMs: number,
): Promise<{ readonly service: string; readonly userId: string }[]> {
  const rows = await db.query<{ user_id: string; appservice_id: string | null }>(
    `SELECT u.name AS user_id, u.appservice_id FROM users u
     WHERE EXISTS (SELECT 1 FROM user_ips i WHERE i.user_id = u.name AND i.last_seen >= ? AND i.last_seen <= ?)
     ORDER BY u.name`,
    [startMs, endMs],
  );
  return rows.map((row) => ({ service: row.appservice_id ?? 'native', userId: row.user_id }));
}
