import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Lifecycle, Logger, ownTurn } from '@rookery/platform';
import { Follower, Notifier, saveCursor } from '@rookery/replication';
import { PushDelivery } from './push-delivery.js';
import { duePushers, markDue } from './pusher.query.js';
import { PushersService } from './pushers.service.js';

const followerName = 'push_pushers';
/** Positions that are looked at in a turn of the event loop, each of which may concern all members of a room. */
const positionsPerStep = 200;

/** Follows events in the process that writes, marks in the database which pushers have something to send, and tells whoever sends it. */
@Injectable()
export class DuePushers implements OnModuleInit {
  readonly #follower: Follower;
  readonly #looking = new Set<Promise<void>>();
  #isFollowing = false;

  constructor(
    private readonly database: Database,
    notifier: Notifier,
    clock: Clock,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly pushers: PushersService,
    private readonly delivery: PushDelivery,
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

  onModuleInit(): void {
    this.lifecycle.on('streams', { name: 'pushers', start: () => this.start(), stop: () => this.stop() });
  }

  /** Follows what comes; what was left over is in the database. */
  async start(): Promise<void> {
    if (!this.delivery.open()) return;
    this.#isFollowing = true;
    await this.#follower.start();
  }

  /** Tells of nothing any more. */
  async stop(): Promise<void> {
    if (!this.#isFollowing) return;
    this.#isFollowing = false;
    await this.#follower.stop();
    await Promise.all(this.#looking);
  }

  async #advance(after: number, end: number): Promise<number> {
    if (!this.pushers.any) return end;
    const upTo = Math.min(end, after + positionsPerStep);
    if (upTo < end) await ownTurn();
    const users = await this.pushers.usersToPush(after, upTo);
    if (users.length === 0) return upTo;
    await this.database.write(
      async (tx) => {
        await markDue(tx, users, after, upTo);
        await saveCursor(tx, followerName, upTo);
      },
      { name: 'pushers_due' },
    );
    this.delivery.tell('due', await duePushers(this.database, users));
    return upTo;
  }

  async #lookAt(userId: string): Promise<void> {
    if (!this.#isFollowing) return;
    try {
      this.delivery.tell('set up', await duePushers(this.database, [userId]));
    } catch (error) {
      this.logger.warn('The pushers of a user could not be looked at', { userId, err: error });
    }
  }
}
