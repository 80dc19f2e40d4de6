import type { Db, Tx } from '@rookery/database';

/** Since when a server cannot be reached, and when it may be tried again. Times are milliseconds. */
export interface BackoffRow {
  readonly failure_ts: number | null;
  readonly retry_last_ts: number;
  readonly retry_interval: number;
}

/** `undefined` for a server that was never written down. */
export function backoffOf(db: Db, destination: string): Promise<BackoffRow | undefined> {
  return db.get<BackoffRow>(
    `SELECT failure_ts, COALESCE(retry_last_ts, 0) AS retry_last_ts, COALESCE(retry_interval, 0) AS retry_interval
       FROM destinations WHERE destination = ?`,
    [destination],
  );
}

/** Writes a failure down, unless another process did for a later time. */
export async function storeFailure(tx: Tx, destination: string, row: BackoffRow): Promise<void> {
  await tx.run(
    `INSERT INTO destinations (destination, failure_ts, retry_last_ts, retry_interval) VALUES (?, ?, ?, ?)
       ON CONFLICT (destination) DO UPDATE SET
         failure_ts = COALESCE(destinations.failure_ts, excluded.failure_ts),
         retry_last_ts = excluded.retry_last_ts, retry_interval = excluded.retry_interval
       WHERE COALESCE(destinations.retry_last_ts, 0) <= excluded.retry_last_ts`,
    [destination, row.failure_ts, row.retry_last_ts, row.retry_interval],
  );
}

export async function clearFailure(tx: Tx, destination: string): Promise<void> {
  await tx.run(
    `UPDATE destinations SET failure_ts = NULL, retry_last_ts = 0, retry_interval = 0
       WHERE destination = ? AND (failure_ts IS NOT NULL OR retry_interval > 0)`,
    [destination],
  );
}
