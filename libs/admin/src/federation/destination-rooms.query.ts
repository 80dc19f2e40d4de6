import type { Db } from '@rookery/database';
import type { Page } from '../http/paging.js';

/** A room of which a server was to get something, with the position of the newest event of it. */
export interface DestinationRoomRow {
  readonly room_id: string;
  readonly stream_ordering: number;
}

/** A page of the rooms that a server shares, by id, with the number of all of them. */
export async function selectDestinationRooms(
  db: Db,
  destination: string,
  page: Page,
  descending: boolean,
): Promise<{ readonly rooms: DestinationRoomRow[]; readonly total: number }> {
  const [rooms, count] = await Promise.all([
    db.query<DestinationRoomRow>(
      `SELECT room_id, stream_ordering FROM destination_rooms WHERE destination = ?
       ORDER BY room_id ${descending ? 'DESC' : 'ASC'} LIMIT ? OFFSET ?`,
      [destination, page.limit, page.from],
    ),
    db.get<{ total: number }>('SELECT COUNT(*) AS total FROM destination_rooms WHERE destination = ?', [destination]),
  ]);
  return { rooms, total: Number(count?.total ?? 0) };
}
