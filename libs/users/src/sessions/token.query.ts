import type { Db, SqlBool, Tx } from '@rookery/database';
import { isClosedForUpdate } from '../store/account-hold.query.js';

/** What an access token stands for. */
export interface TokenOwner {
  readonly tokenId: number;
  /** The user whose rights it carries. */
  readonly userId: string;
  /** The administrator who acts as that user. */
  readonly puppetedBy?: string | undefined;
  readonly deviceId?: string | undefined;
  readonly validUntilMs?: number | undefined;
  /** The refresh token that comes with it. */
  readonly refreshTokenId?: number | undefined;
  readonly used: boolean;
  readonly isGuest: boolean;
  readonly isAdmin: boolean;
  readonly shadowBanned: boolean;
  readonly suspended: boolean;
  readonly locked: boolean;
  readonly deactivated: boolean;
  readonly approved: boolean;
}

interface OwnerRow {
  id: number;
  user_id: string;
  puppets_user_id: string | null;
  device_id: string | null;
  valid_until_ms: number | null;
  refresh_token_id: number | null;
  used: SqlBool;
  is_guest: SqlBool;
  admin: SqlBool;
  shadow_banned: SqlBool;
  suspended: SqlBool;
  locked: SqlBool;
  deactivated: SqlBool;
  approved: SqlBool;
}

/** Finds the owner of an access token, expired or not. */
export async function findTokenOwner(db: Db, tokenHash: string): Promise<TokenOwner | undefined> {
  const row = await db.get<OwnerRow>(
    `SELECT t.id, t.user_id, t.puppets_user_id, t.device_id, t.valid_until_ms, t.refresh_token_id, t.used,
       u.is_guest, u.admin, u.shadow_banned, u.suspended, u.locked, u.deactivated, u.approved
     FROM access_tokens t JOIN users u ON u.name = COALESCE(t.puppets_user_id, t.user_id) WHERE t.token_hash = ?`,
    [tokenHash],
  );
  if (!row) return undefined;
  return {
    tokenId: row.id,
    userId: row.puppets_user_id ?? row.user_id,
    puppetedBy: row.puppets_user_id === null ? undefined : row.user_id,
    deviceId: row.device_id ?? undefined,
    validUntilMs: row.valid_until_ms ?? undefined,
    refreshTokenId: row.refresh_token_id ?? undefined,
    used: Boolean(row.used),
    isGuest: Boolean(row.is_guest),
    isAdmin: Boolean(row.admin),
    shadowBanned: Boolean(row.shadow_banned),
    suspended: Boolean(row.suspended),
    locked: Boolean(row.locked),
    deactivated: Boolean(row.deactivated),
    approved: Boolean(row.approved),
  };
}

/** A new access token's row. */
export interface NewAccessToken {
  readonly userId: string;
  readonly deviceId?: string | undefined;
  readonly tokenHash: string;
  readonly validUntilMs?: number | undefined;
  readonly puppetsUserId?: string | undefined;
  readonly refreshTokenId?: number | undefined;
}

/** @returns the row's id */
export async function insertAccessToken(tx: Tx, token: NewAccessToken): Promise<number> {
  const row = await tx.get<{ id: number }>(
    'INSERT INTO access_tokens (user_id, device_id, token_hash, valid_until_ms, puppets_user_id, refresh_token_id) VALUES (?, ?, ?, ?, ?, ?) RETURNING id',
    [
      token.userId,
      token.deviceId ?? null,
      token.tokenHash,
      token.validUntilMs ?? null,
      token.puppetsUserId ?? null,
      token.refreshTokenId ?? null,
    ],
  );
  return row!.id;
}

/** A refresh token. */
export interface RefreshToken {
  readonly id: number;
  readonly userId: string;
  readonly deviceId: string;
  /** What it was exchanged for. */
  readonly nextTokenId?: number | undefined;
  readonly expiryMs?: number | undefined;
  /** When the session ends, however often it is refreshed. */
  readonly sessionExpiryMs?: number | undefined;
  /** Whether the token it was exchanged for, or the access token that came with that, has been used. */
  readonly superseded: boolean;
}

interface RefreshRow {
  id: number;
  user_id: string;
  device_id: string;
  next_token_id: number | null;
  expiry_ts: number | null;
  ultimate_session_expiry_ts: number | null;
  next_next: number | null;
  next_used: SqlBool | null;
}

