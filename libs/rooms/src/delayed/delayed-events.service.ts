import { Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import { Database, isUniqueViolation } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { domainOf, type JsonObject, localpartOf, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids, type Requester } from '@rookery/platform';
import { holdAccount, qualifyUserId, UserHooks } from '@rookery/users';
import { RoomHooks } from '../hooks.js';
import { holdRooms } from '../store/room-hold.query.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { checkContent, checkNesting } from '../model/content-rules.js';
import { Participation } from '../sending/participation.js';
import type { SendRequest } from '../sending/event-creation.service.js';
import { deviceKeyOf } from '../model/requesters.js';
import { DelayedOutbox, noSuchDelayedEvent } from './delayed-outbox.js';
import {
  deleteDelayedOfRoom,
  deleteDelayedOfUser,
  deleteDelayedState,
  type DelayedEventRow,
  delayedOf,
  findDelayed,
  findDelayedByTransaction,
  insertDelayed,
  roomsWithDelayedState,
} from './delayed-events.query.js';

/** What can be done to an event that waits. */
export type DelayedAction = 'cancel' | 'restart' | 'send';

const largestContentBytes = 65_536;
const capRetryAfterMs = 60_000;

/**
 * Events that clients leave here to be sent later, unless they say otherwise in time: how a call learns that a member's
 * connection was lost. They survive restarts, and each is sent once.
 * MSC4140
 */
@Injectable()
export class DelayedEvents implements OnApplicationBootstrap {
  readonly #longestMs: number | undefined;
  readonly #maxPerUser: number;
  /** Rooms in which state is waiting; a room may stay here after its last one went. */
  readonly #stateRooms = new Set<string>();

  // Ten parameters: what a request is checked by before it is left here, and the two hooks that take events back.
  constructor(
    private readonly database: Database,
    private readonly outbox: DelayedOutbox,
    private readonly members: MembershipReader,
    private readonly limiter: RateLimiter,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly participation: Participation,
    hooks: RoomHooks,
    userHooks: UserHooks,
  ) {
    this.#longestMs = config.get('max_event_delay_duration');
    this.#maxPerUser = config.get('experimental_features.msc4140_max_delayed_events_per_user');
    hooks.subscribe({
      inTransaction: async (tx, { roomId, events, backfilled, room }) => {
        if (backfilled || !this.#stateRooms.has(roomId)) return;
        for (const { event } of events) {
          const { type, stateKey, sender } = event;
          // Only what is set now: on a branch, or long ago, it may have been set to anything.
          if (stateKey === undefined || room.stateId(type, stateKey) !== event.eventId) continue;
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
  }

  /**
   * Leaves an event to be sent in `delayMs`.
   * @param txnId the same request may be repeated: it makes one
   * @returns its id, with which anybody may act on it
   * @throws MatrixError 400 `M_BAD_JSON`, `ORG.MATRIX.MSC4140_DELAY_TOO_LARGE`, 403 `M_FORBIDDEN` (switched off, or not in the
   *   room), `M_USER_SUSPENDED`, 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED` (also for too many at a time)
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
    if (requester.suspended) throw MatrixError.userSuspended();
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
      appservice_id: requester.appserviceId ?? null,
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
    this.outbox.wakeAt(row.send_ts);
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
    if (row?.user_localpart !== localpartOf(requester.userId)) throw noSuchDelayedEvent();
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
    if (delayId.length > 64) throw noSuchDelayedEvent();
    await this.outbox[action](delayId);
  }

  async #insert(row: DelayedEventRow): Promise<string | undefined> {
    // Before the transaction, so that state which is stored at the same time is not overlooked.
    if (row.state_key !== null) this.#stateRooms.add(row.room_id);
    const write = (): Promise<string | undefined> =>
      this.database.write(
        async (tx) => {
          await holdAccount(tx, qualifyUserId(row.user_localpart, this.config.serverName));
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
