import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database, isUniqueViolation } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { domainOf, type JsonObject, localpartOf, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids, Logger, type Requester, type Timer } from '@rookery/platform';
import { AccountService, holdAccount, qualifyUserId, UserHooks } from '@rookery/users';
import { AliasService } from '../directory/alias.service.js';
import { RoomHooks } from '../hooks.js';
import { holdRooms } from '../store/room-hold.query.js';
import { MembershipService } from '../membership/membership.service.js';
import { isServable } from '../model/stored-event.js';
import { delayedTxnPrefix } from '../reading/event-serializer.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { checkContent, checkNesting } from '../model/content-rules.js';
import { Participation } from '../sending/participation.js';
import { EventCreation, type SendRequest } from '../sending/event-creation.service.js';
import { deviceKeyOf } from '../model/requesters.js';
import {
  deleteDelayed,
  deleteDelayedOfRoom,
  deleteDelayedOfUser,
  deleteDelayedState,
  type DelayedEventRow,
  delayedOf,
  dueAt,
  findDelayed,
  findDelayedByTransaction,
  insertDelayed,
  nextDue,
  restartDelayed,
  roomsWithDelayedState,
} from './delayed-events.query.js';

/** What can be done to an event that waits. */
export type DelayedAction = 'cancel' | 'restart' | 'send';

const largestContentBytes = 65_536;
const batchSize = 50;
/** After a failure that is ours, before the next try. */
const retryMs = 10_000;
/** Timers of the platform do not reach further than 24 days. */
const longestSleepMs = 86_400_000;
const capRetryAfterMs = 60_000;

/**
 * Events that clients leave here to be sent later, unless they say otherwise in time: how a call learns that a member's
 * connection was lost. They survive restarts, and each is sent once.
 * MSC4140
 */
