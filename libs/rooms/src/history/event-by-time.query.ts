import type { Db } from '@rookery/database';
import { servableSql } from '../store/servable.query.js';

/** A place in the order of time: origin_server_ts, depth, stream ordering. */
export type TimePlace = readonly [ts: number, depth: number, streamOrdering: number];

/**
 * Ids of events on one side of a time, the nearest first.
 * @param behind those that come after this place
 */
export async function selectNearest(
  db: Db,
  roomId: string,
  ts: number,
  direction: 'f' | 'b',
  behind: TimePlace | undefined,
  limit: number,
): Promise<string[]> {
  const [order, further] = direction === 'f' ? ['ASC', '>'] : ['DESC', '<'];
  const onward = `AND (e.origin_server_ts, e.topological_ordering, e.stream_ordering) ${further} (?, ?, ?)`;
  const rows = await db.query<{ event_id: string }>(
    `SELECT e.event_id FROM events e WHERE e.room_id = ? AND e.origin_server_ts ${direction === 'f' ? '>=' : '<='} ?
       AND ${servableSql('e.')} ${behind ? onward : ''}
     ORDER BY e.origin_server_ts ${order}, e.topological_ordering ${order}, e.stream_ordering ${order} LIMIT ?`,
    [roomId, ts, ...(behind ?? []), limit],
  );
  return rows.map((row) => row.event_id);
}
