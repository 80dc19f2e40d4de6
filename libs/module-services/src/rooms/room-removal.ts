import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { RoomBlocking, RoomShutdown, RoomStateReader } from '@rookery/rooms';
import { checkRoomId } from './check-room-id.js';
import { nobodyOf } from './nobody.js';

/** How modules end rooms. */
@Injectable()
export class ModuleRoomRemoval {
  constructor(
    private readonly config: Config,
    private readonly state: RoomStateReader,
    private readonly shutdown: RoomShutdown,
    private readonly blocking: RoomBlocking,
  ) {}

  async deleteRoom(roomId: string): Promise<void> {
    checkRoomId(roomId);
    if ((await this.state.currentId(roomId, 'm.room.create')) === undefined) throw MatrixError.noSuchRoom();
    const everything = { block: false, purge: true, forcePurge: true };
    const requesterId = nobodyOf(this.config);
    await this.shutdown.start(roomId, { requesterId, ...everything }, false, { source: 'module' });
  }

  async setRoomBlocked(roomId: string, blocked: boolean): Promise<void> {
    checkRoomId(roomId);
    if (blocked) await this.blocking.block(roomId, nobodyOf(this.config));
    else await this.blocking.unblock(roomId);
  }
}
