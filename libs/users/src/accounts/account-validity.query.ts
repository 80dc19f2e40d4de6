import type { Db, Tx } from '@rookery/database';

/** Sets the moment an account expires, and forgets earlier renewal mails. */
export async function setExpiry(tx: Tx, userId: string, expiresMs: number, emailSent: boolean): Promise<void> {
  await tx.run(
    `INSERT INTO account_validity (user_id, expiration_ts_ms, email_sent) VALUES (?, ?, ?)
     ON CONFLICT (user_id) DO UPDATE SET expiration_ts_ms = excluded.expiration_ts_ms, email_sent = excluded.email_sent,
       renewal_token = NULL, token_used_ts_ms = NULL`,
    [userId, expiresMs, emailSent],
  );
}

/** When some accounts expire, by user; those without a date are absent. */
export async function findExpiries(db: Db, userIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
  const rows = await db.query<{ user_id: string; expiration_ts_ms: number }>(
    `SELECT user_id, expiration_ts_ms FROM account_validity WHERE ${db.dialect.anyOf('user_id')}`,
    [userIds],
  );
  return new Map(rows.map((row) => [row.user_id, row.expiration_ts_ms]));
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

/** Accounts without a date: those of before accounts expired. Guests have none, nor have accounts that are closed. */
export async function findWithoutExpiry(db: Db, limit: number): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    `SELECT u.name FROM users u WHERE u.is_guest = FALSE AND u.deactivated = FALSE
       AND NOT EXISTS (SELECT 1 FROM account_validity v WHERE v.user_id = u.name) LIMIT ${Math.trunc(limit)}`,
  );
  return rows.map((row) => row.name);
}

/** Sets when accounts expire that have no date yet. */
export async function insertExpiries(tx: Tx, rows: readonly (readonly [userId: string, ts: number])[]): Promise<void> {
  await tx.insertMany(
    'account_validity',
    ['user_id', 'expiration_ts_ms', 'email_sent'],
    rows.map(([userId, ts]) => [userId, ts, false]),
    'ON CONFLICT DO NOTHING',
  );
}

/** An account whose end is near. */
export interface ExpiringAccount {
  readonly user_id: string;
  readonly expiration_ts_ms: number;
}

/** Accounts that expire before a moment and were not told yet, the first ones first, behind one of them. */
export async function findUntold(
  db: Db,
  beforeMs: number,
  after: ExpiringAccount | undefined,
  limit: number,
): Promise<ExpiringAccount[]> {
  return db.query(
    `SELECT v.user_id, v.expiration_ts_ms FROM account_validity v JOIN users u ON u.name = v.user_id
     WHERE v.email_sent = ? AND v.expiration_ts_ms <= ? AND u.deactivated = ?
       ${after ? 'AND (v.expiration_ts_ms, v.user_id) > (?, ?)' : ''}
     ORDER BY v.expiration_ts_ms, v.user_id LIMIT ?`,
    [false, beforeMs, false, ...(after ? [after.expiration_ts_ms, after.user_id] : []), limit],
  );
}

/** Notes that a mail with a renewal link goes out; the link of an earlier mail stops working. */
export async function setRenewalToken(tx: Tx, userId: string, tokenHash: string): Promise<void> {
  await tx.run('UPDATE account_validity SET renewal_token = ?, token_used_ts_ms = NULL WHERE user_id = ?', [
    tokenHash,
    userId,
  ]);
}

/** Notes that a user is told that the account expires. @returns whether nobody else has done so */
export async function markTold(tx: Tx, userId: string): Promise<boolean> {
  const changed = await tx.run('UPDATE account_validity SET email_sent = ? WHERE user_id = ? AND email_sent = ?', [
    true,
    userId,
    false,
  ]);
  return changed > 0;
}

/** The link of a renewal mail, and the account that it is for. */
export interface RenewalLink extends ExpiringAccount {
  readonly token_used_ts_ms: number | null;
}

/** `undefined` for a link that nobody was sent, or that a later one replaces. */
export async function findByRenewalToken(db: Db, tokenHash: string): Promise<RenewalLink | undefined> {
  return db.get('SELECT user_id, expiration_ts_ms, token_used_ts_ms FROM account_validity WHERE renewal_token = ?', [
    tokenHash,
  ]);
}

/** Until the transaction ends nobody else follows the link. */
export async function holdRenewalToken(tx: Tx, tokenHash: string): Promise<void> {
  await tx.run('UPDATE account_validity SET renewal_token = renewal_token WHERE renewal_token = ?', [tokenHash]);
}

/** Renews an account by its link, which from then on counts as used. */
export async function renewByToken(tx: Tx, tokenHash: string, expiresMs: number, nowMs: number): Promise<void> {
  await tx.run(
    'UPDATE account_validity SET expiration_ts_ms = ?, email_sent = ?, token_used_ts_ms = ? WHERE renewal_token = ?',
    [expiresMs, false, nowMs, tokenHash],
  );
}
