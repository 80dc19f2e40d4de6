import { type Db, type GivenRows, givenRows, type SqlBool, type Tx } from '@rookery/database';

/** A key that a device offers to those who want to write to it. */
export interface OfferedKey {
  readonly algorithm: string;
  readonly keyId: string;
  readonly keyJson: string;
}

/** A device, and which kind of key is wanted for it. */
export interface WantedKey {
  readonly userId: string;
  readonly deviceId: string;
  readonly algorithm: string;
}

/** A key that was handed out. */
export type ClaimedKey = WantedKey & OfferedKey;

interface ClaimedRow {
  readonly user_id: string;
  readonly device_id: string;
  readonly algorithm: string;
  readonly key_id: string;
  readonly key_json: string;
}

const returned = 'user_id, device_id, algorithm, key_id, key_json';

const fromRow = (row: ClaimedRow): ClaimedKey => ({
  userId: row.user_id,
  deviceId: row.device_id,
  algorithm: row.algorithm,
  keyId: row.key_id,
  keyJson: row.key_json,
});

const given = (db: Db, wanted: readonly WantedKey[]): GivenRows =>
  givenRows(
    db,
    ['user_id', 'device_id', 'algorithm'],
    wanted.map(({ userId, deviceId, algorithm }) => [userId, deviceId, algorithm]),
  );

/**
 * Hands out the next one-time key of each device, in the order of upload; devices without one are absent. Two claims at
 * the same time get different keys, and neither waits for the other.
 */
export async function claimOneTimeKeys(tx: Tx, wanted: readonly WantedKey[], nowMs: number): Promise<ClaimedKey[]> {
  const { sql, value } = given(tx, wanted);
  const next = `SELECT o.key_id FROM e2e_one_time_keys_json o WHERE o.user_id = w.user_id AND o.device_id = w.device_id
      AND o.algorithm = w.algorithm AND o.claimed_ts IS NULL ORDER BY o.upload_order, o.key_id LIMIT 1`;
  const rows =
    tx.dialect.name === 'sqlite'
      ? await tx.query<ClaimedRow>(
          `UPDATE e2e_one_time_keys_json SET claimed_ts = ? WHERE (user_id, device_id, algorithm, key_id) IN (
             SELECT w.user_id, w.device_id, w.algorithm, (${next}) FROM ${sql}) RETURNING ${returned}`,
          [nowMs, value],
        )
      : await tx.query<ClaimedRow>(
          `WITH chosen AS (
             SELECT w.user_id, w.device_id, w.algorithm, k.key_id FROM ${sql}
             CROSS JOIN LATERAL (${next} FOR UPDATE SKIP LOCKED) k)
           UPDATE e2e_one_time_keys_json t SET claimed_ts = ? FROM chosen c
           WHERE t.user_id = c.user_id AND t.device_id = c.device_id AND t.algorithm = c.algorithm AND t.key_id = c.key_id
           RETURNING ${returned
             .split(', ')
             .map((column) => `t.${column}`)
             .join(', ')}`,
          [value, nowMs],
        );
  return rows.map(fromRow);
}

/** The fallback keys of devices, marked as used; devices without one are absent. */
export async function useFallbackKeys(tx: Tx, wanted: readonly WantedKey[]): Promise<ClaimedKey[]> {
  const { sql, value } = given(tx, wanted);
  const rows = await tx.query<ClaimedRow & { used: SqlBool }>(
    `SELECT f.user_id, f.device_id, f.algorithm, f.key_id, f.key_json, f.used FROM ${sql}
     JOIN e2e_fallback_keys_json f
       ON f.user_id = w.user_id AND f.device_id = w.device_id AND f.algorithm = w.algorithm`,
    [value],
  );
  if (rows.some((row) => !row.used)) {
    await tx.run(
      `UPDATE e2e_fallback_keys_json SET used = ? WHERE used = ? AND (user_id, device_id, algorithm) IN (
         SELECT w.user_id, w.device_id, w.algorithm FROM ${sql})`,
      [true, false, value],
    );
  }
  return rows.map(fromRow);
}

/** A one-time key as it is stored. */
export interface StoredOneTimeKey extends OfferedKey {
  readonly claimed: boolean;
}

