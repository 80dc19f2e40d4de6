import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { prejoinStateOf, type RoomEvent } from '@rookery/events';
import { isJsonObject } from '@rookery/matrix-types';
import { Clock, Config, Ids, Lifecycle, Logger, Metrics, type Timer } from '@rookery/platform';
import type { PushAction } from '@rookery/push-rules';
import { Follower, Notifier, saveCursor } from '@rookery/replication';
import { EventStore, RoomStateReader, type StoredEvent } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import { LRUCache } from 'lru-cache';
import { OwnReads } from '../actions/own-reads.js';
import { type NotificationRow, selectUnread } from '../actions/push-actions.query.js';
import { PushCounts } from '../actions/push-counts.js';
import { badgeMessage, eventMessage, type EventSurroundings } from './gateway-message.js';
import { PushGateway } from './push-gateway.js';
import { isWithoutBadge, type Pusher } from './pusher.js';
import {
  clearDue,
  deleteRejected,
  duePushers,
  findPusher,
  haveBadges,
  markDue,
  pushersOf,
  recordFailure,
  recordSuccess,
  usersToPush,
} from './pusher.query.js';
import { PushersService } from './pushers.service.js';

const followerName = 'push_pushers';
/** Requests to gateways at a time. */
const maxParallel = 64;
const pageSize = 20;
const firstRetryMs = 1_000;
const longestRetryMs = 60 * 60 * 1_000;
/** After so long without a success what has piled up is dropped; only what comes then is tried. */
const giveUpAfterMs = 24 * 60 * 60 * 1_000;
/** What is read within this time changes a badge once. */
const badgeDelayMs = 1_000;

/**
 * Brings notifications to push gateways: in order for each pusher, side by side for different ones, at least once over
 * restarts. Which pushers have something to send lies in the database from the moment the events are followed.
 */
@Injectable()
export class PushDelivery implements OnModuleInit {
  readonly #follower: Follower;
  readonly #stopping = new AbortController();
  /** Pushers at work; true when there is more to do afterwards. */
  readonly #working = new Map<number, boolean>();
  readonly #waiting = new Set<number>();
  readonly #retries = new Map<number, { failures: number; timer: Timer | undefined }>();
  readonly #badges = new Map<string, Timer>();
  readonly #shownBadges = new LRUCache<number, number>({ maxSize: 100_000, sizeCalculation: () => 1 });
  #tasks = new Set<Promise<void>>();

