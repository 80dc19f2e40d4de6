import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { isValidEventId, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { type ChangedKeys, defineStream, type Stream, Streams } from '@rookery/replication';
import { EventStore, isServable, RoomHooks, RoomReadingService, TimelineReader } from '@rookery/rooms';
import { holdAccount, UserHooks } from '@rookery/users';
import {
  countSubscriptions,
  deleteThreads,
  deleteThreadsOfRoom,
  deleteThreadsOfUser,
  findSubscription,
  highestSubscription,
  latestSubscriptions,
  type SubscriptionChange,
  subscribersOf,
  type ThreadSubscription,
  writeSubscription,
} from './thread-subscription.query.js';
import { threadOf } from './thread-of.js';

export type { ThreadSubscription } from './thread-subscription.query.js';

/** Changes of subscriptions to threads, by user. */
export const threadSubscriptionsStream = defineStream({
  name: 'thread_subscriptions',
  takenUpTo: highestSubscription,
  anyProcess: true,
  keys: { user: {} },
});

/** Most threads of one user about which anything is remembered. */
const maxPerUser = 50_000;
const nobody: ReadonlySet<string> = new Set();

/** Which threads users want to hear of (MSC4306); nothing of it where the server is not set so. */
@Injectable()
export class ThreadSubscriptions implements OnModuleInit {
  readonly isEnabled: boolean;
  readonly #stream: Stream<'user'> | undefined;
  readonly #changes: ChangedKeys | undefined;

  // Eight parameters: two of them are the hooks by which subscriptions go with rooms and users.
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly reading: RoomReadingService,
    private readonly timeline: TimelineReader,
    private readonly roomHooks: RoomHooks,
    private readonly userHooks: UserHooks,
    config: Config,
    streams: Streams,
  ) {
    this.isEnabled = config.get('experimental_features.msc4306_enabled');
    this.#stream = this.isEnabled ? streams.of(threadSubscriptionsStream) : undefined;
    this.#changes = this.#stream?.changes('user');
  }

  onModuleInit(): void {
    // What was stored goes with its room and its account, also where the feature was switched off since.
    this.roomHooks.subscribe({ onEventsPurged: deleteThreads, onRoomPurged: deleteThreadsOfRoom });
    this.userHooks.deactivated.subscribe({ inTransaction: (tx, { userId }) => deleteThreadsOfUser(tx, userId) });
  }

  /**
   * Subscribes to a thread.
   * @param cause the event because of which a client does so by itself; absent when the user asked for it
   * @throws MatrixError 404 `M_NOT_FOUND`, 400 `IO.ELEMENT.MSC4306.M_NOT_IN_THREAD`, 409
   *   `IO.ELEMENT.MSC4306.M_CONFLICTING_UNSUBSCRIPTION` (the user has unsubscribed since), 413 `M_TOO_LARGE`
   */
  async subscribe(requester: Requester, roomId: string, threadId: string, cause: string | undefined): Promise<void> {
    await this.reading.visibleEvent(requester, roomId, threadId);
    const causedAt = cause === undefined ? undefined : await this.#placeInThread(roomId, threadId, cause);
    await this.#change(requester.userId, roomId, threadId, (before) => {
      const automatic = causedAt !== undefined;
      if (before?.subscribed === true && (automatic || !before.automatic)) return undefined;
      if (automatic && before?.endedAt !== undefined && causedAt <= before.endedAt) throw conflict();
      return { subscribed: true, automatic };
    });
  }

  /** Ends a subscription, if there is one. @throws MatrixError 404 `M_NOT_FOUND` */
  async unsubscribe(requester: Requester, roomId: string, threadId: string): Promise<void> {
    await this.reading.visibleEvent(requester, roomId, threadId);
    const last = await this.timeline.lastPlace(roomId);
    const endedAt = { stream: last?.stream ?? 0, topological: last?.topological ?? 0 };
    await this.#change(requester.userId, roomId, threadId, (before) =>
      before?.subscribed === true ? { subscribed: false, automatic: false, endedAt } : undefined,
    );
  }

  /** The subscription to a thread. @throws MatrixError 404 `M_NOT_FOUND` when there is none, or no such thread */
  async get(requester: Requester, roomId: string, threadId: string): Promise<ThreadSubscription> {
    await this.reading.visibleEvent(requester, roomId, threadId);
    const found = await findSubscription(this.database, requester.userId, roomId, threadId);
    if (!found?.subscribed) throw MatrixError.notFound('You are not subscribed to this thread');
    return found;
  }

  /** A user's subscriptions that changed in `(after, upTo]`, the latest first, at most `limit`. No query where nothing did. */
  async changes(userId: string, after: number, upTo: number, limit: number): Promise<ThreadSubscription[]> {
    if (this.#changes === undefined || !this.#changes.hasChanged(userId, after)) return [];
    return latestSubscriptions(this.database, userId, after, upTo, limit);
  }

  /** Where the stream of changes stands. */
  get position(): number {
    return this.#stream?.current() ?? 0;
  }

  /** Everybody who is subscribed to a thread. */
  async subscribers(roomId: string, threadId: string): Promise<ReadonlySet<string>> {
    if (!this.isEnabled) return nobody;
    return new Set(await subscribersOf(this.database, roomId, threadId));
  }

  async #placeInThread(roomId: string, threadId: string, cause: string): Promise<number> {
    const stored = isValidEventId(cause) ? await this.events.one(cause) : undefined;
    const isInRoom = stored?.event.roomId === roomId && isServable(stored);
    if (!isInRoom || (await threadOf(this.events, stored.event)) !== threadId) throw MatrixError.notInThread();
    return stored.streamOrdering;
  }

  async #change(
    userId: string,
    roomId: string,
    threadId: string,
    decide: (
      before: ThreadSubscription | undefined,
    ) => Pick<SubscriptionChange, 'subscribed' | 'automatic' | 'endedAt'> | undefined,
  ): Promise<void> {
    const stream = this.#stream;
    if (stream === undefined) throw new Error('Threads cannot be subscribed to on this server');
    await this.database.write(
      async (tx) => {
        await holdAccount(tx, userId);
        if (!(await this.events.holdRooms(tx, [roomId])).has(roomId))
          throw MatrixError.notFound('There is no such room any more');
        const before = await findSubscription(tx, userId, roomId, threadId);
        const after = decide(before);
        if (after === undefined) return;
        if (before === undefined && (await countSubscriptions(tx, userId, maxPerUser)) >= maxPerUser)
          throw MatrixError.tooLarge(`Not more than ${maxPerUser} threads can be subscribed to`);
        const position = await stream.write(tx, { changed: { user: [userId] }, users: [userId] });
        await writeSubscription(tx, position, { userId, roomId, threadId, ...after });
      },
      { name: 'thread_subscription', anyProcess: stream.isWrittenHere },
    );
  }
}

const conflict = (): MatrixError => MatrixError.conflictingUnsubscription();
