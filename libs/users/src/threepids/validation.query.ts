import type { Db, Tx } from '@rookery/database';

/** A proof of an address that is under way or complete. */
export interface ValidationSession {
  readonly sessionId: string;
  readonly medium: string;
  readonly address: string;
  /** What the proof may be used for. */
  readonly purpose: string;
  readonly lastSendAttempt: number;
  readonly createdMs: number;
  /** Absent until the link was followed. */
  readonly validatedMs?: number | undefined;
}

interface Row {
  session_id: string;
  medium: string;
  address: string;
  purpose: string;
  last_send_attempt: number;
  created_ts: number;
  validated_at: number | null;
}

const columns = 'session_id, medium, address, purpose, last_send_attempt, created_ts, validated_at';

const fromRow = (row: Row): ValidationSession => ({
  sessionId: row.session_id,
  medium: row.medium,
  address: row.address,
  purpose: row.purpose,
  lastSendAttempt: row.last_send_attempt,
  createdMs: row.created_ts,
  validatedMs: row.validated_at ?? undefined,
});

/** The session that a client began with its secret for an address. */
export async function findSessionOf(
  db: Db,
  secretHash: string,
  session: Pick<ValidationSession, 'medium' | 'address' | 'purpose'>,
): Promise<ValidationSession | undefined> {
  const row = await db.get<Row>(
    `SELECT ${columns} FROM threepid_validation_session WHERE client_secret_hash = ? AND medium = ? AND address = ? AND purpose = ?`,
    [secretHash, session.medium, session.address, session.purpose],
  );
  return row && fromRow(row);
}

/** The session with an id, for whoever knows its secret. */
export async function findSession(
  db: Db,
  sessionId: string,
  secretHash: string,
): Promise<ValidationSession | undefined> {
  const row = await db.get<Row>(
    `SELECT ${columns} FROM threepid_validation_session WHERE session_id = ? AND client_secret_hash = ?`,
    [sessionId, secretHash],
  );
  return row && fromRow(row);
}

/** Begins a session, or starts the one over that the client has for this address. */
export async function upsertSession(tx: Tx, secretHash: string, session: ValidationSession): Promise<void> {
  await tx.run(
    `INSERT INTO threepid_validation_session (session_id, medium, address, client_secret_hash, purpose, last_send_attempt, created_ts) VALUES (?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (client_secret_hash, medium, address, purpose) DO UPDATE
       SET session_id = excluded.session_id, last_send_attempt = excluded.last_send_attempt, created_ts = excluded.created_ts, validated_at = NULL`,
    [
      session.sessionId,
      session.medium,
      session.address,
      secretHash,
      session.purpose,
      session.lastSendAttempt,
      session.createdMs,
    ],
  );
}

export async function insertToken(
  tx: Tx,
  tokenHash: string,
  sessionId: string,
  nextLink: string | undefined,
  expiresMs: number,
): Promise<void> {
  await tx.run(
    'INSERT INTO threepid_validation_token (token_hash, session_id, next_link, expires) VALUES (?, ?, ?, ?)',
    [tokenHash, sessionId, nextLink ?? null, expiresMs],
  );
}

/** A token of a session that was mailed. */
export async function findToken(
  db: Db,
  tokenHash: string,
  sessionId: string,
): Promise<{ next_link: string | null; expires: number } | undefined> {
  return db.get('SELECT next_link, expires FROM threepid_validation_token WHERE token_hash = ? AND session_id = ?', [
    tokenHash,
    sessionId,
  ]);
}

/** Marks an address as proved. */
export async function validate(tx: Tx, sessionId: string, nowMs: number): Promise<void> {
  await tx.run(
    'UPDATE threepid_validation_session SET validated_at = ? WHERE session_id = ? AND validated_at IS NULL',
    [nowMs, sessionId],
  );
}

/** Uses a proof up. @returns whether it was there: of several attempts one wins */
export async function consumeSession(tx: Tx, sessionId: string): Promise<boolean> {
  await tx.run('DELETE FROM threepid_validation_token WHERE session_id = ?', [sessionId]);
  return (
    (await tx.run('DELETE FROM threepid_validation_session WHERE session_id = ? AND validated_at IS NOT NULL', [
      sessionId,
    ])) > 0
  );
}

/** Remembers that a proof which another server keeps has been used. @returns whether this was the first time */
export async function consumeRemoteProof(
  tx: Tx,
  proofHash: string,
  medium: string,
  address: string,
  nowMs: number,
): Promise<boolean> {
  const inserted = await tx.run(
    'INSERT INTO threepid_validation_session (session_id, medium, address, client_secret_hash, purpose, last_send_attempt, created_ts) VALUES (?, ?, ?, ?, ?, 0, ?) ON CONFLICT DO NOTHING',
    [`used:${proofHash}`, medium, address, `used:${proofHash}`, 'used', nowMs],
  );
  return inserted > 0;
}

/** Forgets sessions that were begun before a moment, and tokens that expired before it. */
export async function purgeSessions(tx: Tx, beforeMs: number): Promise<void> {
  await tx.run('DELETE FROM threepid_validation_token WHERE expires < ?', [beforeMs]);
  await tx.run('DELETE FROM threepid_validation_session WHERE created_ts < ?', [beforeMs]);
}
