import { Injectable, type OnModuleInit } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { deleteAccountDataOfRoom, UserHooks } from '@rookery/users';
import { RoomHooks } from '../hooks.js';
import { holdRooms } from '../store/room-hold.query.js';
import { selectUsersOf } from './purge.query.js';

/**
 * What users keep about a room goes with the room: tags, marks, how far they have read. Nobody could see or delete it any more. Clients
 * may keep things about rooms that this server does not know, and so about one that is gone; what the server itself has checked
 * against a room is not stored without it.
 */
@Injectable()
export class RoomAccountData implements OnModuleInit {
  constructor(
    private readonly hooks: RoomHooks,
    private readonly userHooks: UserHooks,
  ) {}

  onModuleInit(): void {
    this.hooks.subscribe({
      onRoomPurged: async (tx, roomId) => deleteAccountDataOfRoom(tx, roomId, await selectUsersOf(tx, roomId)),
    });
    this.userHooks.roomDataChanging.subscribe({
      inTransaction: async (tx, { roomId, type }) => {
        const isThere = (await holdRooms(tx, [roomId])).has(roomId);
        if (!isThere && type === 'm.fully_read') throw MatrixError.notFound('There is no such room any more');
      },
    });
  }
}
