import { Injectable, type OnModuleInit } from '@nestjs/common';
import { type BackgroundUpdate, BackgroundUpdates, defineBackgroundUpdate } from '@rookery/database';
import { Config } from '@rookery/platform';
import { RoomHooks } from '@rookery/rooms';
import { countJoinedRooms, selectUsers, selectUsersOfRoom } from './user-statistics.query.js';

/** Of the field: operators queue it by this name. */
const updateName = 'populate_stats_process_users';

/** `user_stats_current`: how many rooms each user of this server is in, where `stats.enabled` says so. */
@Injectable()
export class UserStatistics implements OnModuleInit {
  readonly isEnabled: boolean;

  constructor(
    config: Config,
    private readonly hooks: RoomHooks,
    private readonly updates: BackgroundUpdates,
  ) {
    this.isEnabled = config.get('stats.enabled');
  }

  onModuleInit(): void {
    this.updates.register(this.#update());
    if (!this.isEnabled) return;
    // Whoever left a moment ago is still to be counted, and what tells of it goes with the room.
    this.hooks.subscribe({
      onRoomPurged: async (tx, roomId) => countJoinedRooms(tx, await selectUsersOfRoom(tx, roomId), roomId),
    });
  }

  /** Has all users counted anew, in the background. */
  async countAll(): Promise<void> {
    await this.updates.queue(updateName);
  }

  #update(): BackgroundUpdate {
    return defineBackgroundUpdate({
      name: updateName,
      run: async ({ tx, progress, batchSize }) => {
        const after = typeof progress['after'] === 'string' ? progress['after'] : '';
        const userIds = this.isEnabled ? await selectUsers(tx, after, batchSize) : [];
        await countJoinedRooms(tx, userIds);
        return {
          items: userIds.length,
          progress: { after: userIds.at(-1) ?? after },
          finished: userIds.length < Math.trunc(batchSize),
        };
      },
    });
  }
}
