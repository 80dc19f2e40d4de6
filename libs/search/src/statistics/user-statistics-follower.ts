import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Lifecycle, Logger } from '@rookery/platform';
import { cursorOf, Follower, forgetCursor, Notifier, saveCursor } from '@rookery/replication';
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
 * Counts users anew soon after their memberships have changed. Where nothing is to be counted, no counts are kept that would
 * grow old: they are made anew when they are wanted again.
 */
@Injectable()
export class UserStatisticsFollower implements OnModuleInit {
  readonly #follower: Follower;
  readonly #stopping = new AbortController();

  constructor(
    private readonly statistics: UserStatistics,
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
    logger: Logger,
  ) {
    this.#follower = new Follower({
      ...{ name: cursor, stream, saveEveryMs, database, notifier, clock, logger },
      advance: (after, upTo) => this.#advance(after, Math.min(upTo, after + maxPositions)),
    });
  }

  onModuleInit(): void {
    this.lifecycle.on('streams', {
      name: 'statistics of users',
      start: () => this.start(),
      stop: () => this.stop(),
    });
  }

  /** Goes on where it stopped, or has everybody counted; where nothing is to be counted, forgets what was. */
  async start(): Promise<void> {
    const isBegun = (await cursorOf(this.database, cursor)) !== undefined;
    if (!this.statistics.isEnabled) return isBegun ? this.#forget() : undefined;
    if (!isBegun) {
      const position = this.notifier.position(stream);
      if ((await selectUsers(this.database, '', 1)).length > 0) await this.statistics.countAll();
      await this.database.write((tx) => saveCursor(tx, cursor, position), { name: 'begin_user_stats' });
    }
    await this.#follower.start();
  }

  /** Lets the batch in hand finish. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#follower.stop();
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

  async #advance(after: number, upTo: number): Promise<number> {
    const moved = await selectMovedUsers(this.database, after, upTo);
    for (let start = 0; start < moved.length; start += maxUsers)
      await this.database.write((tx) => countJoinedRooms(tx, moved.slice(start, start + maxUsers)), {
        name: 'count_joined_rooms',
      });
    await this.clock.sleep(pauseMs, this.#stopping.signal);
    return upTo;
  }
}
