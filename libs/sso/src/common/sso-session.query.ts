import type { Db, Migration, Tx } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';

/**
 * What sign-ons remember: accounts about to be made, answers that were used, fields for the answer to a login, tokens of
 * providers.
 */
export type SsoSessionKind = 'new_user' | 'used' | 'login_fields' | 'tokens';

/** The tables of this lib, in order. */
export const ssoMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'sso_01_sessions',
    async up(tx) {
      await tx.run(`CREATE TABLE sso_sessions (
        kind TEXT NOT NULL, id_hash TEXT NOT NULL, value TEXT NOT NULL, expiry_ts BIGINT NOT NULL, PRIMARY KEY (kind, id_hash))`);
      await tx.run('CREATE INDEX sso_sessions_expiry ON sso_sessions (expiry_ts)');
    },
  },
  {
    version: 1,
    name: 'sso_02_avatars',
    async up(tx) {
      await tx.run(
        'CREATE TABLE sso_avatars (user_id TEXT NOT NULL PRIMARY KEY, digest TEXT NOT NULL, uri TEXT NOT NULL)',
      );
    },
  },
];

/** @returns whether there was none of this id */
export async function insertSsoSession(
  tx: Tx,
  kind: SsoSessionKind,
  idHash: string,
  value: JsonObject,
  expiryMs: number,
): Promise<boolean> {
  const inserted = await tx.run(
    'INSERT INTO sso_sessions (kind, id_hash, value, expiry_ts) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING',
    [kind, idHash, JSON.stringify(value), expiryMs],
  );
  return inserted > 0;
}

/** What is remembered under an id and has not expired. */
export async function findSsoSession(
  db: Db,
  kind: SsoSessionKind,
  idHash: string,
  nowMs: number,
): Promise<JsonObject | undefined> {
  const row = await db.get<{ value: string }>(
    'SELECT value FROM sso_sessions WHERE kind = ? AND id_hash = ? AND expiry_ts > ?',
    [kind, idHash, nowMs],
  );
  return row && (JSON.parse(row.value) as JsonObject);
}

/** Changes what is remembered. @returns whether it was there */
export async function updateSsoSession(
  tx: Tx,
  kind: SsoSessionKind,
  idHash: string,
  value: JsonObject,
): Promise<boolean> {
  const changed = await tx.run('UPDATE sso_sessions SET value = ? WHERE kind = ? AND id_hash = ?', [
    JSON.stringify(value),
    kind,
    idHash,
  ]);
  return changed > 0;
}

/** Remembers this in place of what was there. */
export async function replaceSsoSession(
  tx: Tx,
  kind: SsoSessionKind,
  idHash: string,
  value: JsonObject,
  expiryMs: number,
): Promise<void> {
  await tx.run(
    `INSERT INTO sso_sessions (kind, id_hash, value, expiry_ts) VALUES (?, ?, ?, ?)
     ON CONFLICT (kind, id_hash) DO UPDATE SET value = excluded.value, expiry_ts = excluded.expiry_ts`,
    [kind, idHash, JSON.stringify(value), expiryMs],
  );
}

/** Takes what is remembered: of several that try, one gets it. `undefined` when it is gone or has expired. */
export async function takeSsoSession(
  tx: Tx,
  kind: SsoSessionKind,
  idHash: string,
  nowMs: number,
): Promise<JsonObject | undefined> {
  const [row] = await tx.query<{ value: string; expiry_ts: number }>(
    'DELETE FROM sso_sessions WHERE kind = ? AND id_hash = ? RETURNING value, expiry_ts',
    [kind, idHash],
  );
  return row && row.expiry_ts > nowMs ? (JSON.parse(row.value) as JsonObject) : undefined;
}

export async function purgeSsoSessions(tx: Tx, nowMs: number): Promise<void> {
  await tx.run('DELETE FROM sso_sessions WHERE expiry_ts <= ?', [nowMs]);
}