  // Fourteen parameters: one loop that reads, sends, notes and tries again; badges share its pushers, its pauses and
  // what they have shown.
  constructor(
    private readonly database: Database,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly metrics: Metrics,
    private readonly lifecycle: Lifecycle,
    private readonly pushers: PushersService,
    private readonly gateway: PushGateway,
    private readonly counts: PushCounts,
    private readonly ownReads: OwnReads,
    private readonly events: EventStore,
    private readonly state: RoomStateReader,
  ) {
    this.#follower = new Follower({
      name: followerName,
      stream: 'events',
      ...{ database, notifier, clock, logger },
      startAt: 'now',
      advance: (after, upTo) => this.#advance(after, upTo),
    });
  }

  onModuleInit(): void {
    this.pushers.onSet((userId) => this.#track(this.#tryAgain(userId)));
    this.ownReads.onWritten((userIds) => this.#track(this.#haveSent(userIds)));
    this.lifecycle.on('streams', { name: 'push', start: () => this.start(), stop: () => this.stop() });
  }

  /** Takes up what was left over and follows what comes. */
  async start(): Promise<void> {
    if (!this.config.get('push.enabled')) return;
    await this.#follower.start();
    for (const id of await duePushers(this.database)) this.#wake(id);
  }

  /** Cuts requests under way short; they are repeated after the next start. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const { timer } of this.#retries.values()) timer?.cancel();
    for (const timer of this.#badges.values()) timer.cancel();
    await this.#follower.stop();
    await Promise.all(this.#tasks);
  }

  /** A user has read something: tells their devices the new count, soon and once. Best effort. */
  badgeChanged(userId: string): void {
    if (!this.pushers.any || this.#badges.has(userId) || this.#stopping.signal.aborted) return;
    if (!this.config.get('push.enabled')) return;
    const timer = this.clock.after(badgeDelayMs, () => {
      this.#badges.delete(userId);
      this.#track(this.#sendBadges(userId));
    });
    this.#badges.set(userId, timer);
  }

  /** Users have read by sending: one query finds out who has a badge, of however many. */
  async #haveSent(userIds: readonly string[]): Promise<void> {
    if (!this.pushers.any || this.#stopping.signal.aborted) return;
    try {
      for (const userId of await haveBadges(this.database, userIds)) this.badgeChanged(userId);
    } catch (error) {
      this.logger.warn('The badges of senders could not be looked up', { err: error });
    }
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
    for (const id of await duePushers(this.database, users)) this.#wake(id);
    return upTo;
  }

  #wake(id: number): void {
    if (this.#stopping.signal.aborted || this.#retries.get(id)?.timer) return;
    if (this.#working.has(id)) this.#working.set(id, true);
    else this.#waiting.add(id);
    this.#pump();
  }

  /** A pusher was set up anew, maybe for another gateway: what waits for the next attempt is sent at once. */
  async #tryAgain(userId: string): Promise<void> {
    try {
      if (!this.config.get('push.enabled')) return;
      for (const id of await duePushers(this.database, [userId])) {
        this.#retries.get(id)?.timer?.cancel();
        this.#retries.delete(id);
        this.#wake(id);
      }
    } catch (error) {
      this.logger.warn('The pushers of a user could not be looked at', { userId, err: error });
    }
  }

  #pump(): void {
    for (const id of this.#waiting) {
      if (this.#working.size >= maxParallel) return;
      this.#waiting.delete(id);
      this.#working.set(id, false);
      this.#track(this.#work(id));
    }
  }

  async #work(id: number): Promise<void> {
    try {
      // One that was set up anew while its old self was refused is woken and has nothing to wait for.
      let mayGoOn: boolean;
      do {
        this.#working.set(id, false);
        mayGoOn = (await this.#drain(id)) || !this.#retries.has(id);
      } while (mayGoOn && this.#working.get(id) === true);
    } catch (error) {
      this.logger.error('A pusher failed', { pusher: id, err: error });
      this.#retryLater(id);
    } finally {
      this.#working.delete(id);
      this.#pump();
    }
  }

  /** Sends everything that is due. @returns false when the pusher is gone or refused, or has to wait */
  async #drain(id: number): Promise<boolean> {
    while (!this.#stopping.signal.aborted) {
      const pusher = await findPusher(this.database, id);
      if (!pusher?.due) {
        this.#retries.delete(id);
        return pusher !== undefined;
      }
      const { upTo } = pusher.due;
      const after = Math.max(pusher.due.after, pusher.lastStreamOrdering);
      await this.ownReads.settle(pusher.userId);
      const rows = await selectUnread(this.database, pusher.userId, { after, upTo, limit: pageSize });
      const isLastPage = rows.length < pageSize;
      for (const [index, row] of rows.entries()) {
        const upToHere = isLastPage && index === rows.length - 1 ? upTo : undefined;
        if (!(await this.#deliver(pusher, row, upToHere))) return false;
      }
      if (rows.length === 0) await this.database.write((tx) => clearDue(tx, id, upTo), { name: 'pusher_done' });
    }
    return false;
  }

  /** @param upTo given for the last one: up to where there is nothing more */
  async #deliver(pusher: Pusher, row: NotificationRow, upTo: number | undefined): Promise<boolean> {
    const jitterMs = this.config.get('push.jitter_delay');
    if (jitterMs > 0) await this.clock.sleep(this.ids.integer(jitterMs + 1), this.#stopping.signal);
    if (this.#stopping.signal.aborted) return false;
    const stored = await this.events.one(row.event_id);
    if (stored === undefined || stored.redactedBy !== undefined) return this.#sent(pusher, row, upTo);
    const [unread, surroundings] = await Promise.all([
      this.#withBadge(pusher) ? this.#badge(pusher.userId) : undefined,
      pusher.data['format'] === 'event_id_only' ? {} : this.#surroundings(row.room_id, stored),
    ]);
    const verdict = await this.gateway.notify(
      pusher,
      eventMessage(pusher, {
        event: stored.event,
        actions: JSON.parse(row.actions) as PushAction[],
        unread,
        withContent: this.config.get('push.include_content'),
        ...surroundings,
      }),
      this.#stopping.signal,
    );
    if (verdict.kind === 'failed') return this.#failed(pusher, verdict.reason);
    if (verdict.kind === 'rejected') return this.#rejected(pusher);
    if (unread !== undefined) this.#shownBadges.set(pusher.id, unread);
    this.metrics.counter('synapse_http_httppusher_http_pushes_processed').inc({});
    return this.#sent(pusher, row, upTo);
  }

  async #sent({ id }: Pusher, row: NotificationRow, upTo: number | undefined): Promise<true> {
    this.#retries.delete(id);
    await this.database.write(
      async (tx) => {
        await recordSuccess(tx, id, row.stream_ordering, this.clock.nowMs());
        if (upTo !== undefined) await clearDue(tx, id, upTo);
      },
      { name: 'pusher_sent' },
    );
    return true;
  }

  async #rejected(pusher: Pusher): Promise<false> {
    const { id, userId, appId } = pusher;
    this.logger.info('A push gateway does not know a device any more', { userId, appId });
    this.#retries.delete(id);
    await this.database.write((tx) => deleteRejected(tx, pusher), { name: 'pusher_rejected' });
    return false;
  }

  async #failed({ id, userId, failingSince, due }: Pusher, reason: string): Promise<false> {
    // A request that was cut off by a stop says nothing about the gateway, and is repeated after the start.
    if (this.#stopping.signal.aborted) return false;
    this.metrics.counter('synapse_http_httppusher_http_pushes_failed').inc({});
    const nowMs = this.clock.nowMs();
    const hopeless = failingSince !== undefined && nowMs - failingSince > giveUpAfterMs && due !== undefined;
    await this.database.write((tx) => (hopeless ? clearDue(tx, id, due.upTo) : recordFailure(tx, id, nowMs)), {
      name: 'pusher_failed',
    });
    const retryInMs = this.#retryLater(id);
    this.logger.warn('A push gateway could not be reached', {
      userId,
      pusher: id,
      reason,
      retryInMs,
      dropped: hopeless,
    });
    return false;
  }

  #retryLater(id: number): number {
    const failures = (this.#retries.get(id)?.failures ?? 0) + 1;
    const delayMs = Math.min(firstRetryMs * 2 ** Math.min(failures - 1, 30), longestRetryMs);
    const timer = this.clock.after(delayMs, () => {
      this.#retries.set(id, { failures, timer: undefined });
      this.#wake(id);
    });
    this.#retries.set(id, { failures, timer });
    return delayMs;
  }

  async #sendBadges(userId: string): Promise<void> {
    try {
      const pushers = (await pushersOf(this.database, userId)).filter(
        (one) => one.kind === 'http' && one.enabled && this.#withBadge(one),
      );
      if (pushers.length === 0) return;
      const unread = await this.#badge(userId);
      for (const pusher of pushers) {
        if (this.#shownBadges.get(pusher.id) === unread || this.#retries.has(pusher.id)) continue;
        const verdict = await this.gateway.notify(pusher, badgeMessage(pusher, unread), this.#stopping.signal);
        if (verdict.kind === 'rejected') await this.#rejected(pusher);
        if (verdict.kind === 'sent') this.#shownBadges.set(pusher.id, unread);
        const outcome = verdict.kind === 'sent' ? 'processed' : 'failed';
        this.metrics.counter(`synapse_http_httppusher_badge_updates_${outcome}`).inc({});
      }
    } catch (error) {
      this.logger.warn('A badge could not be sent', { userId, err: error });
    }
  }

  #withBadge(pusher: Pusher): boolean {
    return !(this.config.get('experimental_features.msc4076_enabled') && isWithoutBadge(pusher));
  }

  async #badge(userId: string): Promise<number> {
    const { messages, rooms } = await this.counts.badge(userId);
    return this.config.get('push.group_unread_count_by_room') ? rooms : messages;
  }

  async #surroundings(roomId: string, { event, outlier }: StoredEvent): Promise<EventSurroundings> {
    const { sender } = event;
    // Of a room that this server is not in, all that is known is what the invite shows.
    if (outlier) return surroundingsOf(sender, (type, stateKey, key) => shownText(event, type, stateKey, key));
    const ids = await this.state.currentIds(roomId, {
      types: [
        ['m.room.name', ''],
        ['m.room.canonical_alias', ''],
        ['m.room.member', sender],
      ],
    });
    const events = await this.events.events(ids.values());
    return surroundingsOf(
      sender,
      (type, stateKey, key) => events.get(ids.get(stateKeyOf(type, stateKey)) ?? '')?.content[key],
    );
  }

  #track(task: Promise<void>): void {
    this.#tasks.add(task);
    void task.finally(() => this.#tasks.delete(task));
  }
}

/** A value of a room's state. */
type StateValue = (type: string, stateKey: string, key: string) => unknown;

function surroundingsOf(sender: string, state: StateValue): EventSurroundings {
  const text: (...which: Parameters<StateValue>) => string | undefined = (...which) => {
    const value = state(...which);
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const roomAlias = text('m.room.canonical_alias', '', 'alias');
  return {
    senderDisplayName: text('m.room.member', sender, 'displayname'),
    roomName: text('m.room.name', '', 'name') ?? roomAlias,
    roomAlias,
  };
}

/** A value of the state that an invite shows to its target. */
function shownText(event: RoomEvent, type: string, stateKey: string, key: string): unknown {
  const found = prejoinStateOf(event).find((one) => one['type'] === type && one['state_key'] === stateKey);
  return isJsonObject(found?.['content']) ? found['content'][key] : undefined;
}
