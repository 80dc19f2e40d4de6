import type { Db, Tx } from '@rookery/database';

/** What a cross-signing key is for. */
export type CrossSigningType = 'master' | 'self_signing' | 'user_signing';

/** A cross-signing key as it was uploaded. */
export interface CrossSigningRow {
  readonly userId: string;
  readonly type: CrossSigningType;
  readonly keyJson: string;
  readonly replaceableUntilMs: number | undefined;
}

/** A signature of a user on a device, or on a master key by its public key. */
export interface SignatureRow {
  readonly userId: string;
  readonly keyId: string;
  readonly targetUserId: string;
  readonly targetId: string;
  readonly signature: string;
}

/** The cross-signing keys of users. */
export async function crossSigningKeysOf(db: Db, userIds: readonly string[]): Promise<CrossSigningRow[]> {
  const rows = await db.query<{
    user_id: string;
    keytype: CrossSigningType;
    keydata: string;
    updatable_without_uia_before_ms: number | null;
  }>(
    // Imported data may hold former keys; the newest is the one.
    `SELECT user_id, keytype, keydata, updatable_without_uia_before_ms FROM e2e_cross_signing_keys
     WHERE ${db.dialect.anyOf('user_id')} ORDER BY stream_id`,
    [userIds],
  );
  const newest = new Map<string, CrossSigningRow>();
  for (const row of rows) {
    newest.set(`${row.keytype}\n${row.user_id}`, {
      userId: row.user_id,
      type: row.keytype,
      keyJson: row.keydata,
      replaceableUntilMs: row.updatable_without_uia_before_ms ?? undefined,
    });
  }
  return [...newest.values()];
}

/** Puts keys in the place of those of some types. */
export async function replaceCrossSigningKeys(
  tx: Tx,
  userId: string,
  replaced: readonly CrossSigningType[],
  keys: readonly { readonly type: CrossSigningType; readonly keyJson: string; readonly streamId: number }[],
): Promise<void> {
  await tx.run(`DELETE FROM e2e_cross_signing_keys WHERE user_id = ? AND ${tx.dialect.anyOf('keytype')}`, [
    userId,
    replaced,
  ]);
  await tx.insertMany(
    'e2e_cross_signing_keys',
    ['user_id', 'keytype', 'keydata', 'stream_id'],
    keys.map((key) => [userId, key.type, key.keyJson, key.streamId]),
  );
}

/** Lets a user replace the keys without interactive auth until a time. @returns whether there is a master key */
export async function setReplaceableUntil(tx: Tx, userId: string, untilMs: number): Promise<boolean> {
  const changed = await tx.run(
    `UPDATE e2e_cross_signing_keys SET updatable_without_uia_before_ms = ? WHERE user_id = ? AND keytype = 'master'`,
    [untilMs, userId],
  );
  return changed > 0;
}

/** Signatures on keys of users that somebody may see: their own, and those that the viewer made. */
export async function signaturesOn(
  db: Db,
  targetUserIds: readonly string[],
  viewerId: string | undefined,
): Promise<SignatureRow[]> {
  const rows = await db.query<{
    user_id: string;
    key_id: string;
    target_user_id: string;
    target_device_id: string;
    signature: string;
  }>(
    `SELECT user_id, key_id, target_user_id, target_device_id, signature FROM e2e_cross_signing_signatures
     WHERE ${db.dialect.anyOf('target_user_id')} AND (user_id = target_user_id OR user_id = ?)`,
    [targetUserIds, viewerId ?? ''],
  );
  return rows.map((row) => ({
    userId: row.user_id,
    keyId: row.key_id,
    targetUserId: row.target_user_id,
    targetId: row.target_device_id,
    signature: row.signature,
  }));
}

/** Stores signatures; one that is there is replaced. No two may have the same key and target. */
export async function writeSignatures(tx: Tx, signatures: readonly SignatureRow[]): Promise<void> {
  await tx.insertMany(
    'e2e_cross_signing_signatures',
    ['user_id', 'key_id', 'target_user_id', 'target_device_id', 'signature'],
    signatures.map((one) => [one.userId, one.keyId, one.targetUserId, one.targetId, one.signature]),
    `ON CONFLICT (target_user_id, target_device_id, user_id, key_id) DO UPDATE SET signature = excluded.signature`,
  );
}

/** Forgets the cross-signing keys of a user and all signatures by and on the user. */
export async function deleteCrossSigning(tx: Tx, userId: string): Promise<void> {
  await tx.run('DELETE FROM e2e_cross_signing_keys WHERE user_id = ?', [userId]);
  await tx.run('DELETE FROM e2e_cross_signing_signatures WHERE user_id = ? OR target_user_id = ?', [userId, userId]);
}
