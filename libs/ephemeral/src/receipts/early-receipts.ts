import { domainOf } from '@rookery/matrix-types';
import type { Receipt } from '../model/receipt.js';

/** Receipts that are kept: of one server's users, and in all. */
const maxPerServer = 500;
const maxReceipts = 20_000;
/** What has not come by then is not waited for, milliseconds. */
const keptMs = 3_600_000;

interface Early {
  readonly receipt: Receipt;
  readonly untilMs: number;
}

/**
 * Receipts for events that this server does not have yet, and of users who are not in the room yet. The latest of each user,
 * room and thread is kept, in memory: one that gets lost is made up for by the next.
 */
export class EarlyReceipts {
  /** By server, then by room, user and thread; the oldest first. */
  readonly #servers = new Map<string, Map<string, Early>>();
  readonly #byEvent = new Map<string, Set<Receipt>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Keeps receipts, in place of what the same users were said to have read before. */
  add(receipts: readonly Receipt[], nowMs: number): void {
    for (const receipt of receipts) {
      this.delete(receipt);
      const server = domainOf(receipt.userId);
      let ofServer = this.#servers.get(server);
      if (!ofServer) this.#servers.set(server, (ofServer = new Map()));
      ofServer.set(keyOf(receipt), { receipt, untilMs: nowMs + keptMs });
      const ofEvent = this.#byEvent.get(receipt.eventId);
      if (ofEvent) ofEvent.add(receipt);
      else this.#byEvent.set(receipt.eventId, new Set([receipt]));
      this.#size++;
      if (ofServer.size > maxPerServer) this.#deleteOldest(ofServer);
      else if (this.#size > maxReceipts) this.#deleteOldest(this.#servers.values().next().value!);
    }
  }

  /** Takes those for events out. */
  take(eventIds: Iterable<string>, nowMs: number): Receipt[] {
    const taken: Receipt[] = [];
    for (const eventId of eventIds) {
      for (const receipt of this.#byEvent.get(eventId) ?? []) {
        if (this.#find(receipt)!.untilMs > nowMs) taken.push(receipt);
        this.delete(receipt);
      }
    }
    return taken;
  }

  /** Takes those of users in a room out. */
  takeOf(roomId: string, userIds: readonly string[], nowMs: number): Receipt[] {
    const wanted = new Set(userIds);
    const taken: Receipt[] = [];
    for (const server of new Set(userIds.map(domainOf))) {
      for (const { receipt, untilMs } of [...(this.#servers.get(server)?.values() ?? [])]) {
        if (receipt.roomId !== roomId || !wanted.has(receipt.userId)) continue;
        if (untilMs > nowMs) taken.push(receipt);
        this.delete(receipt);
      }
    }
    return taken;
  }

  /** Forgets what is kept of the same user, room and thread. */
  delete(receipt: Receipt): void {
    const found = this.#find(receipt)?.receipt;
    if (!found) return;
    const server = domainOf(found.userId);
    const ofServer = this.#servers.get(server)!;
    ofServer.delete(keyOf(found));
    if (ofServer.size === 0) this.#servers.delete(server);
    const ofEvent = this.#byEvent.get(found.eventId)!;
    ofEvent.delete(found);
    if (ofEvent.size === 0) this.#byEvent.delete(found.eventId);
    this.#size--;
  }

  #find(receipt: Receipt): Early | undefined {
    return this.#servers.get(domainOf(receipt.userId))?.get(keyOf(receipt));
  }

  #deleteOldest(ofServer: ReadonlyMap<string, Early>): void {
    const oldest = ofServer.values().next().value;
    if (oldest) this.delete(oldest.receipt);
  }
}

const keyOf = ({ roomId, userId, threadId = '' }: Receipt): string => `${roomId}\n${userId}\n${threadId}`;
