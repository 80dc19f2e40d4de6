import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';

/** How many heroes a room summary names. @spec client-server-api#get_matrixclientv3sync */
const heroCount = 5;

/** The members by which a room without a name is called. */
@Injectable()
export class RoomHeroes {
  constructor(private readonly database: Database) {}

  /**
   * For each room the first five joined or invited members beside `exceptUserId`, in the order of their member events;
   * where there are none, those who left or were banned. One query per kind for all rooms.
   */
  async of(roomIds: readonly string[], exceptUserId: string): Promise<Map<string, string[]>> {
    const heroes = await this.#first(roomIds, exceptUserId, ['join', 'invite']);
    const empty = roomIds.filter((roomId) => !heroes.has(roomId));
    if (empty.length === 0) return heroes;
    for (const [roomId, users] of await this.#first(empty, exceptUserId, ['leave', 'ban'])) heroes.set(roomId, users);
    return heroes;
  }

  async #first(
    roomIds: readonly string[],
    exceptUserId: string,
    memberships: string[],
  ): Promise<Map<string, string[]>> {
    const rooms = new Map<string, string[]>();
    if (roomIds.length === 0) return rooms;
    const { dialect } = this.database;
    const rows = await this.database.query<{ room_id: string; state_key: string }>(
      `SELECT room_id, state_key FROM (
         SELECT room_id, state_key, ROW_NUMBER() OVER (PARTITION BY room_id ORDER BY event_stream_ordering) AS place
         FROM current_state_events
         WHERE ${dialect.anyOf('room_id')} AND type = 'm.room.member' AND ${dialect.anyOf('membership')} AND state_key <> ?
       ) AS ranked WHERE place <= ${heroCount} ORDER BY room_id, place`,
      [roomIds, memberships, exceptUserId],
    );
    for (const row of rows) {
      const users = rooms.get(row.room_id);
      if (users) users.push(row.state_key);
      else rooms.set(row.room_id, [row.state_key]);
    }
    return rooms;
  }
}
