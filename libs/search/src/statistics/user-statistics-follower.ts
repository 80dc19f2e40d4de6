import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Lifecycle } from '@rookery/platform';
import { backgroundRole, cursorOf, FollowerSharing, forgetCursor, Notifier, saveCursor } from '@rookery/replication';
import { UserStatistics } from './user-statistics.js';
import { countJoinedRooms, deleteUserStatistics, selectMovedUsers, selectUsers } from './user-statistics.query.js';

const stream = 'events';
const cursor = 'user_stats';
/** What comes meanwhile is counted together. */
const pauseMs = 1_000;
const maxPositions = 10_000;
/** Users whose rooms are counted in one transaction. */
const maxUsers = 500;
const saveEveryMs = 60_000;

/**
 * Counts users anew soon after their memberships have changed: from what is then, so that it matters little who counts, or how often. Where
 * nothing is to be counted, no counts are kept that would grow old: they are made anew when they are wanted again.
 */
@Injectable()
export class UserStatisticsFollower implements OnModuleInit {
  constructor(
    private readonly statistics: UserStatistics,
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly lifecycle: Lifecycle,
    private readonly sharing: FollowerSharing,
  ) {}

  onModuleInit(): void {
    this.lifecycle.on('streams', { name: 'statistics of users', start: () => this.#begin() });
    if (!this.statistics.isEnabled) return;
    this.sharing.share({
      ...{ name: cursor, stream, role: backgroundRole, pauseMs, saveEveryMs, startAt: 'once stored' },
      advance: (after, upTo, signal) => this.#advance(after, Math.min(upTo, after + maxPositions), signal),
    });
  }

  /** Has everybody counted where nobody was; where nothing is to be counted, forgets what was. */
  async #begin(): Promise<void> {
    const isBegun = (await cursorOf(this.database, cursor)) !== undefined;
    if (!this.statistics.isEnabled) return isBegun ? this.#forget() : undefined;
    if (isBegun) return;
    const position = this.notifier.position(stream);
    if ((await selectUsers(this.database, '', 1)).length > 0) await this.statistics.countAll();
    await this.database.write((tx) => saveCursor(tx, cursor, position), { name: 'begin_user_stats' });
  }

  async #forget(): Promise<void> {
    await this.database.write(
      async (tx) => {
        await deleteUserStatistics(tx);
        await forgetCursor(tx, cursor);
      },
      { name: 'forget_user_stats' },
    );
  }

  async #advance(after: number, upTo: number, signal: AbortSignal): Promise<number> {
    const moved = await selectMovedUsers(this.database, after, upTo);
    for (let start = 0; start < moved.length; start += maxUsers) {
      signal.throwIfAborted();
      await this.database.write((tx) => countJoinedRooms(tx, moved.slice(start, start + maxUsers)), {
        ...{ name: 'count_joined_rooms', anyProcess: true },
      });
    }
    return upTo;
  }
}
