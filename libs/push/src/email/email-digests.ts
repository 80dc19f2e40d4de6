import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, failureLevel, isTransient } from '@rookery/database';
import { BackgroundTasks, Clock, Lifecycle, Logger } from '@rookery/platform';
import { EventStore, type StoredEvent } from '@rookery/rooms';
import { isMailAddress } from '@rookery/templates';
import { isGone } from '../actions/event-push.js';
import { OwnReads } from '../actions/own-reads.js';
import { selectUnread } from '../actions/push-actions.query.js';
import { clearDue, findPusher, recordSuccess } from '../pushers/pusher.query.js';
import {
  deleteStaleThrottles,
  dueEmailPushers,
  type RoomThrottle,
  selectThrottles,
  writeThrottles,
} from './digest.query.js';
import { DigestMails } from './digest-mails.js';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
/** How often unread messages are looked at. */
const lookEveryMs = minuteMs;
const pageSize = 100;
/** Pushers of which is remembered that they have nothing to send yet; what is due for more is worked out at each look. */
const maxWaiting = 10_000;
/** What failed for one pusher is tried again after that. */
const failedWaitMs = 10 * minuteMs;
/** How often throttles of pushers that are gone are deleted. */
const tidyEveryMs = hourMs;
/** Notifications in one mail. */
const maxNotifications = 100;
/** A room that has caused a mail causes the next one not before this time, and then ever more rarely... */
const firstThrottleMs = 10 * minuteMs;
const throttleFactor = 12;
const longestThrottleMs = 24 * hourMs;
/** ...until it was quiet for so long. */
const throttleResetMs = 12 * hourMs;

/** Sends mails about messages that stay unread, to those who asked for them: rarely, and once for each message. */
@Injectable()
export class EmailDigests implements OnModuleInit {
  #work: Promise<void> | undefined;
  #stopped = false;
  /** Until when a pusher has nothing to send, whatever comes, by id; and the delay in the settings by which that was found. */
  #waiting: ReadonlyMap<number, Waiting> = new Map();
  #tidiedAtMs = Number.NEGATIVE_INFINITY;