/** Keys of a device by their ids, of all algorithms, handed out or not. */
export async function oneTimeKeysById(
  db: Db,
  userId: string,
  deviceId: string,
  keyIds: readonly string[],
): Promise<StoredOneTimeKey[]> {
  const rows = await db.query<{
    algorithm: string;
    key_id: string;
    key_json: string;
    claimed_ts: number | null;
  }>(
    `SELECT algorithm, key_id, key_json, claimed_ts FROM e2e_one_time_keys_json
     WHERE user_id = ? AND device_id = ? AND ${db.dialect.anyOf('key_id')}`,
    [userId, deviceId, keyIds],
  );
  return rows.map((row) => ({
    algorithm: row.algorithm,
    keyId: row.key_id,
    keyJson: row.key_json,
    claimed: row.claimed_ts !== null,
  }));
}

/** Adds keys behind those that are there. A key that was handed out stays so; another one under its id is new. */
export async function insertOneTimeKeys(
  tx: Tx,
  userId: string,
  deviceId: string,
  keys: readonly OfferedKey[],
  nowMs: number,
): Promise<void> {
  const last = await tx.get<{ top: number | null }>(
    'SELECT MAX(upload_order) AS top FROM e2e_one_time_keys_json WHERE user_id = ? AND device_id = ?',
    [userId, deviceId],
  );
  const order = (last?.top ?? 0) + 1;
  await tx.insertMany(
    'e2e_one_time_keys_json',
    ['user_id', 'device_id', 'algorithm', 'key_id', 'ts_added_ms', 'key_json', 'upload_order'],
    keys.map((key) => [userId, deviceId, key.algorithm, key.keyId, nowMs, key.keyJson, order]),
    `ON CONFLICT (user_id, device_id, algorithm, key_id) DO UPDATE SET ts_added_ms = excluded.ts_added_ms,
       key_json = excluded.key_json, upload_order = excluded.upload_order, claimed_ts = NULL
     WHERE e2e_one_time_keys_json.claimed_ts IS NOT NULL AND e2e_one_time_keys_json.key_json <> excluded.key_json`,
  );
}

/** Forgets keys that were handed out before a time. */
export async function deleteClaimedKeys(tx: Tx, userId: string, deviceId: string, beforeMs: number): Promise<void> {
  await tx.run('DELETE FROM e2e_one_time_keys_json WHERE user_id = ? AND device_id = ? AND claimed_ts < ?', [
    userId,
    deviceId,
    beforeMs,
  ]);
}

/** Stores fallback keys, one of each algorithm; one that is there already stays used or unused. */
export async function writeFallbackKeys(
  tx: Tx,
  userId: string,
  deviceId: string,
  keys: readonly OfferedKey[],
): Promise<void> {
  await tx.insertMany(
    'e2e_fallback_keys_json',
    ['user_id', 'device_id', 'algorithm', 'key_id', 'key_json', 'used'],
    keys.map((key) => [userId, deviceId, key.algorithm, key.keyId, key.keyJson, false]),
    `ON CONFLICT (user_id, device_id, algorithm) DO UPDATE SET key_id = excluded.key_id, key_json = excluded.key_json,
       used = excluded.used
     WHERE e2e_fallback_keys_json.key_id <> excluded.key_id OR e2e_fallback_keys_json.key_json <> excluded.key_json`,
  );
}

/** How many keys a device has left, by algorithm. */
export async function oneTimeKeyCounts(db: Db, userId: string, deviceId: string): Promise<Map<string, number>> {
  const rows = await db.query<{ algorithm: string; count: number }>(
    `SELECT algorithm, COUNT(*) AS count FROM e2e_one_time_keys_json
     WHERE user_id = ? AND device_id = ? AND claimed_ts IS NULL GROUP BY algorithm`,
    [userId, deviceId],
  );
  return new Map(rows.map((row) => [row.algorithm, row.count]));
}

/** Algorithms of which a device has a fallback key, handed out or not. */
export async function fallbackAlgorithms(db: Db, userId: string, deviceId: string): Promise<string[]> {
  const rows = await db.query<{ algorithm: string }>(
    'SELECT algorithm FROM e2e_fallback_keys_json WHERE user_id = ? AND device_id = ?',
    [userId, deviceId],
  );
  return rows.map((row) => row.algorithm);
}

/** Algorithms whose fallback key was never handed out. */
export async function unusedFallbackTypes(db: Db, userId: string, deviceId: string): Promise<string[]> {
  const rows = await db.query<{ algorithm: string }>(
    'SELECT algorithm FROM e2e_fallback_keys_json WHERE user_id = ? AND device_id = ? AND used = ? ORDER BY algorithm',
    [userId, deviceId, false],
  );
  return rows.map((row) => row.algorithm);
}
