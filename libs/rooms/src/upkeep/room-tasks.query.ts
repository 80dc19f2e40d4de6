import type { Db, Tx } from '@rookery/database';

export type TaskStatus = 'scheduled' | 'active' | 'complete' | 'cancelled' | 'failed';

export interface TaskRow {
  readonly id: string;
  readonly action: string;
  readonly status: TaskStatus;
  readonly timestamp: number;
  readonly resource_id: string | null;
  readonly params: string | null;
  readonly result: string | null;
  readonly error: string | null;
}

const columns = 'id, action, status, timestamp, resource_id, params, result, error';

export async function insertTask(tx: Tx, task: TaskRow): Promise<void> {
  await tx.insertMany('scheduled_tasks', columns.split(', '), [
    [task.id, task.action, task.status, task.timestamp, task.resource_id, task.params, task.result, task.error],
  ]);
}

export async function updateTask(
  tx: Tx,
  id: string,
  status: TaskStatus,
  result: string | null,
  error: string | null,
  timestamp: number,
): Promise<void> {
  await tx.run('UPDATE scheduled_tasks SET status = ?, result = ?, error = ?, timestamp = ? WHERE id = ?', [
    status,
    result,
    error,
    timestamp,
    id,
  ]);
}

export function selectTask(db: Db, id: string): Promise<TaskRow | undefined> {
  return db.get<TaskRow>(`SELECT ${columns} FROM scheduled_tasks WHERE id = ?`, [id]);
}

/** Which tasks are wanted; what is absent does not matter. */
export interface TaskSearch {
  /** Any of these; of none, all. */
  readonly actions?: readonly string[] | undefined;
  readonly resourceId?: string | undefined;
  /** Any of these; of none, all. */
  readonly statuses?: readonly TaskStatus[] | undefined;
  /** Last changed at or before. */
  readonly maxTimestamp?: number | undefined;
}

/** The tasks that fit, the oldest first; of more than `limit` the newest. */
export function selectTasks(db: Db, search: TaskSearch, limit: number): Promise<TaskRow[]> {
  const wanted = [
    [db.dialect.anyOf('action'), search.actions?.length ? search.actions : undefined],
    ['resource_id = ?', search.resourceId],
    [db.dialect.anyOf('status'), search.statuses?.length ? search.statuses : undefined],
    ['timestamp <= ?', search.maxTimestamp],
  ] as const;
  const given = wanted.filter(([, value]) => value !== undefined);
  const where = given.length === 0 ? '' : `WHERE ${given.map(([condition]) => condition).join(' AND ')}`;
  return db.query<TaskRow>(
    `SELECT * FROM (SELECT ${columns} FROM scheduled_tasks ${where} ORDER BY timestamp DESC, id DESC
       LIMIT ${Math.trunc(limit)}) AS newest ORDER BY timestamp, id`,
    given.map(([, value]) => value!),
  );
}

/** Tasks about a room, the newest first. */
export function selectTasksOf(db: Db, resourceId: string): Promise<TaskRow[]> {
  return db.query<TaskRow>(
    `SELECT ${columns} FROM scheduled_tasks WHERE resource_id = ? ORDER BY timestamp DESC LIMIT 100`,
    [resourceId],
  );
}

export function selectUnfinished(db: Db): Promise<TaskRow[]> {
  return db.query<TaskRow>(
    `SELECT ${columns} FROM scheduled_tasks WHERE status IN ('scheduled', 'active') ORDER BY timestamp`,
  );
}

export async function deleteFinished(tx: Tx, beforeTs: number): Promise<void> {
  await tx.run(`DELETE FROM scheduled_tasks WHERE status IN ('complete', 'cancelled', 'failed') AND timestamp < ?`, [
    beforeTs,
  ]);
}
