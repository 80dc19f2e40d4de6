import type { Db, Tx } from '@rookery/database';

export async function insertOpenIdToken(
  tx: Tx,
  tokenHash: string,
  userId: string,
  validUntilMs: number,
): Promise<void> {
  await tx.run('INSERT INTO open_id_tokens (token_hash, ts_valid_until_ms, user_id) VALUES (?, ?, ?)', [
    tokenHash,
    validUntilMs,
    userId,
  ]);
}

/** The user whom a token that still holds was made for. */
export async function userOfOpenIdToken(db: Db, tokenHash: string, nowMs: number): Promise<string | undefined> {
  return (
    await db.get<{ user_id: string }>(
      'SELECT user_id FROM open_id_tokens WHERE token_hash = ? AND ts_valid_until_ms > ?',
      [tokenHash, nowMs],
    )
  )?.user_id;
}

export async function deleteOpenIdTokens(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM open_id_tokens WHERE user_id = ?', [userId]);
}

export async function purgeOpenIdTokens(tx: Tx, nowMs: number): Promise<void> {
  await tx.run('DELETE FROM open_id_tokens WHERE ts_valid_until_ms <= ?', [nowMs]);
}
