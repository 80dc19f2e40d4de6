import type { Db, SqlBool, Tx } from '@rookery/database';

/** An account of this server. */
export interface Account {
  readonly userId: string;
  /** Absent: no password of ours (application services, single sign-on, deactivated). */
  readonly passwordHash?: string | undefined;
  readonly createdMs: number;
  readonly isAdmin: boolean;
  readonly isGuest: boolean;
  readonly appserviceId?: string | undefined;
  /** `support`, `bot`, or one of the server's own types. */
  readonly userType?: string | undefined;
  readonly deactivated: boolean;
  readonly shadowBanned: boolean;
  readonly approved: boolean;
  readonly locked: boolean;
  readonly suspended: boolean;
  readonly consentVersion?: string | undefined;
  readonly consentMs?: number | undefined;
  /** The version of the policy of which a notice was sent. */
  readonly consentNoticeSent?: string | undefined;
}

interface AccountRow {
  name: string;
  password_hash: string | null;
  creation_ts: number;
  admin: SqlBool;
  is_guest: SqlBool;
  appservice_id: string | null;
  user_type: string | null;
  deactivated: SqlBool;
  shadow_banned: SqlBool;
  approved: SqlBool;
  locked: SqlBool;
  suspended: SqlBool;
  consent_version: string | null;
  consent_ts: number | null;
  consent_server_notice_sent: string | null;
}

const columns =
  'name, password_hash, creation_ts, admin, is_guest, appservice_id, user_type, deactivated, shadow_banned, approved, locked, suspended, consent_version, consent_ts, consent_server_notice_sent';

function fromRow(row: AccountRow): Account {
  return {
    userId: row.name,
    passwordHash: row.password_hash ?? undefined,
    createdMs: row.creation_ts,
    isAdmin: Boolean(row.admin),
    isGuest: Boolean(row.is_guest),
    appserviceId: row.appservice_id ?? undefined,
    userType: row.user_type ?? undefined,
    deactivated: Boolean(row.deactivated),
    shadowBanned: Boolean(row.shadow_banned),
    approved: Boolean(row.approved),
    locked: Boolean(row.locked),
    suspended: Boolean(row.suspended),
    consentVersion: row.consent_version ?? undefined,
    consentMs: row.consent_ts ?? undefined,
    consentNoticeSent: row.consent_server_notice_sent ?? undefined,
  };
}

/** The account with exactly this id. */
export async function findAccount(db: Db, userId: string): Promise<Account | undefined> {
  const row = await db.get<AccountRow>(`SELECT ${columns} FROM users WHERE name = ?`, [userId]);
  return row && fromRow(row);
}

/** The accounts whose ids are this one when case is ignored; the exact one first, at most three. */
export async function findAccountsIgnoringCase(db: Db, userId: string): Promise<Account[]> {
  const rows = await db.query<AccountRow>(
    `SELECT ${columns} FROM users WHERE lower(name) = lower(?) ORDER BY CASE WHEN name = ? THEN 0 ELSE 1 END, name LIMIT 3`,
    [userId, userId],
  );
  return rows.map(fromRow);
}

/** The accounts behind an id, in the order of ids, at most so many. */
export async function accountsAfter(db: Db, userId: string, limit: number): Promise<Account[]> {
  const rows = await db.query<AccountRow>(`SELECT ${columns} FROM users WHERE name > ? ORDER BY name LIMIT ?`, [
    userId,
    limit,
  ]);
  return rows.map(fromRow);
}

/** Which of these ids have accounts here. */
export async function existingAccounts(db: Db, userIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.query<{ name: string }>(`SELECT name FROM users WHERE ${db.dialect.anyOf('name')}`, [userIds]);
  return new Set(rows.map((row) => row.name));
}

/** Which of these ids are guests of this server. */
export async function guestsAmong(db: Db, userIds: readonly string[]): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    `SELECT name FROM users WHERE ${db.dialect.anyOf('name')} AND is_guest = ?`,
    [userIds, true],
  );
  return rows.map((row) => row.name);
}

/** Of those of these ids that have accounts here, whether each is deactivated. */
export async function accountStates(db: Db, userIds: readonly string[]): Promise<Map<string, boolean>> {
  const rows = await db.query<{ name: string; deactivated: SqlBool }>(
    `SELECT name, deactivated FROM users WHERE ${db.dialect.anyOf('name')}`,
    [userIds],
  );
  return new Map(rows.map((row) => [row.name, Boolean(row.deactivated)]));
}

/** What an account begins with. */
export interface NewAccount {
  readonly userId: string;
  readonly passwordHash?: string | undefined;
  readonly createdMs: number;
  readonly isAdmin?: boolean | undefined;
  readonly isGuest?: boolean | undefined;
  readonly appserviceId?: string | undefined;
  readonly userType?: string | undefined;
  readonly shadowBanned?: boolean | undefined;
  readonly approved?: boolean | undefined;
  readonly locked?: boolean | undefined;
  readonly consentVersion?: string | undefined;
}

/** @returns whether the name was free */
export async function insertAccount(tx: Tx, account: NewAccount): Promise<boolean> {
  const inserted = await tx.run(
    `INSERT INTO users (name, password_hash, creation_ts, admin, is_guest, appservice_id, user_type, shadow_banned, approved, locked, consent_version, consent_ts)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING`,
    [
      account.userId,
      account.passwordHash ?? null,
      account.createdMs,
      account.isAdmin ?? false,
      account.isGuest ?? false,
      account.appserviceId ?? null,
      account.userType ?? null,
      account.shadowBanned ?? false,
      account.approved ?? true,
      account.locked ?? false,
      account.consentVersion ?? null,
      account.consentVersion === undefined ? null : account.createdMs,
    ],
  );
  return inserted > 0;
}

