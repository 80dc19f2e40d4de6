import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Lifecycle, Logger, type Timer } from '@rookery/platform';
import { defineRpc, type KeysOf, type Stream, Streams } from '@rookery/replication';
import { eventsStream } from '@rookery/rooms';
import { raiseThreadMarks, type ThreadMark } from './push-actions.query.js';

/** What was noted within this time is written together; what a crash loses is counted as unread again. */
const writeAfterMs = 3_000;
/** So many wait at most; more are written at once. */
const maxWaiting = 5_000;
/** While nothing can be written: what comes beyond is not noted. */
const maxNoted = 50_000;

/** Who sends events has them in hand: what their senders have read is written there. */
const settleOwnReads = defineRpc<{ readonly userId: string }, boolean>('settle_own_reads');

type EventKey = KeysOf<typeof eventsStream>;
type Marks = Map<string, Map<string, ThreadMark>>;

/**
 * Who sends an event has read its thread up to there. It is written behind the event, for many at a time, so that sending
 * costs nothing; whoever reads from the tables what a user has not read calls {@link OwnReads.settle} first.
 * @spec client-server-api#marking-notifications-as-read
 */
@Injectable()
export class OwnReads implements OnModuleInit {
  readonly #events: Stream<EventKey>;
  /** By user, then by room and thread. */
  #waiting: Marks = new Map();
  #waitingSize = 0;
  #writing: Marks | undefined;
  #work: Promise<boolean> | undefined;
  #timer: Timer | undefined;
  #isStopped = false;
  readonly #listeners: ((userIds: readonly string[]) => void)[] = [];

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    streams: Streams,
  ) {
    this.#events = streams.of(eventsStream);
    this.#events.serve(settleOwnReads, ({ userId }) => this.settle(userId));
  }

  onModuleInit(): void {
    // Stops after the listeners, through which clients send, and after what is started later than this.
    this.lifecycle.on('streams', { name: 'what senders have read', stop: () => this.stop() });
  }

  /** Calls `fn` with users for whom something was written. It must not throw. */
  onWritten(fn: (userIds: readonly string[]) => void): void {
    this.#listeners.push(fn);
  }

  /** Notes a mark, whose position is beyond those before it. @returns whether it will be written */
  note(mark: ThreadMark): boolean {
    if (this.#isStopped || this.#waitingSize >= maxNoted) return false;
    let ofUser = this.#waiting.get(mark.userId);
    if (ofUser === undefined) this.#waiting.set(mark.userId, (ofUser = new Map()));
    const key = keyOf(mark);
    if (!ofUser.has(key)) this.#waitingSize++;
    ofUser.set(key, mark);
    if (this.#waitingSize >= maxWaiting) void this.#flush();
    else if (this.#timer === undefined) this.#flushLater();
    return true;
  }

  /**
   * Waits until the tables hold what was noted of a user before the call. Never rejects.
   * @returns false when that could not be written: more is counted as unread than is
   */
  async settle(userId: string): Promise<boolean> {
    if (!this.#events.isWrittenHere) {
      // Without an answer more is counted as unread than is, for a moment.
      return this.#events.atWriter(settleOwnReads, { userId }).catch(() => false);
    }
    const isNoted = (): boolean => this.#waiting.has(userId) || this.#writing?.has(userId) === true;
    // What was under way may have begun before the last note.
    let isWritten = true;
    for (let round = 0; round < 2 && isNoted(); round++) isWritten = await this.#flush();
    return isWritten;
  }

  /** Writes what is left. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#work;
    await this.#flush();
    this.#timer?.cancel();
  }

  #flush(): Promise<boolean> {
    this.#work ??= this.#write().finally(() => {
      this.#work = undefined;
      // What was noted meanwhile, or could not be written; the timer may have come and found this at work.
      if (this.#waiting.size > 0) this.#flushLater();
    });
    return this.#work;
  }

  #flushLater(): void {
    this.#timer?.cancel();
    this.#timer = this.clock.after(writeAfterMs, () => void this.#flush());
  }

  async #write(): Promise<boolean> {
    this.#timer?.cancel();
    this.#timer = undefined;
    const marks = this.#waiting;
    if (marks.size === 0) return true;
    this.#writing = marks;
    this.#waiting = new Map();
    this.#waitingSize = 0;
    const list = [...marks.values()].flatMap((ofUser) => [...ofUser.values()]);
    try {
      await this.database.write((tx) => raiseThreadMarks(tx, list), { name: 'push_own_reads' });
    } catch (error) {
      this.logger.warn('What senders have read could not be written', { users: marks.size, err: error });
      this.#putBack(list);
      return false;
    } finally {
      this.#writing = undefined;
    }
    for (const listener of this.#listeners) listener([...marks.keys()]);
    return true;
  }

  #putBack(marks: readonly ThreadMark[]): void {
    for (const mark of marks) {
      if (this.#waiting.get(mark.userId)?.has(keyOf(mark))) continue;
      const ofUser = this.#waiting.get(mark.userId) ?? new Map<string, ThreadMark>();
      this.#waiting.set(mark.userId, ofUser.set(keyOf(mark), mark));
      this.#waitingSize++;
    }
  }
}

const keyOf = ({ roomId, threadId }: ThreadMark): string => `${roomId}\n${threadId}`;
