import type { Db, Tx } from '@rookery/database';
import type { ProviderLogins } from '../store/device.query.js';

/** A token that logs somebody in, once. */
export interface LoginToken {
  readonly userId: string;
  readonly authProvider?: { readonly id: string; readonly sessionId: string } | undefined;
}

/** @param deviceId that of the session that allows the login; it goes with that */
export async function insertLoginToken(
  tx: Tx,
  tokenHash: string,
  token: LoginToken,
  expiryMs: number,
  deviceId: string | undefined,
): Promise<void> {
  const { userId, authProvider } = token;
  await tx.run(
    `INSERT INTO login_tokens (token_hash, user_id, expiry_ts, auth_provider_id, auth_provider_session_id, device_id)
     VALUES (?, ?, ?, ?, ?, ?)`,
    [tokenHash, userId, expiryMs, authProvider?.id ?? null, authProvider?.sessionId ?? null, deviceId ?? null],
  );
}

/** Uses a token up. @returns `undefined` when it is unknown, expired or used: of several attempts one wins */
export async function consumeLoginToken(tx: Tx, tokenHash: string, nowMs: number): Promise<LoginToken | undefined> {
  const rows = await tx.query<{
    user_id: string;
    auth_provider_id: string | null;
    auth_provider_session_id: string | null;
  }>(
    'UPDATE login_tokens SET used_ts = ? WHERE token_hash = ? AND used_ts IS NULL AND expiry_ts > ? RETURNING user_id, auth_provider_id, auth_provider_session_id',
    [nowMs, tokenHash, nowMs],
  );
  const row = rows[0];
  if (!row) return undefined;
  const { user_id: userId, auth_provider_id: id, auth_provider_session_id: sessionId } = row;
  return { userId, authProvider: id === null ? undefined : { id, sessionId: sessionId ?? '' } };
}

/** Whether a token, used or not, was not taken back; it is not before the transaction ends. */
export async function isLoginTokenHeld(tx: Tx, tokenHash: string): Promise<boolean> {
  const lock = tx.dialect.name === 'postgres' ? ' FOR KEY SHARE' : '';
  return (await tx.get(`SELECT 1 AS found FROM login_tokens WHERE token_hash = ?${lock}`, [tokenHash])) !== undefined;
}

/** Why a token could not be used, in the words of the metric. */
export async function reasonOfRefusal(db: Db, tokenHash: string): Promise<'not found' | 'reused' | 'expired'> {
  const row = await db.get<{ used_ts: number | null }>('SELECT used_ts FROM login_tokens WHERE token_hash = ?', [
    tokenHash,
  ]);
  if (row === undefined) return 'not found';
  return row.used_ts === null ? 'expired' : 'reused';
}

/** The user cannot log in with tokens that were made before. */
export async function deleteLoginTokens(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM login_tokens WHERE user_id = ?', [userId]);
}

/** Nobody logs in with tokens that sessions of these devices have made. */
export async function deleteLoginTokensOfDevices(tx: Tx, userId: string, deviceIds: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM login_tokens WHERE user_id = ? AND ${tx.dialect.anyOf('device_id')}`, [userId, deviceIds]);
}

/** Logins at a single sign-on provider that were not finished yet come to nothing. */
export async function deleteLoginTokensOfProvider(
  tx: Tx,
  { providerId, sessionId, userId }: ProviderLogins,
): Promise<void> {
  if (sessionId === undefined) {
    await tx.run('DELETE FROM login_tokens WHERE auth_provider_id = ? AND user_id = ?', [providerId, userId]);
    return;
  }
  await tx.run('DELETE FROM login_tokens WHERE auth_provider_id = ? AND auth_provider_session_id = ?', [
    providerId,
    sessionId,
  ]);
}

export async function purgeLoginTokens(tx: Tx, nowMs: number): Promise<void> {
  await tx.run('DELETE FROM login_tokens WHERE expiry_ts <= ?', [nowMs]);
}
