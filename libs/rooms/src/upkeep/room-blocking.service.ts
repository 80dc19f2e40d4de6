import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { deleteBlock, insertBlock, selectBlocker } from './room-blocking.query.js';

/** Rooms that nobody of this server may join. */
@Injectable()
export class RoomBlocking {
  constructor(private readonly database: Database) {}

  /** @param adminId who blocks it. A room need not be known to be blocked. */
  async block(roomId: string, adminId: string): Promise<void> {
    await this.database.write((tx) => insertBlock(tx, roomId, adminId), { name: 'block_room' });
  }

  async unblock(roomId: string): Promise<void> {
    await this.database.write((tx) => deleteBlock(tx, roomId), { name: 'unblock_room' });
  }

  /** Who blocked a room; `undefined` when it is not blocked. */
  blockedBy(roomId: string): Promise<string | undefined> {
    return selectBlocker(this.database, roomId);
  }
}
