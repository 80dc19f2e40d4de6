import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';

/** Rooms that nobody of this server may join. */
@Injectable()
export class RoomBlocking {
  constructor(private readonly database: Database) {}

  /** @param adminId who blocks it. A room need not be known to be blocked. */
  async block(roomId: string, adminId: string): Promise<void> {
    await this.database.write(
      (tx) =>
        tx.run('INSERT INTO blocked_rooms (room_id, user_id) VALUES (?, ?) ON CONFLICT (room_id) DO NOTHING', [
          roomId,
          adminId,
        ]),
      { name: 'block_room' },
    );
  }

  async unblock(roomId: string): Promise<void> {
    await this.database.write((tx) => tx.run('DELETE FROM blocked_rooms WHERE room_id = ?', [roomId]), {
      name: 'unblock_room',
    });
  }

  /** Who blocked a room; `undefined` when it is not blocked. */
  async blockedBy(roomId: string): Promise<string | undefined> {
    const row = await this.database.get<{ user_id: string }>('SELECT user_id FROM blocked_rooms WHERE room_id = ?', [
      roomId,
    ]);
    return row?.user_id;
  }
}