@Injectable()
export class DelayedEvents implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #longestMs: number | undefined;
  readonly #maxPerUser: number;
  /** Rooms in which state is waiting; a room may stay here after its last one went. */
  readonly #stateRooms = new Set<string>();
  #timer: Timer | undefined;
  #timerAtMs = Number.MAX_SAFE_INTEGER;
  #working: Promise<void> | undefined;
  #stopped = false;

  constructor(
    private readonly database: Database,
    private readonly creation: EventCreation,
    private readonly memberships: MembershipService,
    private readonly members: MembershipReader,
    private readonly aliases: AliasService,
    private readonly accounts: AccountService,
    private readonly limiter: RateLimiter,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly participation: Participation,
    hooks: RoomHooks,
    userHooks: UserHooks,
  ) {
    this.#longestMs = config.get('max_event_delay_duration');
    this.#maxPerUser = config.get('experimental_features.msc4140_max_delayed_events_per_user');
    hooks.subscribe({
      inTransaction: async (tx, { roomId, events }) => {
        if (!this.#stateRooms.has(roomId)) return;
        for (const stored of events) {
          const { type, stateKey, sender } = stored.event;
          if (stateKey === undefined || !isServable(stored)) continue;
          const own = domainOf(sender) === this.config.serverName ? localpartOf(sender) : '';
          await deleteDelayedState(tx, roomId, type, stateKey, own);
        }
      },
      onRoomPurged: deleteDelayedOfRoom,
    });
    userHooks.deactivated.subscribe({
      inTransaction: (tx, { userId }) => deleteDelayedOfUser(tx, localpartOf(userId)),
    });
  }

  async onApplicationBootstrap(): Promise<void> {
    if (this.database.isBesideWriter) return;
    for (const roomId of await roomsWithDelayedState(this.database)) this.#stateRooms.add(roomId);
    const next = await nextDue(this.database);
    if (next !== undefined) this.#wakeAt(next);
  }

  async onModuleDestroy(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    await this.#working;
  }

  /**
   * Leaves an event to be sent in `delayMs`.
   * @param txnId the same request may be repeated: it makes one
   * @returns its id, with which anybody may act on it
   * @throws MatrixError 400 `M_BAD_JSON`, `ORG.MATRIX.MSC4140_DELAY_TOO_LARGE`, 403 `M_FORBIDDEN` (switched off, or not in the
   *   room), 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED` (also for too many at a time)
   */
  async schedule(requester: Requester, request: SendRequest, delayMs: number, txnId?: string): Promise<string> {
    const { roomId, type, stateKey, content, originServerTs, stickyDurationMs } = request;
    if (this.#longestMs === undefined || this.#maxPerUser === 0)
      throw MatrixError.forbidden('This server does not send events later');
    if (delayMs > this.#longestMs)
      throw MatrixError.delayTooLarge(`Events may be delayed by ${this.#longestMs} ms at most`, {
        'org.matrix.msc4140.max_delay': this.#longestMs,
      });
    if (txnId !== undefined && (txnId.length > 255 || txnId.includes('\0'))) throw MatrixError.transactionIdTooLong();
    if ([roomId, type, stateKey ?? ''].some((text) => text.length > 255 || text.includes('\0')))
      throw MatrixError.invalidParam('Room, type and state key have at most 255 characters');
    await this.participation.assertMaySend(requester);
    await this.limiter.take('rc_message', requester.userId, requester);
    checkContent(type, stateKey, content, this.config.serverName, roomId);
    checkNesting(content);
    const text = JSON.stringify(content);
    if (Buffer.byteLength(text) > largestContentBytes) throw MatrixError.tooLarge('The event is too large');
    const membership = await this.members.inRoom(requester.userId, roomId);
    if (membership?.membership !== 'join') throw MatrixError.notInRoom();
    const row: DelayedEventRow = {
      delay_id: this.ids.letters(24),
      user_localpart: localpartOf(requester.userId),
      device_id: deviceKeyOf(requester),
      delay: delayMs,
      send_ts: this.clock.nowMs() + delayMs,
      room_id: roomId,
      event_type: type,
      state_key: stateKey ?? null,
      origin_server_ts: requester.appserviceId === undefined ? null : (originServerTs ?? null),
      content: text,
      sticky_duration_ms: stickyDurationMs ?? null,
      txn_id: txnId ?? null,
    };
    const delayId = await this.#insert(row);
    if (delayId === undefined) throw MatrixError.limitExceeded(capRetryAfterMs);
    this.#wakeAt(row.send_ts);
    return delayId;
  }

  /** What a request to send later has made already, as long as it waits. */
  scheduled(requester: Requester, roomId: string, txnId: string): Promise<string | undefined> {
    if (txnId.includes('\0')) return Promise.resolve(undefined);
    return findDelayedByTransaction(this.database, {
      user_localpart: localpartOf(requester.userId),
      device_id: deviceKeyOf(requester),
      room_id: roomId,
      txn_id: txnId,
    });
  }

  /** What a user has left to be sent, the next first, as clients see it. */
  async list(requester: Requester): Promise<JsonObject[]> {
    await this.limiter.take('rc_delayed_event_mgmt', requester.userId, requester);
    const rows = await delayedOf(this.database, localpartOf(requester.userId));
    return rows.map(shown);
  }

  /**
   * One of these. @throws MatrixError 404 `M_NOT_FOUND`, also for what somebody else has left
   */
  async one(requester: Requester, delayId: string): Promise<JsonObject> {
    await this.limiter.take('rc_delayed_event_mgmt', requester.userId, requester);
    const row = delayId.length > 64 ? undefined : await findDelayed(this.database, delayId);
    if (row?.user_localpart !== localpartOf(requester.userId))
      throw MatrixError.notFound('There is no such delayed event');
    return shown(row);
  }

  /**
   * Acts on an event that waits. Whoever knows its id may: the client may have lost its session by then.
   * @param requester absent where the request had no token
   * @param ip of the request, for limits
   * @throws MatrixError 404 `M_NOT_FOUND`, 429 `M_LIMIT_EXCEEDED`, and what sending throws
   */
  async act(delayId: string, action: DelayedAction, requester: Requester | undefined, ip: string): Promise<void> {
    await this.limiter.take('rc_delayed_event_mgmt', requester?.userId ?? ip, requester);
    const row = delayId.length > 64 ? undefined : await findDelayed(this.database, delayId);
    if (row === undefined) throw MatrixError.notFound('There is no such delayed event');
    if (action === 'send') {
      await this.#send(row);
      await this.#delete(delayId);
      return;
    }
    const nowMs = this.clock.nowMs();
    const found = await this.database.write(
      (tx) => (action === 'cancel' ? deleteDelayed(tx, delayId) : restartDelayed(tx, delayId, nowMs)),
      { name: 'delayed_events_act' },
    );
    if (found === 0) throw MatrixError.notFound('There is no such delayed event');
  }

  async #insert(row: DelayedEventRow): Promise<string | undefined> {
    // Before the transaction, so that state which is stored at the same time is not overlooked.
    if (row.state_key !== null) this.#stateRooms.add(row.room_id);
    const write = (): Promise<string | undefined> =>
      this.database.write(
        async (tx) => {
          await holdAccount(tx, `@${row.user_localpart}:${this.config.serverName}`);
          if (!(await holdRooms(tx, [row.room_id])).has(row.room_id)) throw MatrixError.notInRoom();
          return insertDelayed(tx, row, this.#maxPerUser);
        },
        { name: 'delayed_events_add' },
      );
    try {
      return await write();
    } catch (error) {
      // The same request came twice at the same time: now the first one's is found.
      if (row.txn_id !== null && isUniqueViolation(error)) return write();
      throw error;
    }
  }

  /** The timer only ever comes too early: what was restarted or canceled is found out when it fires. */
  #wakeAt(dueMs: number): void {
    if (this.#stopped || dueMs >= this.#timerAtMs) return;
    this.#timer?.cancel();
    this.#timerAtMs = dueMs;
    const sleepMs = Math.min(Math.max(dueMs - this.clock.nowMs(), 1), longestSleepMs);
    this.#timer = this.clock.after(sleepMs, () => {
      this.#timerAtMs = Number.MAX_SAFE_INTEGER;
      this.#working ??= this.#sendDue().finally(() => {
        this.#working = undefined;
      });
    });
  }

  async #sendDue(): Promise<void> {
    let failed = false;
    try {
      for (;;) {
        const due = await dueAt(this.database, this.clock.nowMs(), batchSize);
        const sent = await Promise.all(due.map((row) => this.#trySend(row)));
        failed = sent.includes(false);
        if (failed || due.length < batchSize || this.#stopped) break;
      }
      const next = await nextDue(this.database);
      if (next !== undefined) this.#wakeAt(failed ? Math.max(next, this.clock.nowMs() + retryMs) : next);
    } catch (error) {
      this.logger.error('Could not look for delayed events', { err: error });
      this.#wakeAt(this.clock.nowMs() + retryMs);
    }
  }

  /** @returns false when it is to be tried again */
  async #trySend(row: DelayedEventRow): Promise<boolean> {
    try {
      await this.#send(row);
    } catch (error) {
      if (!MatrixError.is(error) || error.status >= 500 || error.status === 429) {
        this.logger.error('Could not send a delayed event', { delay_id: row.delay_id, err: error });
        return false;
      }
      this.logger.info('A delayed event is not allowed any more', { delay_id: row.delay_id, reason: error.message });
    }
    try {
      await this.#delete(row.delay_id);
      return true;
    } catch (error) {
      this.logger.error('Could not delete a delayed event', { delay_id: row.delay_id, err: error });
      return false;
    }
  }

  /** Sends it; a second time makes no second event. */
  async #send(row: DelayedEventRow): Promise<void> {
    const userId = qualifyUserId(row.user_localpart, this.config.serverName);
    const account = await this.accounts.find(userId);
    if (!account || account.deactivated || account.locked || account.suspended)
      throw MatrixError.forbidden('The account may not send events');
    const isDevice = row.device_id !== null && row.device_id !== '' && !row.device_id.startsWith('as:');
    const requester: Requester = {
      userId,
      deviceId: isDevice && row.device_id !== null ? row.device_id : undefined,
      appserviceId: account.appserviceId,
      isGuest: account.isGuest,
      isAdmin: account.isAdmin,
      shadowBanned: account.shadowBanned,
      suspended: false,
      locked: false,
      // It was counted when it was left here.
      rateLimitExempt: true,
    };
    const content = JSON.parse(row.content) as JsonObject;
    const stateKey = row.state_key ?? undefined;
    if (row.event_type === 'm.room.member' && stateKey !== undefined)
      return void (await this.memberships.byContent(requester, row.room_id, stateKey, content));
    if (row.event_type === 'm.room.canonical_alias' && stateKey !== undefined)
      await this.aliases.checkCanonical(row.room_id, content);
    await this.creation.send(
      requester,
      {
        roomId: row.room_id,
        type: row.event_type,
        stateKey,
        content,
        originServerTs: row.origin_server_ts ?? undefined,
        stickyDurationMs: row.sticky_duration_ms ?? undefined,
      },
      `${delayedTxnPrefix}${row.delay_id}`,
    );
  }

  async #delete(delayId: string): Promise<void> {
    await this.database.write((tx) => deleteDelayed(tx, delayId), { name: 'delayed_events_delete' });
  }
}

/** As clients see it. */
const shown = (row: DelayedEventRow): JsonObject => ({
  delay_id: row.delay_id,
  room_id: row.room_id,
  type: row.event_type,
  ...(row.state_key === null ? {} : { state_key: row.state_key }),
  delay: row.delay,
  running_since: row.send_ts - row.delay,
  content: JSON.parse(row.content) as JsonObject,
});
