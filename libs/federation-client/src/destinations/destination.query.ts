import { type Db, likeText, type SqlValue, type Tx } from '@rookery/database';

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

/** The same for many; those never written down are absent. */
export async function backoffsOf(db: Db, destinations: readonly string[]): Promise<Map<string, BackoffRow>> {
  const rows = await db.query<BackoffRow & { destination: string }>(
    `SELECT destination, failure_ts, COALESCE(retry_last_ts, 0) AS retry_last_ts,
       COALESCE(retry_interval, 0) AS retry_interval
       FROM destinations WHERE ${db.dialect.anyOf('destination')}`,
    [destinations],
  );
  return new Map(rows.map(({ destination, ...row }) => [destination, row]));
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

/** Forgets servers that have never got anything, unless they were tried since. */
export async function deleteDestinations(tx: Tx, destinations: readonly string[], beforeTs: number): Promise<void> {
  await tx.run(
    `DELETE FROM destinations WHERE ${tx.dialect.anyOf('destination')} AND last_successful_stream_ordering IS NULL
       AND retry_last_ts < ?`,
    [destinations, beforeTs],
  );
}

/** A server as an administrator sees it. Times are milliseconds. */
export interface DestinationRow {
  readonly destination: string;
  readonly retry_last_ts: number;
  readonly retry_interval: number;
  readonly failure_ts: number | null;
  /** Position of the newest event that it has got. */
  readonly last_successful_stream_ordering: number | null;
}

/** By what a list of servers can be ordered. */
export const destinationOrders = [
  'destination',
  'retry_last_ts',
  'retry_interval',
  'failure_ts',
  'last_successful_stream_ordering',
] as const;

/** Which servers an administrator wants to see. */
export interface DestinationSearch {
  /** Part of the name. */
  readonly name: string | undefined;
  readonly orderBy: (typeof destinationOrders)[number];
  readonly descending: boolean;
  readonly offset: number;
  readonly limit: number;
}

const columns = `destination, COALESCE(retry_last_ts, 0) AS retry_last_ts, COALESCE(retry_interval, 0) AS retry_interval,
  failure_ts, last_successful_stream_ordering`;

/** A page of servers, with the number of all that fit; what has no value goes last, and first where the order is turned around. */
export async function selectDestinations(
  db: Db,
  search: DestinationSearch,
): Promise<{ readonly destinations: DestinationRow[]; readonly total: number }> {
  const where = search.name === undefined ? '' : `WHERE LOWER(destination) LIKE ? ESCAPE '\\'`;
  const params: SqlValue[] = search.name === undefined ? [] : [`%${likeText(search.name.toLowerCase())}%`];
  const direction = search.descending ? 'DESC' : 'ASC';
  // As they are shown: who was never tried again has 0 there.
  const isRetry = search.orderBy === 'retry_last_ts' || search.orderBy === 'retry_interval';
  const column = isRetry ? `COALESCE(${search.orderBy}, 0)` : search.orderBy;
  const [destinations, count] = await Promise.all([
    db.query<DestinationRow>(
      `SELECT ${columns} FROM destinations ${where}
       ORDER BY ${column} ${direction} NULLS ${search.descending ? 'FIRST' : 'LAST'}, destination ${direction}
       LIMIT ? OFFSET ?`,
      [...params, search.limit, search.offset],
    ),
    db.get<{ total: number }>(`SELECT COUNT(*) AS total FROM destinations ${where}`, params),
  ]);
  return { destinations, total: Number(count?.total ?? 0) };
}

export function selectDestination(db: Db, destination: string): Promise<DestinationRow | undefined> {
  return db.get<DestinationRow>(`SELECT ${columns} FROM destinations WHERE destination = ?`, [destination]);
}

/** Up to which place servers have got what they were to get. */
export async function writeSuccesses(tx: Tx, successes: ReadonlyMap<string, number>): Promise<void> {
  await tx.insertMany(
    'destinations',
    ['destination', 'last_successful_stream_ordering'],
    [...successes].map(([destination, ordering]) => [destination, ordering]),
    `ON CONFLICT (destination) DO UPDATE SET last_successful_stream_ordering = excluded.last_successful_stream_ordering
       WHERE COALESCE(destinations.last_successful_stream_ordering, 0) < excluded.last_successful_stream_ordering`,
  );
}

/** The place up to which a server has got everything, or what took its place. */
export async function lastSuccessOf(db: Db, destination: string): Promise<number> {
  const row = await db.get<{ ordering: number | null }>(
    'SELECT last_successful_stream_ordering AS ordering FROM destinations WHERE destination = ?',
    [destination],
  );
  return row?.ordering ?? 0;
}
