import type { DataStores, Db } from '@rookery/database';

/** How much space a room takes, about. */
export interface RoomSize {
  readonly room_id: string;
  /** Bytes, indexes included. */
  readonly estimated_size: number;
}

/** Tables with a row or more per event of a room. */
const tables = ['events', 'event_json', 'state_events', 'state_groups_state', 'room_memberships', 'event_search'];

/**
 * The rooms that take the most space, the largest first. PostgreSQL only: it keeps in its statistics which rooms a table is
 * full of, so that nothing has to be counted; before the first of its analyses it is.
 */
export async function largestRooms({ main, state, isSplit }: DataStores, limit: number): Promise<RoomSize[]> {
  const known = isSplit
    ? merged([...(await knownSizes(main, limit + spare)), ...(await knownSizes(state, limit + spare))])
    : await knownSizes(main, limit);
  const rows = known.length > 0 ? known : await countedSizes(main, limit);
  return rows
    .slice(0, limit)
    .map((row) => ({ room_id: row.room_id, estimated_size: Math.round(Number(row.estimated_size)) }));
}

interface SizeRow {
  readonly room_id: string;
  readonly estimated_size: number | string;
}

/** What one of two databases is asked for beyond what is wanted: a room may be large in both, and among the largest in neither. */
const spare = 1_000;

/** What two databases say of rooms, together. */
function merged(rows: readonly SizeRow[]): SizeRow[] {
  const sizes = new Map<string, number>();
  for (const { room_id: roomId, estimated_size: size } of rows)
    sizes.set(roomId, (sizes.get(roomId) ?? 0) + Number(size));
  return [...sizes]
    .map(([roomId, size]) => ({ room_id: roomId, estimated_size: size }))
    .sort((a, b) => b.estimated_size - a.estimated_size || (a.room_id < b.room_id ? -1 : 1));
}

const knownSizes = (db: Db, limit: number): Promise<SizeRow[]> =>
  db.query<SizeRow>(
    `SELECT s.room_id, SUM(s.share * pg_total_relation_size(s.relation)) AS estimated_size FROM (
       SELECT (quote_ident(schemaname) || '.' || quote_ident(tablename))::regclass AS relation,
         unnest(most_common_vals::text::text[]) AS room_id, unnest(most_common_freqs) AS share
       FROM pg_stats WHERE schemaname = current_schema() AND attname = 'room_id' AND ${db.dialect.anyOf('tablename')}
     ) AS s GROUP BY s.room_id ORDER BY estimated_size DESC, s.room_id LIMIT ${Math.trunc(limit)}`,
    [tables],
  );

const countedSizes = (db: Db, limit: number): Promise<SizeRow[]> =>
  db.query<SizeRow>(
    `SELECT room_id, SUM(octet_length(json)) AS estimated_size FROM event_json GROUP BY room_id
     ORDER BY estimated_size DESC, room_id LIMIT ${Math.trunc(limit)}`,
  );
