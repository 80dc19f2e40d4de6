import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { selectFirstMembers } from './room-heroes.query.js';

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
    const rows = await selectFirstMembers(this.database, roomIds, exceptUserId, memberships, heroCount);
    for (const row of rows) {
      const users = rooms.get(row.room_id);
      if (users) users.push(row.state_key);
      else rooms.set(row.room_id, [row.state_key]);
    }
    return rooms;
  }
}