/** Whose a refresh token is, valid or not. */
export async function findRefreshTokenOwner(
  db: Db,
  tokenHash: string,
): Promise<{ readonly userId: string; readonly deviceId: string } | undefined> {
  const row = await db.get<{ user_id: string; device_id: string }>(
    'SELECT user_id, device_id FROM refresh_tokens WHERE token_hash = ?',
    [tokenHash],
  );
  return row && { userId: row.user_id, deviceId: row.device_id };
}

/** Finds a refresh token and holds its row, so that of several exchanges each sees what the one before did. */
export async function findRefreshToken(tx: Tx, tokenHash: string): Promise<RefreshToken | undefined> {
  await tx.run('UPDATE refresh_tokens SET next_token_id = next_token_id WHERE token_hash = ?', [tokenHash]);
  const row = await tx.get<RefreshRow>(
    `SELECT r.id, r.user_id, r.device_id, r.next_token_id, r.expiry_ts, r.ultimate_session_expiry_ts,
       n.next_token_id AS next_next, (SELECT a.used FROM access_tokens a WHERE a.refresh_token_id = n.id LIMIT 1) AS next_used
     FROM refresh_tokens r LEFT JOIN refresh_tokens n ON n.id = r.next_token_id WHERE r.token_hash = ?`,
    [tokenHash],
  );
  if (!row) return undefined;
  return {
    id: row.id,
    userId: row.user_id,
    deviceId: row.device_id,
    nextTokenId: row.next_token_id ?? undefined,
    expiryMs: row.expiry_ts ?? undefined,
    sessionExpiryMs: row.ultimate_session_expiry_ts ?? undefined,
    superseded: row.next_next !== null || Boolean(row.next_used),
  };
}

/** A new refresh token's row. */
export interface NewRefreshToken {
  readonly userId: string;
  readonly deviceId: string;
  readonly tokenHash: string;
  readonly expiryMs?: number | undefined;
  readonly sessionExpiryMs?: number | undefined;
}

/** @returns the row's id */
export async function insertRefreshToken(tx: Tx, token: NewRefreshToken): Promise<number> {
  const row = await tx.get<{ id: number }>(
    'INSERT INTO refresh_tokens (user_id, device_id, token_hash, expiry_ts, ultimate_session_expiry_ts) VALUES (?, ?, ?, ?, ?) RETURNING id',
    [token.userId, token.deviceId, token.tokenHash, token.expiryMs ?? null, token.sessionExpiryMs ?? null],
  );
  return row!.id;
}

/**
 * Makes `to` the successor of `from`, taking back a successor that nobody has used (its answer was lost).
 * Access tokens of earlier steps end here; that of `from` lives on until it expires, since requests may be under way.
 */
export async function replaceRefreshToken(tx: Tx, from: number, to: number): Promise<void> {
  await tx.run(
    'DELETE FROM access_tokens WHERE refresh_token_id = (SELECT next_token_id FROM refresh_tokens WHERE id = ?)',
    [from],
  );
  await tx.run('DELETE FROM refresh_tokens WHERE id = (SELECT next_token_id FROM refresh_tokens WHERE id = ?)', [from]);
  await tx.run('UPDATE refresh_tokens SET next_token_id = ? WHERE id = ?', [to, from]);
  await tx.run(
    'DELETE FROM access_tokens WHERE refresh_token_id IN (SELECT id FROM refresh_tokens WHERE next_token_id = ?)',
    [from],
  );
  await tx.run('DELETE FROM refresh_tokens WHERE next_token_id = ?', [from]);
}

/** Ends the access tokens that came with a refresh token. */
export async function deleteAccessTokensWith(tx: Tx, refreshTokenId: number): Promise<void> {
  await tx.run('DELETE FROM access_tokens WHERE refresh_token_id = ?', [refreshTokenId]);
}

/** Records the first use of an access token that came out of a refresh. */
export async function markAccessTokenUsed(tx: Tx, tokenId: number): Promise<void> {
  await tx.run('UPDATE access_tokens SET used = ? WHERE id = ?', [true, tokenId]);
}

/** A token that was taken away. */
export interface RevokedToken {
  readonly id: number;
  readonly device_id: string | null;
}

