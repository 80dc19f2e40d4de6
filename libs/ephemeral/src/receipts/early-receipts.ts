import { domainOf } from '@rookery/matrix-types';
import { EarlyNews } from '../common/early-news.js';
import type { Receipt } from '../model/receipt.js';

const limits = { perServer: 500, inAll: 20_000, keptMs: 3_600_000 };

/**
 * Receipts for events that this server does not have yet, and of users who are not in the room yet. The latest of each user,
 * room and thread is kept, in memory: one that gets lost is made up for by the next.
 */
export class EarlyReceipts {
  readonly #kept = new EarlyNews<Receipt>({ ...limits, dropped: (receipt) => this.#dropped(receipt) });
  readonly #byEvent = new Map<string, Set<Receipt>>();

  get size(): number {
    return this.#kept.size;
  }

  /** Keeps receipts, in place of what the same users were said to have read before. */
  add(receipts: readonly Receipt[], nowMs: number): void {
    for (const receipt of receipts) {
      this.#kept.add(domainOf(receipt.userId), keyOf(receipt), receipt, nowMs);
      const ofEvent = this.#byEvent.get(receipt.eventId);
      if (ofEvent) ofEvent.add(receipt);
      else this.#byEvent.set(receipt.eventId, new Set([receipt]));
    }
  }

  /** Takes those for events out. */
  take(eventIds: Iterable<string>, nowMs: number): Receipt[] {
    const taken: Receipt[] = [];
    for (const eventId of eventIds) taken.push(...this.#taken(this.#byEvent.get(eventId) ?? [], nowMs));
    return taken;
  }

  /** Takes those of users in a room out. */
  takeOf(roomId: string, userIds: readonly string[], nowMs: number): Receipt[] {
    const wanted = new Set(userIds);
    const taken: Receipt[] = [];
    for (const server of new Set(userIds.map(domainOf))) {
      const ofThem = this.#kept.of(server).filter((one) => one.roomId === roomId && wanted.has(one.userId));
      taken.push(...this.#taken(ofThem, nowMs));
    }
    return taken;
  }

  /** Forgets what is kept of the same user, room and thread. */
  delete(receipt: Receipt): void {
    this.#kept.delete(domainOf(receipt.userId), keyOf(receipt));
  }

  #taken(receipts: Iterable<Receipt>, nowMs: number): Receipt[] {
    return [...receipts].flatMap((one) => this.#kept.take(domainOf(one.userId), keyOf(one), nowMs) ?? []);
  }

  #dropped(receipt: Receipt): void {
    const ofEvent = this.#byEvent.get(receipt.eventId);
    ofEvent?.delete(receipt);
    if (ofEvent?.size === 0) this.#byEvent.delete(receipt.eventId);
  }
}

const keyOf = ({ roomId, userId, threadId = '' }: Receipt): string => `${roomId}\n${userId}\n${threadId}`;
