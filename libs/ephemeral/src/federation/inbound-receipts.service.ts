import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@rookery/database';
import { relationOf } from '@rookery/events';
import {
  domainOf,
  fitsBytes,
  isJsonObject,
  isValidRoomId,
  isValidUserId,
  type JsonObject,
  maxIdBytes,
} from '@rookery/matrix-types';
import { Clock, Logger } from '@rookery/platform';
import { type EventBatch, EventStore, RoomHooks } from '@rookery/rooms';
import { RoomAudience } from '../common/room-audience.js';
import type { Receipt } from '../model/receipt.js';
import { EarlyReceipts } from '../receipts/early-receipts.js';
import { ReceiptService } from '../receipts/receipt.service.js';
import { joinedAmong } from './joined-users.query.js';

/** What one EDU may hold; the rest is passed over. */
const maxReceipts = 2_000;

/** Receipts from other servers. */
@Injectable()
export class InboundReceipts implements OnModuleDestroy {
  readonly #early = new EarlyReceipts();
  /** Early receipts that are being stored. */
  readonly #working = new Set<Promise<void>>();
  readonly #logger: Logger;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly events: EventStore,
    private readonly receipts: ReceiptService,
    private readonly audience: RoomAudience,
    logger: Logger,
    roomHooks: RoomHooks,
  ) {
    this.#logger = logger.child('federation');
    roomHooks.subscribe({ afterCommit: (batch) => this.#arrived(batch) });
  }

  /** Resolves when nothing is being stored any more. */
  async onModuleDestroy(): Promise<void> {
    await Promise.all(this.#working);
  }

  /**
   * Content of `m.receipt`. Receipts for events that are still on their way, or of users whose join is, maybe from another server
   * than the receipt, are kept for a while, and stored when what they wait for is. In a room that is known in part nothing is waited for:
   * what was said in it before does not come by itself, and people have read that.
   */
  async receive(origin: string, content: JsonObject): Promise<void> {
    await this.#place(receiptsIn(origin, content, this.clock.nowMs()));
  }

  async #place(offered: readonly Receipt[]): Promise<void> {
    const early = await this.#settle(offered);
    if (early.length === 0) return;
    this.#early.add(early, this.clock.monotonicMs());
    // What was stored since nobody is going to tell of.
    const left = new Set(await this.#settle(early));
    for (const receipt of early) if (!left.has(receipt)) this.#early.delete(receipt);
  }

  /**
   * Stores what can be.
   * @returns those that come too early: their event is not here, or their user's join, to a room of ours
   */
  async #settle(offered: readonly Receipt[]): Promise<Receipt[]> {
    if (offered.length === 0) return [];
    const found = await joinedAmong(this.database, offered);
    const partial = new Set(found.flatMap(({ roomId, isPartial }) => (isPartial ? [roomId] : [])));
    const joined = new Set(found.map(({ roomId, userId }) => `${roomId}\n${userId}`));
    const isJoined = ({ roomId, userId }: Receipt): boolean => joined.has(`${roomId}\n${userId}`);
    const missing = await this.#store(offered.filter(isJoined), partial);
    const strangers = offered.filter((receipt) => !isJoined(receipt));
    const members = await this.audience.ofRooms(new Set(strangers.map(({ roomId }) => roomId)));
    return [...missing, ...strangers.filter(({ roomId }) => (members.get(roomId)?.size ?? 0) > 0)];
  }

  /** Stores those that are for something that is there, or of a room that is known in part; the others. */
  async #store(offered: readonly Receipt[], partial: ReadonlySet<string>): Promise<Receipt[]> {
    const found = await this.events.many(
      offered.flatMap(({ eventId, threadId = 'main' }) => (threadId === 'main' ? [eventId] : [eventId, threadId])),
    );
    // Threads that nobody knows could be made up without end, with a row for each.
    const isThere = (id: string, roomId: string): boolean => found.get(id)?.event.roomId === roomId;
    await this.receipts.store(
      offered.flatMap((receipt) => {
        const { roomId, threadId = 'main' } = receipt;
        const stored = found.get(receipt.eventId);
        if (stored === undefined ? !partial.has(roomId) : stored.event.roomId !== roomId) return [];
        const names = stored && relationOf(stored.event.content)?.eventId;
        if (threadId !== 'main' && threadId !== names && !isThere(threadId, roomId)) return [];
        return [{ ...receipt, eventStreamOrdering: stored?.streamOrdering }];
      }),
    );
    return offered.filter(({ eventId, roomId }) => !found.has(eventId) && !partial.has(roomId));
  }

  /** Events were stored, and people joined: what was read of them, or by them, before is stored, too. */
  #arrived({ roomId, events, moves }: EventBatch): void {
    if (this.#early.size === 0) return;
    const joined = moves.flatMap(({ userId, membership }) => (membership === 'join' ? [userId] : []));
    const nowMs = this.clock.monotonicMs();
    const due = [
      ...this.#early.take(
        events.map(({ event }) => event.eventId),
        nowMs,
      ),
      ...this.#early.takeOf(roomId, joined, nowMs),
    ];
    if (due.length === 0) return;
    const work = this.#place(due)
      .catch((err: unknown) => this.#logger.warn('Receipts that came early could not be stored', { err }))
      .finally(() => this.#working.delete(work));
    this.#working.add(work);
  }
}

/** A server speaks for its own users. */
export function isUserOf(origin: string, userId: unknown): userId is string {
  return typeof userId === 'string' && isValidUserId(userId) && domainOf(userId) === origin;
}

/** What ids of events look like is for those to say who make them: one that is none is of no event that is here. */
const isId = (value: unknown): value is string =>
  typeof value === 'string' &&
  value !== '' &&
  fitsBytes(value, maxIdBytes) &&
  !value.includes('\0') &&
  value.isWellFormed();

/** `{room: {"m.read": {user: {event_ids: […], data: {ts, thread_id}}}}}` */
function receiptsIn(origin: string, content: JsonObject, nowMs: number): Receipt[] {
  const receipts = new Map<string, Receipt>();
  for (const [roomId, types] of Object.entries(content)) {
    const users = isJsonObject(types) ? types['m.read'] : undefined;
    if (!isValidRoomId(roomId) || !isJsonObject(users)) continue;
    for (const [userId, receipt] of Object.entries(users)) {
      if (receipts.size >= maxReceipts) return [...receipts.values()];
      if (!isUserOf(origin, userId) || !isJsonObject(receipt) || !Array.isArray(receipt['event_ids'])) continue;
      const eventId: unknown = receipt['event_ids'].at(-1);
      const data = isJsonObject(receipt['data']) ? receipt['data'] : {};
      const { ts, thread_id: threadId } = data;
      if (!isId(eventId) || (threadId !== undefined && !isId(threadId))) continue;
      receipts.set(`${roomId}\n${userId}\n${threadId ?? ''}`, {
        ...{ roomId, type: 'm.read', userId, eventId, threadId },
        ts: typeof ts === 'number' && Number.isSafeInteger(ts) && ts >= 0 ? ts : nowMs,
        eventStreamOrdering: undefined,
      });
    }
  }
  return [...receipts.values()];
}