/** Takes the tokens of devices away. @returns the access tokens that went */
export async function deleteTokensOfDevices(
  tx: Tx,
  userId: string,
  deviceIds: readonly string[],
): Promise<RevokedToken[]> {
  await tx.run(`DELETE FROM refresh_tokens WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')}`, [
    userId,
    deviceIds,
  ]);
  return tx.query<RevokedToken>(
    `DELETE FROM access_tokens WHERE user_id = ? AND puppets_user_id IS NULL AND ${tx.dialect.anyOf('device_id')} RETURNING id, device_id`,
    [userId, deviceIds],
  );
}

/**
 * Takes all tokens of a user away, but for one device where that is given. Tokens with which an administrator acts as
 * the user stay; those with which the user acts as others go.
 * @returns the access tokens that went
 */
export async function deleteTokensOfUser(tx: Tx, userId: string, exceptDeviceId?: string): Promise<RevokedToken[]> {
  if (exceptDeviceId === undefined) {
    await tx.run('DELETE FROM refresh_tokens WHERE user_id = ?', [userId]);
    return tx.query<RevokedToken>('DELETE FROM access_tokens WHERE user_id = ? RETURNING id, device_id', [userId]);
  }
  await tx.run('DELETE FROM refresh_tokens WHERE user_id = ? AND device_id <> ?', [userId, exceptDeviceId]);
  return tx.query<RevokedToken>(
    'DELETE FROM access_tokens WHERE user_id = ? AND (device_id IS NULL OR device_id <> ?) RETURNING id, device_id',
    [userId, exceptDeviceId],
  );
}

/** Takes one token away. @returns it, or `undefined` when it was gone */
export async function deleteAccessToken(
  tx: Tx,
  tokenId: number,
): Promise<(RevokedToken & { readonly user_id: string }) | undefined> {
  return tx.get('DELETE FROM access_tokens WHERE id = ? RETURNING id, device_id, user_id', [tokenId]);
}

/** Takes the tokens away with which administrators act as the user. */
export async function deletePuppetTokens(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM access_tokens WHERE puppets_user_id = ?', [userId]);
}

/** Takes the tokens away with which a user acts as others. */
export async function deletePuppeteerTokens(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM access_tokens WHERE user_id = ? AND puppets_user_id IS NOT NULL', [userId]);
}

/**
 * Whether the session of a request still exists, for what is stored with it: one that is just ending is waited for, and one
 * that lives does not end before the transaction does.
 */
export async function isSessionHeld(
  tx: Tx,
  { userId, accessTokenId }: { readonly userId: string; readonly accessTokenId?: number | undefined },
): Promise<boolean> {
  if (await isClosedForUpdate(tx, userId)) return false;
  // Application services have no session.
  if (accessTokenId === undefined) return true;
  const lock = tx.dialect.name === 'postgres' ? ' FOR KEY SHARE' : '';
  return (await tx.get(`SELECT id FROM access_tokens WHERE id = ?${lock}`, [accessTokenId])) !== undefined;
}

/** When the session of an access token last confirmed to be its user's. */
export async function lastValidatedMs(db: Db, tokenId: number): Promise<number | undefined> {
  return (
    (
      await db.get<{ last_validated: number | null }>('SELECT last_validated FROM access_tokens WHERE id = ?', [
        tokenId,
      ])
    )?.last_validated ?? undefined
  );
}

export async function markValidated(tx: Tx, tokenId: number, nowMs: number): Promise<void> {
  await tx.run('UPDATE access_tokens SET last_validated = ? WHERE id = ?', [nowMs, tokenId]);
}

/**
 * Deletes access tokens that expired before a moment and whose devices are gone: as long as there is the device, its client must be told
 * that it may log in again without losing its keys.
 */
export async function purgeExpiredTokens(tx: Tx, beforeMs: number): Promise<void> {
  await tx.run(
    `DELETE FROM access_tokens WHERE valid_until_ms < ? AND NOT EXISTS (
       SELECT 1 FROM devices d WHERE d.user_id = access_tokens.user_id AND d.device_id = access_tokens.device_id)`,
    [beforeMs],
  );
}

/** Devices of a user that have an access token; `null` for tokens without a device. */
export async function devicesWithTokens(db: Db, userId: string): Promise<(string | null)[]> {
  const rows = await db.query<{ device_id: string | null }>(
    'SELECT DISTINCT device_id FROM access_tokens WHERE user_id = ? AND puppets_user_id IS NULL',
    [userId],
  );
  return rows.map((row) => row.device_id);
}
