import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Logger } from '@rookery/platform';
import { Follower, Notifier, saveCursor } from '@rookery/replication';
import { duePushers, markDue, usersToPush } from './pusher.query.js';
import { PushersService } from './pushers.service.js';

const followerName = 'push_pushers';

/** Who is told which pushers have something to send; neither may throw. */
export interface DueListener {
  wake(ids: readonly number[]): void;
  /** They were set up anew, and have something to send still. */
  setUp(ids: readonly number[]): void;
}

/** Follows events, and marks in the database which pushers have something to send. */
@Injectable()
export class DuePushers {
  readonly #follower: Follower;
  readonly #looking = new Set<Promise<void>>();
  #listener: DueListener | undefined;

  constructor(
    private readonly database: Database,
    notifier: Notifier,
    clock: Clock,
    private readonly logger: Logger,
    private readonly pushers: PushersService,
  ) {
    this.#follower = new Follower({
      name: followerName,
      stream: 'events',
      ...{ database, notifier, clock, logger },
      startAt: 'now',
      advance: (after, upTo) => this.#advance(after, upTo),
    });
    pushers.onSet((userId) => {
      const looking = this.#lookAt(userId).finally(() => this.#looking.delete(looking));
      this.#looking.add(looking);
    });
  }

  /** Tells of what was left over, and follows what comes. */
  async start(listener: DueListener): Promise<void> {
    this.#listener = listener;
    await this.#follower.start();
    listener.wake(await duePushers(this.database));
  }

  /** Tells of nothing any more. */
  async stop(): Promise<void> {
    this.#listener = undefined;
    await this.#follower.stop();
    await Promise.all(this.#looking);
  }

  async #advance(after: number, upTo: number): Promise<number> {
    if (!this.pushers.any) return upTo;
    const users = await usersToPush(this.database, after, upTo);
    if (users.length === 0) return upTo;
    await this.database.write(
      async (tx) => {
        await markDue(tx, users, after, upTo);
        await saveCursor(tx, followerName, upTo);
      },
      { name: 'pushers_due' },
    );
    const due = await duePushers(this.database, users);
    this.#listener?.wake(due);
    return upTo;
  }

  async #lookAt(userId: string): Promise<void> {
    if (this.#listener === undefined) return;
    try {
      const due = await duePushers(this.database, [userId]);
      this.#listener?.setUp(due);
    } catch (error) {
      this.logger.warn('The pushers of a user could not be looked at', { userId, err: error });
    }
  }
}