/** Makes a guest an ordinary user. @returns whether there was such a guest */
export async function upgradeGuest(tx: Tx, account: NewAccount): Promise<boolean> {
  const upgraded = await tx.run(
    `UPDATE users SET is_guest = ?, password_hash = ?, user_type = ?, shadow_banned = ?, approved = ?, consent_version = ?, consent_ts = ?
     WHERE name = ? AND is_guest = ? AND deactivated = ?`,
    [
      false,
      account.passwordHash ?? null,
      account.userType ?? null,
      account.shadowBanned ?? false,
      account.approved ?? true,
      account.consentVersion ?? null,
      account.consentVersion === undefined ? null : account.createdMs,
      account.userId,
      true,
      false,
    ],
  );
  return upgraded > 0;
}

/** @returns whether there is such an account */
export async function setPasswordHash(tx: Tx, userId: string, passwordHash: string | null): Promise<boolean> {
  return (await tx.run('UPDATE users SET password_hash = ? WHERE name = ?', [passwordHash, userId])) > 0;
}

/** Replaces a hash only where it is still the one that was checked. @returns whether it is */
export async function upgradePasswordHash(tx: Tx, userId: string, from: string, to: string): Promise<boolean> {
  return (
    (await tx.run('UPDATE users SET password_hash = ? WHERE name = ? AND password_hash = ?', [to, userId, from])) > 0
  );
}

/** The switches that administrators turn. */
export interface AccountFlags {
  readonly isAdmin?: boolean;
  readonly shadowBanned?: boolean;
  readonly approved?: boolean;
  readonly locked?: boolean;
  readonly suspended?: boolean;
  readonly deactivated?: boolean;
  /** `null` takes the type away. */
  readonly userType?: string | null;
}

const flagColumns: Readonly<Record<keyof AccountFlags, string>> = {
  isAdmin: 'admin',
  shadowBanned: 'shadow_banned',
  approved: 'approved',
  locked: 'locked',
  suspended: 'suspended',
  deactivated: 'deactivated',
  userType: 'user_type',
};

/** Sets the flags that are given. @returns whether there is such an account */
export async function setAccountFlags(tx: Tx, userId: string, flags: AccountFlags): Promise<boolean> {
  const given = (Object.keys(flagColumns) as (keyof AccountFlags)[]).filter((key) => flags[key] !== undefined);
  if (given.length === 0) return (await findAccount(tx, userId)) !== undefined;
  const assignments = given.map((key) => `${flagColumns[key]} = ?`).join(', ');
  return (
    (await tx.run(`UPDATE users SET ${assignments} WHERE name = ?`, [
      ...given.map((key) => flags[key] ?? null),
      userId,
    ])) > 0
  );
}

/** Records that the user agreed to a version of the server's policy. */
export async function setConsent(tx: Tx, userId: string, version: string, nowMs: number): Promise<void> {
  await tx.run('UPDATE users SET consent_version = ?, consent_ts = ? WHERE name = ?', [version, nowMs, userId]);
}

/** Ids of a few accounts that belong to people. */
export async function somePeople(db: Db, limit: number): Promise<string[]> {
  const rows = await db.query<{ name: string }>(
    `SELECT name FROM users WHERE is_guest = ? AND appservice_id IS NULL
     AND (user_type IS NULL OR user_type NOT IN ('bot', 'support')) LIMIT ?`,
    [false, limit],
  );
  return rows.map((row) => row.name);
}

/** Whether the user asked for their data to be forgotten. */
export async function isErased(db: Db, userId: string): Promise<boolean> {
  return (await db.get('SELECT 1 AS one FROM erased_users WHERE user_id = ?', [userId])) !== undefined;
}

/** Which of these users asked for their data to be forgotten. */
export async function erasedUsers(db: Db, userIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.query<{ user_id: string }>(
    `SELECT user_id FROM erased_users WHERE ${db.dialect.anyOf('user_id')}`,
    [userIds],
  );
  return new Set(rows.map((row) => row.user_id));
}

export async function setErased(tx: Tx, userId: string, erased: boolean): Promise<void> {
  if (erased) await tx.run('INSERT INTO erased_users (user_id) VALUES (?) ON CONFLICT DO NOTHING', [userId]);
  else await tx.run('DELETE FROM erased_users WHERE user_id = ?', [userId]);
}

/** Users whose deactivation has not left all rooms yet. */
export async function pendingDeactivations(db: Db): Promise<string[]> {
  return (await db.query<{ user_id: string }>('SELECT user_id FROM users_pending_deactivation')).map(
    (row) => row.user_id,
  );
}

export async function setDeactivationPending(tx: Tx, userId: string, pending: boolean): Promise<void> {
  if (pending)
    await tx.run('INSERT INTO users_pending_deactivation (user_id) VALUES (?) ON CONFLICT DO NOTHING', [userId]);
  else await tx.run('DELETE FROM users_pending_deactivation WHERE user_id = ?', [userId]);
}

/** Whether anybody has an account. */
export async function hasAccounts(db: Db): Promise<boolean> {
  return (await db.get('SELECT 1 AS found FROM users LIMIT 1')) !== undefined;
}

/** How many accounts are in use, guests left out, by the application service that made them; `native` for all others. */
export async function countAccounts(db: Db): Promise<{ readonly service: string; readonly total: number }[]> {
  const rows = await db.query<{ service: string; total: number }>(
    `SELECT COALESCE(appservice_id, 'native') AS service, COUNT(*) AS total FROM users
     WHERE deactivated = FALSE AND is_guest = FALSE GROUP BY COALESCE(appservice_id, 'native')`,
  );
  return rows.map(({ service, total }) => ({ service, total: Number(total) }));
}
