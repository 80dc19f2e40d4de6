import type { Db, Tx } from '@rookery/database';

/** An operation that is waiting for its user to prove something. */
export interface UiaSession {
  readonly createdMs: number;
  readonly method: string;
  /** Digest of a path. */
  readonly uri: string;
  /** Keyed digest of the operation's parameters; absent until the first request that has some. */
  readonly bodyDigest?: string | undefined;
  /** The parameters, sealed; absent where they are not remembered. */
  readonly parameters?: string | undefined;
  /** Whose session it is; absent for operations without a token. */
  readonly userId?: string | undefined;
  readonly description: string;
  /** Present once the session is used up. */
  readonly outcome?: UiaOutcome | undefined;
}

/** How a session ended. */
export interface UiaOutcome {
  readonly atMs: number;
  /** What the operation made, for a client that lost the answer; may be empty. */
  readonly outcome: string;
}

/** A stage that was passed, and what it proved. */
export interface UiaCredential {
  readonly stageType: string;
  readonly result: unknown;
}

/** Stores a session, unless it is there already. */
export async function insertUiaSession(tx: Tx, sessionHash: string, session: UiaSession): Promise<void> {
  await tx.run(
    `INSERT INTO ui_auth_sessions (session_hash, creation_time, method, uri, body_digest, parameters, user_id, description)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
    [
      sessionHash,
      session.createdMs,
      session.method,
      session.uri,
      session.bodyDigest ?? null,
      session.parameters ?? null,
      session.userId ?? null,
      session.description,
    ],
  );
}

export async function findUiaSession(
  db: Db,
  sessionHash: string,
  createdAfterMs: number,
): Promise<UiaSession | undefined> {
  const row = await db.get<{
    creation_time: number;
    method: string;
    uri: string;
    body_digest: string | null;
    parameters: string | null;
    user_id: string | null;
    description: string;
    finished_ts: number | null;
    outcome: string | null;
  }>(
    `SELECT creation_time, method, uri, body_digest, parameters, user_id, description, finished_ts, outcome
     FROM ui_auth_sessions WHERE session_hash = ? AND creation_time > ?`,
    [sessionHash, createdAfterMs],
  );
  if (!row) return undefined;
  return {
    createdMs: row.creation_time,
    method: row.method,
    uri: row.uri,
    bodyDigest: row.body_digest ?? undefined,
    parameters: row.parameters ?? undefined,
    userId: row.user_id ?? undefined,
    description: row.description,
    outcome: row.finished_ts === null ? undefined : { atMs: row.finished_ts, outcome: row.outcome ?? '' },
  };
}

/** Binds a session to the parameters of its operation: once, or to the last ones. @returns the digest that holds now */
export async function bindParameters(
  tx: Tx,
  sessionHash: string,
  to: { readonly bodyDigest: string; readonly parameters?: string | undefined; readonly mayReplace: boolean },
): Promise<string | undefined> {
  await tx.run(
    `UPDATE ui_auth_sessions SET body_digest = ?, parameters = ?
     WHERE session_hash = ? AND finished_ts IS NULL ${to.mayReplace ? '' : 'AND body_digest IS NULL'}`,
    [to.bodyDigest, to.parameters ?? null, sessionHash],
  );
  return (
    await tx.get<{ body_digest: string }>('SELECT body_digest FROM ui_auth_sessions WHERE session_hash = ?', [
      sessionHash,
    ])
  )?.body_digest;
}

/** Holds a session's row to the end of the transaction. @returns whether there is one that is not used up */
export async function lockUiaSession(tx: Tx, sessionHash: string): Promise<boolean> {
  const held = await tx.run(
    'UPDATE ui_auth_sessions SET method = method WHERE session_hash = ? AND finished_ts IS NULL',
    [sessionHash],
  );
  return held > 0;
}

/** The stages that were passed. */
export async function credentialsOf(db: Db, sessionHash: string): Promise<UiaCredential[]> {
  const rows = await db.query<{ stage_type: string; result: string }>(
    'SELECT stage_type, result FROM ui_auth_sessions_credentials WHERE session_hash = ?',
    [sessionHash],
  );
  return rows.map((row) => ({ stageType: row.stage_type, result: JSON.parse(row.result) as unknown }));
}

/** Records a passed stage of a session that is held by {@link lockUiaSession}. @returns whether it was the first time */
export async function insertCredential(tx: Tx, sessionHash: string, credential: UiaCredential): Promise<boolean> {
  const inserted = await tx.run(
    'INSERT INTO ui_auth_sessions_credentials (session_hash, stage_type, result) VALUES (?, ?, ?) ON CONFLICT DO NOTHING',
    [sessionHash, credential.stageType, JSON.stringify(credential.result)],
  );
  return inserted > 0;
}

/** Addresses kept of a session. */
const maxAddresses = 20;

/** Notes from where a session was used that is held by {@link lockUiaSession}; the first few addresses are kept. */
export async function noteAddress(tx: Tx, sessionHash: string, ip: string, userAgent: string): Promise<void> {
  await tx.run(
    `INSERT INTO ui_auth_sessions_ips (session_hash, ip, user_agent) SELECT ?, ?, ?
     WHERE (SELECT count(*) FROM ui_auth_sessions_ips WHERE session_hash = ?) < ? ON CONFLICT DO NOTHING`,
    [sessionHash, ip, userAgent, sessionHash, maxAddresses],
  );
}

/** From where a session was used. */
export async function addressesOf(db: Db, sessionHash: string): Promise<{ ip: string; user_agent: string }[]> {
  return db.query('SELECT ip, user_agent FROM ui_auth_sessions_ips WHERE session_hash = ? LIMIT ?', [
    sessionHash,
    maxAddresses,
  ]);
}

/** Uses a session up. @returns whether it was open: of several requests that finish one session, one wins */
export async function finishUiaSession(tx: Tx, sessionHash: string, { atMs, outcome }: UiaOutcome): Promise<boolean> {
  const finished = await tx.run(
    'UPDATE ui_auth_sessions SET finished_ts = ?, outcome = ? WHERE session_hash = ? AND finished_ts IS NULL',
    [atMs, outcome, sessionHash],
  );
  if (finished === 0) return false;
  await tx.run('DELETE FROM ui_auth_sessions_credentials WHERE session_hash = ?', [sessionHash]);
  await tx.run('DELETE FROM ui_auth_sessions_ips WHERE session_hash = ?', [sessionHash]);
  return true;
}

/** Forgets sessions that were begun before a moment. @returns the registration tokens that they held */
export async function purgeUiaSessions(tx: Tx, beforeMs: number): Promise<string[]> {
  const old = 'SELECT session_hash FROM ui_auth_sessions WHERE creation_time <= ?';
  const rows = await tx.query<{ result: string }>(
    `DELETE FROM ui_auth_sessions_credentials WHERE session_hash IN (${old}) AND stage_type = 'm.login.registration_token' RETURNING result`,
    [beforeMs],
  );
  await tx.run(`DELETE FROM ui_auth_sessions_credentials WHERE session_hash IN (${old})`, [beforeMs]);
  await tx.run(`DELETE FROM ui_auth_sessions_ips WHERE session_hash IN (${old})`, [beforeMs]);
  await tx.run('DELETE FROM ui_auth_sessions WHERE creation_time <= ?', [beforeMs]);
  return rows.map((row) => JSON.parse(row.result) as string);
}
