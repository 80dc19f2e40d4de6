import type { Db, Tx } from '@rookery/database';

/** A row of `module_jobs`. */
export interface JobRow {
  readonly job_id: string;
  readonly handler: string;
  /** JSON. */
  readonly payload: string;
  /** Of a job that is repeated. */
  readonly period_ms: number | null;
  /** When it is to run; while it is running, when its lease ends. */
  readonly due_ms: number;
  /** How often it was begun since it was stored, or last ended well. */
  readonly attempts: number;
}

/** A job that was taken, with when it should have begun. */
export interface ClaimedJob extends Omit<JobRow, 'due_ms'> {
  readonly dueMs: number;
  readonly lease: string;
}

const columns = 'job_id, handler, payload, period_ms, due_ms, attempts';

/** Jobs of these handlers that are due, longest due first. */
export function dueJobs(db: Db, handlers: readonly string[], nowMs: number, limit: number): Promise<JobRow[]> {
  return db.query<JobRow>(
    `SELECT ${columns} FROM module_jobs WHERE ${db.dialect.anyOf('handler')} AND due_ms <= ? ORDER BY due_ms LIMIT ?`,
    [handlers, nowMs, limit],
  );
}

/** When the next job of these handlers is due; `undefined` when there is none. */
export async function nextDueMs(db: Db, handlers: readonly string[]): Promise<number | undefined> {
  const row = await db.get<{ due_ms: number | null }>(
    `SELECT MIN(due_ms) AS due_ms FROM module_jobs WHERE ${db.dialect.anyOf('handler')}`,
    [handlers],
  );
  return row?.due_ms ?? undefined;
}

/** Takes jobs that are still due until the lease ends; then they are due again. Ids of those that were got, with attempts. */
export async function claimJobs(
  tx: Tx,
  jobIds: readonly string[],
  lease: string,
  nowMs: number,
  leaseEndMs: number,
): Promise<Map<string, number>> {
  const rows = await tx.query<{ job_id: string; attempts: number }>(
    `UPDATE module_jobs SET lease = ?, due_ms = ?, attempts = attempts + 1
     WHERE due_ms <= ? AND ${tx.dialect.anyOf('job_id')} RETURNING job_id, attempts`,
    [lease, leaseEndMs, nowMs, jobIds],
  );
  return new Map(rows.map((row) => [row.job_id, row.attempts]));
}

/** Keeps jobs that are still running. */
export async function renewLeases(tx: Tx, jobs: readonly ClaimedJob[], leaseEndMs: number): Promise<void> {
  await tx.run(
    `UPDATE module_jobs SET due_ms = ? WHERE ${tx.dialect.anyOf('job_id')} AND ${tx.dialect.anyOf('lease')}`,
    [leaseEndMs, jobs.map((job) => job.job_id), [...new Set(jobs.map((job) => job.lease))]],
  );
}

/** Makes a job that was run due at another time. Does nothing when it was replaced meanwhile. */
export async function postponeJob(tx: Tx, job: ClaimedJob, dueMs: number, attempts: number): Promise<void> {
  await tx.run('UPDATE module_jobs SET due_ms = ?, lease = NULL, attempts = ? WHERE job_id = ? AND lease = ?', [
    dueMs,
    attempts,
    job.job_id,
    job.lease,
  ]);
}

/**
 * Makes a repeated job due one period after it last was; where that is over, one after now. The period is the one that holds by
 * now. Does nothing when another process took it meanwhile.
 */
export async function postponeRepeated(tx: Tx, job: ClaimedJob, nowMs: number): Promise<void> {
  await tx.run(
    `UPDATE module_jobs SET due_ms = CASE WHEN ? + period_ms > ? THEN ? + period_ms ELSE ? + period_ms END, lease = NULL, attempts = 0
     WHERE job_id = ? AND lease = ?`,
    [job.dueMs, nowMs, job.dueMs, nowMs, job.job_id, job.lease],
  );
}

/** Forgets a job that was run. Does nothing when it was replaced meanwhile. */
export async function finishJob(tx: Tx, job: ClaimedJob): Promise<void> {
  await tx.run('DELETE FROM module_jobs WHERE job_id = ? AND lease = ?', [job.job_id, job.lease]);
}

/** Stores a call, in place of a waiting one of the same id. */
export async function storeCall(tx: Tx, id: string, handler: string, dueMs: number, payload: string): Promise<void> {
  await tx.run(
    `INSERT INTO module_jobs (job_id, handler, payload, due_ms) VALUES (?, ?, ?, ?)
     ON CONFLICT (job_id) DO UPDATE SET payload = excluded.payload, due_ms = excluded.due_ms, lease = NULL, attempts = 0`,
    [id, handler, payload, dueMs],
  );
}

/**
 * Stores a repeated job. One that is there keeps its time, unless its period is another one now: then it is due after one of
 * these, or, while it runs, once it has ended.
 */
export async function storeRepeated(
  tx: Tx,
  id: string,
  handler: string,
  periodMs: number,
  nowMs: number,
): Promise<void> {
  await tx.run(
    `INSERT INTO module_jobs (job_id, handler, payload, period_ms, due_ms) VALUES (?, ?, 'null', ?, ?)
     ON CONFLICT (job_id) DO UPDATE SET period_ms = excluded.period_ms,
       due_ms = CASE WHEN module_jobs.lease IS NULL THEN excluded.due_ms ELSE module_jobs.due_ms END
     WHERE module_jobs.period_ms <> excluded.period_ms`,
    [id, handler, periodMs, nowMs + periodMs],
  );
}

/** Whether there was such a job. */
export async function deleteJob(tx: Tx, id: string): Promise<boolean> {
  return (await tx.run('DELETE FROM module_jobs WHERE job_id = ?', [id])) > 0;
}

/** Forgets what has been due since before a moment and none of these handlers is there for: its module is gone. */
export async function deleteOldJobs(tx: Tx, handlers: readonly string[], beforeMs: number): Promise<void> {
  await tx.run(`DELETE FROM module_jobs WHERE due_ms < ? AND ${tx.dialect.noneOf('handler')}`, [beforeMs, handlers]);
}
