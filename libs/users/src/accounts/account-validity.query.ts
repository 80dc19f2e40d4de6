import type { Db, Tx } from '@rookery/database';

/** Sets the moment an account expires, and forgets earlier renewal mails. */
export async function setExpiry(tx: Tx, userId: string, expiresMs: number, emailSent: boolean): Promise<void> {
  await tx.run(
    `INSERT INTO account_validity (user_id, expiration_ts_ms, email_sent) VALUES (?, ?, ?)
     ON CONFLICT (user_id) DO UPDATE SET expiration_ts_ms = excluded.expiration_ts_ms, email_sent = excluded.email_sent`,
    [userId, expiresMs, emailSent],
  );
}

/** When an account expires; `undefined`: never. */
export async function findExpiry(db: Db, userId: string): Promise<number | undefined> {
  const row = await db.get<{ expiration_ts_ms: number }>(
    'SELECT expiration_ts_ms FROM account_validity WHERE user_id = ?',
    [userId],
  );
  return row?.expiration_ts_ms;
}

/** The account does not expire anymore. */
export async function deleteExpiry(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM account_validity WHERE user_id = ?', [userId]);
}
