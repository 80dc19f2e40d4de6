import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type Requester } from '@rookery/platform';
import { type EventBatch, RoomHooks } from '../hooks.js';
import { forget, hasEverBeenNear, roomExists } from './membership.query.js';

/** Takes rooms that were left out of sight: when a user wants that, or as soon as they are out of one, where the server is set so. */
@Injectable()
export class RoomForgetting {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly hooks: RoomHooks,
    private readonly config: Config,
  ) {
    hooks.subscribe({
      inTransaction: async (tx, batch) => {
        for (const userId of this.#goneIn(batch)) await forget(tx, userId, batch.roomId, this.clock.nowMs());
      },
      afterCommit: (batch) => {
        for (const userId of this.#goneIn(batch)) this.#told(userId, batch.roomId);
      },
    });
  }

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
    if (forgotten) this.#told(userId, roomId);
    return forgotten;
  }

  #told(userId: string, roomId: string): void {
    for (const hook of this.hooks.all) hook.onForgotten?.(userId, roomId);
  }

  /** Users of this server who are to forget a room because they are in it no more, whoever saw to that. */
  #goneIn({ backfilled, moves, events }: EventBatch): ReadonlySet<string> {
    if (backfilled || !this.config.get('forget_rooms_on_leave')) return nobody;
    const gone = moves.filter(({ membership }) => isOut(membership)).map(({ userId }) => userId);
    // Of a room in which this server has nobody there are no moves.
    for (const { event, outlier, rejectedReason } of events) {
      if (!outlier || rejectedReason !== undefined || event.type !== 'm.room.member') continue;
      if (event.stateKey !== undefined && isOut(event.content['membership'])) gone.push(event.stateKey);
    }
    return new Set(gone.filter((userId) => domainOf(userId) === this.config.serverName));
  }
}

const nobody: ReadonlySet<string> = new Set();

const isOut = (membership: unknown): boolean =>
  membership === undefined || membership === 'leave' || membership === 'ban';
