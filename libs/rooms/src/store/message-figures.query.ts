import type { Db } from '@rookery/database';

const dayMs = 86_400_000;

/** What was said within the last day. */
export interface MessageFigures {
  readonly rooms: number;
  readonly activeRooms: number;
  readonly activeEncryptedRooms: number;
  readonly messages: number;
  readonly encrypted: number;
  /** Of these, those of this server's own users. */
  readonly sent: number;
  readonly sentEncrypted: number;
}

/** Counts rooms and a day's messages. Reads the events of a day: for reports, not for requests. */
export async function messageFigures(db: Db, serverName: string, nowMs: number): Promise<MessageFigures> {
  const from = await firstSince(db, nowMs - dayMs);
  const isOwn = `sender LIKE ? ESCAPE '\\'`;
  const own = `%:${serverName.replace(/[%_\\]/g, '\\$&')}`;
  const [rooms, said] = await Promise.all([
    db.get<{ total: number }>('SELECT COUNT(*) AS total FROM rooms'),
    db.query<{ type: string; total: number; sent: number; rooms: number }>(
      `SELECT type, COUNT(*) AS total, COUNT(CASE WHEN ${isOwn} THEN 1 END) AS sent, COUNT(DISTINCT room_id) AS rooms
       FROM events WHERE stream_ordering >= ? AND type IN ('m.room.message', 'm.room.encrypted') AND outlier = FALSE
       GROUP BY type`,
      [own, from],
    ),
  ]);
  const activeRooms = await db.get<{ total: number }>(
    `SELECT COUNT(DISTINCT room_id) AS total FROM events
     WHERE stream_ordering >= ? AND type IN ('m.room.message', 'm.room.encrypted') AND outlier = FALSE`,
    [from],
  );
  const of = (type: string, column: 'total' | 'sent' | 'rooms'): number =>
    Number(said.find((row) => row.type === type)?.[column] ?? 0);
  return {
    rooms: Number(rooms?.total ?? 0),
    activeRooms: Number(activeRooms?.total ?? 0),
    activeEncryptedRooms: of('m.room.encrypted', 'rooms'),
    messages: of('m.room.message', 'total'),
    encrypted: of('m.room.encrypted', 'total'),
    sent: of('m.room.message', 'sent'),
    sentEncrypted: of('m.room.encrypted', 'sent'),
  };
}

/** The stream position of the first event received since a moment, found by halving: positions grow with time. */
async function firstSince(db: Db, sinceMs: number): Promise<number> {
  const newest = await db.get<{ top: number | null }>('SELECT MAX(stream_ordering) AS top FROM events');
  let low = 1;
  let high = Number(newest?.top ?? 0) + 1;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const row = await db.get<{ stream_ordering: number; received_ts: number }>(
      'SELECT stream_ordering, received_ts FROM events WHERE stream_ordering >= ? ORDER BY stream_ordering LIMIT 1',
      [middle],
    );
    if (row === undefined || row.received_ts >= sinceMs) high = middle;
    else low = row.stream_ordering + 1;
  }
  return low;
}
