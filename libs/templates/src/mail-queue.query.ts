import type { Database, Db, Migration, Tx } from '@rookery/database';

/** The tables of this lib. */
export const templatesMigrations: readonly Migration[] = [
  {
    version: 1,
    name: 'templates_01_mail_queue',
    async up(tx) {
      await tx.run(`CREATE TABLE mail_queue (
        mail_id TEXT NOT NULL PRIMARY KEY, recipient TEXT NOT NULL, subject TEXT NOT NULL, text_body TEXT NOT NULL,
        html_body TEXT NOT NULL, headers TEXT NOT NULL, created_ms BIGINT NOT NULL, expires_ms BIGINT NOT NULL,
        due_ms BIGINT NOT NULL, attempts INTEGER NOT NULL)`);
      await tx.run('CREATE INDEX mail_queue_due ON mail_queue (due_ms)');
    },
  },
];

/** A mail that waits. */
export interface QueuedMail {
  readonly mail_id: string;
  readonly recipient: string;
  readonly subject: string;
  readonly text_body: string;
  readonly html_body: string;
  /** JSON object of header names and values. */
  readonly headers: string;
  readonly expires_ms: number;
  /** How often it was tried, this time included. */
  readonly attempts: number;
}

/** Puts a mail at the end of the queue, due now. */
export async function insertMail(tx: Tx, mail: Omit<QueuedMail, 'attempts'>, nowMs: number): Promise<void> {
  await tx.run(
    `INSERT INTO mail_queue
      (mail_id, recipient, subject, text_body, html_body, headers, created_ms, expires_ms, due_ms, attempts)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)`,
    [
      mail.mail_id,
      mail.recipient,
      mail.subject,
      mail.text_body,
      mail.html_body,
      mail.headers,
      nowMs,
      mail.expires_ms,
      nowMs,
    ],
  );
}

/**
 * Takes the mails longest due out of everybody else's sight until `leaseEndMs`; then they are due again, should this
 * process not have finished them.
 */
export async function claimDueMails(
  database: Database,
  nowMs: number,
  leaseEndMs: number,
  limit: number,
): Promise<QueuedMail[]> {
  // Looked up outside the transaction: most times there is nothing.
  const due = await database.query<{ mail_id: string }>(
    'SELECT mail_id FROM mail_queue WHERE due_ms <= ? ORDER BY due_ms LIMIT ?',
    [nowMs, limit],
  );
  if (due.length === 0) return [];
  const ids = due.map(({ mail_id }) => mail_id);
  return database.write(
    (tx) =>
      tx.query<QueuedMail>(
        `UPDATE mail_queue SET due_ms = ?, attempts = attempts + 1 WHERE due_ms <= ? AND ${tx.dialect.anyOf('mail_id')}
          RETURNING mail_id, recipient, subject, text_body, html_body, headers, expires_ms, attempts`,
        [leaseEndMs, nowMs, ids],
      ),
    { name: 'claim_mails' },
  );
}

/** Removes mails that are sent or given up. */
export async function deleteMails(tx: Tx, ids: readonly string[]): Promise<void> {
  await tx.run(`DELETE FROM mail_queue WHERE ${tx.dialect.anyOf('mail_id')}`, [ids]);
}

/** Makes mails due again at one time. */
export async function postponeMails(tx: Tx, ids: readonly string[], dueMs: number): Promise<void> {
  await tx.run(`UPDATE mail_queue SET due_ms = ? WHERE ${tx.dialect.anyOf('mail_id')}`, [dueMs, ids]);
}

/** When the next mail is due, ms since the epoch; `undefined` when the queue is empty. */
export async function nextDueMs(db: Db): Promise<number | undefined> {
  const row = await db.get<{ due_ms: number | null }>('SELECT MIN(due_ms) AS due_ms FROM mail_queue');
  return row?.due_ms ?? undefined;
}
