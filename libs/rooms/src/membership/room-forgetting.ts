import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, type Requester } from '@rookery/platform';
import { RoomHooks } from '../hooks.js';
import { forget, hasEverBeenNear, roomExists } from './membership.query.js';

/** Takes rooms that were left out of sight. */
@Injectable()
export class RoomForgetting {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly hooks: RoomHooks,
  ) {}

  /**
   * Takes a room that was left out of the user's sight.
   * @throws MatrixError 400 `M_UNKNOWN` while the user is still in it, 404 `M_NOT_FOUND` when it is not known
   */
  async forget(requester: Requester, roomId: string): Promise<void> {
    const { userId } = requester;
    if (!(await roomExists(this.database, roomId))) throw MatrixError.noSuchRoom();
    if (await this.forgetLeft(userId, roomId)) return;
    if (!(await hasEverBeenNear(this.database, userId, roomId))) return;
    throw MatrixError.badRequest('You must leave the room before you can forget it');
  }

  /** @returns `false`, and nothing is done, where the user has not left the room */
  async forgetLeft(userId: string, roomId: string): Promise<boolean> {
    const forgotten = await this.database.write((tx) => forget(tx, userId, roomId, this.clock.nowMs()), {
      name: 'forget_room',
    });
    if (forgotten) for (const hook of this.hooks.all) hook.onForgotten?.(userId, roomId);
    return forgotten;
  }
}