  // Eight parameters: what any task needs that looks at the database again and again, what is unread, and the mails.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly tasks: BackgroundTasks,
    private readonly events: EventStore,
    private readonly ownReads: OwnReads,
    private readonly mails: DigestMails,
  ) {}

  onModuleInit(): void {
    this.lifecycle.on('streams', {
      name: 'mails about missed messages',
      start: () => this.start(),
      stop: () => this.stop(),
    });
  }

  /** Begins to look for unread messages, where the settings want that. */
  start(): void {
    if (!this.mails.isEnabled) return;
    const run = (): Promise<void> => this.look();
    this.tasks.add({ name: 'mail_missed_messages', role: 'writer', everyMs: lookEveryMs, run }).start();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#work;
  }

  /** Looks once at everybody who has something unread. Never rejects; a second call waits for the first. */
  look(): Promise<void> {
    this.#work ??= this.#look().finally(() => (this.#work = undefined));
    return this.#work;
  }

  async #look(): Promise<void> {
    try {
      let last = 0;
      const waiting = new Map<number, Waiting>();
      for (;;) {
        const ids = await dueEmailPushers(this.database, last, pageSize);
        for (const id of ids) {
          if (this.#stopped) return;
          const wait = this.#stillWaits(id) ?? (await this.#considerOrLog(id));
          if (wait !== undefined && waiting.size < maxWaiting) waiting.set(id, wait);
        }
        if (ids.length < pageSize) break;
        last = ids.at(-1) ?? last;
      }
      // Whoever is not due any more is forgotten.
      this.#waiting = waiting;
      await this.#tidy();
    } catch (error) {
      this.logger[failureLevel(error)]('Mails about missed messages could not be sent', { err: error });
    }
  }

  async #tidy(): Promise<void> {
    const nowMs = this.clock.monotonicMs();
    if (nowMs - this.#tidiedAtMs < tidyEveryMs) return;
    await this.database.write(deleteStaleThrottles, { name: 'pusher_throttle' });
    this.#tidiedAtMs = nowMs;
  }

  #stillWaits(id: number): Waiting | undefined {
    const wait = this.#waiting.get(id);
    if (wait === undefined || wait.delayMs !== this.mails.delayMs) return undefined;
    return this.clock.nowMs() < wait.untilMs ? wait : undefined;
  }

  /** One pusher's trouble is not another's. */
  async #considerOrLog(id: number): Promise<Waiting | undefined> {
    try {
      return await this.#consider(id);
    } catch (error) {
      if (isTransient(error)) throw error;
      this.logger.error('A mail about missed messages could not be written', { pusher: id, err: error });
      return { untilMs: this.clock.nowMs() + failedWaitMs, delayMs: this.mails.delayMs };
    }
  }

  /** Sends a mail where one is due; else until when none can be. */
  async #consider(id: number): Promise<Waiting | undefined> {
    const pusher = await findPusher(this.database, id);
    if (!pusher?.due) return undefined;
    const { upTo } = pusher.due;
    // Nothing could ever be sent there.
    if (!isMailAddress(pusher.pushkey)) {
      await this.database.write((tx) => clearDue(tx, id, upTo), { name: 'pusher_done' });
      return undefined;
    }
    const after = Math.max(pusher.due.after, pusher.lastStreamOrdering);
    await this.ownReads.settle(pusher.userId);
    const rows = await selectUnread(this.database, pusher.userId, { after, upTo, limit: maxNotifications });
    const stored = await this.events.inOrder(rows.map((row) => row.event_id));
    const unread = stored.filter((each) => !isGone(each, pusher.userId));
    const last = rows.at(-1)?.stream_ordering ?? upTo;
    if (unread.length === 0) {
      await this.database.write((tx) => clearDue(tx, id, last), { name: 'pusher_done' });
      return undefined;
    }
    const nowMs = this.clock.nowMs();
    const throttles = await selectThrottles(this.database, id);
    const { delayMs } = this.mails;
    const dueMs = ({ receivedTs, event }: StoredEvent): number => {
      const throttle = throttles.get(event.roomId);
      return Math.max(receivedTs + delayMs, throttle === undefined ? 0 : throttle.lastSentMs + throttle.throttleMs);
    };
    const cause = unread.find((stored) => nowMs >= dueMs(stored));
    if (cause === undefined) {
      // What comes later, or was not among these, is due after the delay at the earliest, or is so late by no more than that.
      const untilMs = unread.reduce((least, stored) => Math.min(least, dueMs(stored)), nowMs + delayMs);
      return { untilMs, delayMs };
    }
    const mail = await this.mails.write(pusher, unread, cause, throttles.get(cause.event.roomId));
    const rooms = new Set(unread.map(({ event }) => event.roomId));
    const next = new Map([...rooms].map((roomId) => [roomId, nextThrottle(throttles.get(roomId), nowMs)]));
    await this.database.write(
      async (tx) => {
        await this.mails.queue(tx, mail);
        await writeThrottles(tx, id, next);
        await recordSuccess(tx, id, last, nowMs);
        if (rows.length < maxNotifications) await clearDue(tx, id, upTo);
      },
      { name: 'email_digest' },
    );
    return undefined;
  }
}

interface Waiting {
  readonly untilMs: number;
  readonly delayMs: number;
}

function nextThrottle(before: RoomThrottle | undefined, nowMs: number): RoomThrottle {
  const isQuiet = before === undefined || nowMs - before.lastSentMs > before.throttleMs + throttleResetMs;
  const throttleMs = isQuiet ? firstThrottleMs : Math.min(before.throttleMs * throttleFactor, longestThrottleMs);
  return { lastSentMs: nowMs, throttleMs };
}
