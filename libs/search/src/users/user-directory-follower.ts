import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Config, Lifecycle } from '@rookery/platform';
import {
  cursorOf,
  defineRole,
  FollowerSharing,
  Notifier,
  type Role,
  saveCursor,
  type SharedFollower,
} from '@rookery/replication';
import {
  deleteStrangers,
  type MovedStranger,
  selectMovedStrangers,
  selectNewestProfiles,
  upsertUsers,
} from './user-directory.query.js';

const stream = 'events';
const cursor = 'user_directory';
/** What comes meanwhile is worked on together. */
const pauseMs = 1_000;
const maxPositions = 10_000;
/** Users who are brought up to date in one transaction, which on SQLite is one turn of the event loop. */
const maxUsers = 100;
const saveEveryMs = 60_000;

/** The duty of keeping users of other servers in the directory. */
export const userDirectoryRole: Role = defineRole('user_directory');

/**
 * Keeps the directory of users of other servers, soon after their memberships have changed, so that no event waits for it: one that makes a
 * large room known tells of tens of thousands. It goes by what counts then, not by what happened: it matters little who does it, or how often.
 */
@Injectable()
export class UserDirectoryFollower implements OnModuleInit {
  #follower: SharedFollower | undefined;

  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly config: Config,
    private readonly lifecycle: Lifecycle,
    private readonly sharing: FollowerSharing,
  ) {}

  onModuleInit(): void {
    this.lifecycle.on('streams', { name: 'directory of users', start: () => this.#begin() });
    this.#follower = this.sharing.share({
      ...{ name: cursor, stream, role: userDirectoryRole, pauseMs, saveEveryMs, startAt: 'once stored' },
      advance: (after, upTo, signal) => this.#advance(after, Math.min(upTo, after + maxPositions), signal),
    });
  }

  /** Waits until the directory knows of everything that could be read when it was called; for two seconds at most. */
  async caughtUp(): Promise<void> {
    await this.#follower?.caughtUp();
  }

  /** What was stored before there was a cursor is in the directory, or comes into it by the background update. */
  async #begin(): Promise<void> {
    if ((await cursorOf(this.database, cursor)) !== undefined) return;
    const position = this.notifier.position(stream);
    await this.database.write((tx) => saveCursor(tx, cursor, position), { name: 'begin_user_directory' });
  }

  async #advance(after: number, upTo: number, signal: AbortSignal): Promise<number> {
    // No user id is before the empty one: all of the first position.
    let last: MovedStranger = { position: after + 1, userId: '' };
    for (;;) {
      const moved = await selectMovedStrangers(this.database, this.config.serverName, last, upTo, maxUsers);
      const next = moved.at(-1);
      if (next === undefined) break;
      last = next;
      signal.throwIfAborted();
      const userIds = [...new Set(moved.map(({ userId }) => userId))];
      await this.database.write(
        async (tx) => {
          await upsertUsers(tx, await selectNewestProfiles(tx, userIds));
          await deleteStrangers(tx, userIds);
        },
        { name: 'user_directory', anyProcess: true },
      );
    }
    return upTo;
  }
}
