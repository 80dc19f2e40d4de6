import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@rookery/database';
import { relationOf } from '@rookery/events';
import {
  domainOf,
  isJsonObject,
  isValidEventId,
  isValidRoomId,
  isValidUserId,
  type JsonObject,
} from '@rookery/matrix-types';
import { Clock, Logger } from '@rookery/platform';
import { EventStore, RoomHooks, type StoredEvent } from '@rookery/rooms';
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
    logger: Logger,
    roomHooks: RoomHooks,
  ) {
    this.#logger = logger.child('federation');
    roomHooks.subscribe({ afterCommit: ({ events }) => this.#arrived(events) });
  }

  /** Resolves when nothing is being stored any more. */
  async onModuleDestroy(): Promise<void> {
    await Promise.all(this.#working);
  }

  /**
   * Content of `m.receipt`. Receipts for events that are still on their way, maybe from another server than the receipt, are
   * kept for a while, and stored when the event is.
   */
  async receive(origin: string, content: JsonObject): Promise<void> {
    await this.#place(receiptsIn(origin, content, this.clock.nowMs()));
  }

  async #place(offered: readonly Receipt[]): Promise<void> {
    if (offered.length === 0) return;
    const rooms = [...new Set(offered.map(({ roomId }) => roomId))];
    const users = [...new Set(offered.map(({ userId }) => userId))];
    const joined = new Set(
      (await joinedAmong(this.database, rooms, users)).map(({ roomId, userId }) => `${roomId}\n${userId}`),
    );
    const allowed = offered.filter(({ roomId, userId }) => joined.has(`${roomId}\n${userId}`));
    const missing = await this.#store(allowed);
    if (missing.length === 0) return;
    this.#early.add(missing, this.clock.monotonicMs());
    // What was stored since nobody is going to tell of.
    const left = new Set(await this.#store(missing));
    for (const receipt of missing) if (!left.has(receipt)) this.#early.delete(receipt);
  }

  /** Stores those that are for something that is there; the others. */
  async #store(offered: readonly Receipt[]): Promise<Receipt[]> {
    const found = await this.events.many(
      offered.flatMap(({ eventId, threadId = 'main' }) => (threadId === 'main' ? [eventId] : [eventId, threadId])),
    );
    // Threads that nobody knows could be made up without end, with a row for each.
    const isThere = (id: string, roomId: string): boolean => found.get(id)?.event.roomId === roomId;
    await this.receipts.store(
      offered.flatMap((receipt) => {
        const stored = found.get(receipt.eventId);
        if (stored?.event.roomId !== receipt.roomId) return [];
        const { roomId, threadId = 'main' } = receipt;
        const names = relationOf(stored.event.content)?.eventId;
        if (threadId !== 'main' && threadId !== names && !isThere(threadId, roomId)) return [];
        return [{ ...receipt, eventStreamOrdering: stored.streamOrdering }];
      }),
    );
    return offered.filter(({ eventId }) => !found.has(eventId));
  }

  /** Events were stored: what was read of them before is stored, too. */
  #arrived(events: readonly StoredEvent[]): void {
    if (this.#early.size === 0) return;
    const due = this.#early.take(
      events.map(({ event }) => event.eventId),
      this.clock.monotonicMs(),
    );
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
      if (typeof eventId !== 'string' || !isValidEventId(eventId)) continue;
      if (threadId !== undefined && threadId !== 'main' && !(typeof threadId === 'string' && isValidEventId(threadId)))
        continue;
      receipts.set(`${roomId}\n${userId}\n${threadId ?? ''}`, {
        ...{ roomId, type: 'm.read', userId, eventId, threadId },
        ts: typeof ts === 'number' && Number.isSafeInteger(ts) && ts >= 0 ? ts : nowMs,
        eventStreamOrdering: undefined,
      });
    }
  }
  return [...receipts.values()];
}
