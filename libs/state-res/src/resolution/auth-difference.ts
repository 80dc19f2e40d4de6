import type { RoomEvent } from '@rookery/events';
import { stateKeyOf } from '../state-map.js';
import type { ResolutionEvents } from './resolution-events.js';
import { Heap } from './heap.js';
import type { Conflict } from './conflict.js';

/** Entries of the unconflicted state that most chains lead through. */
const spine = [
  stateKeyOf('m.room.create', ''),
  stateKeyOf('m.room.power_levels', ''),
  stateKeyOf('m.room.join_rules', ''),
];

/** Unconflicted events whose chains are walked at a time. */
const sourceBatch = 500;

/**
 * The events in the auth chains of some but not all state sets; whether conflicted events are among them is open. The
 * result is exact whatever the provider knows; generations make it cheap. The unconflicted state, which can be as large
 * as the room, is looked into only as long as its chains can decide about an event.
 *
 * NOTSPEC: the chain of a state set holds the set's own events too. The specification leaves them out, which no server
 * does; it changes nothing but whether an event that all sets agree on counts as different.
 * @param conflicted ids of all conflicted events, loaded
 * @spec rooms/v2#definitions
 */
export async function authDifference(
  conflict: Conflict,
  conflicted: ReadonlySet<string>,
  store: ResolutionEvents,
): Promise<ReadonlySet<string>> {
  return (await store.indexedAuthDifference(conflict)) ?? new DifferenceWalk(conflict, conflicted, store).run();
}

class DifferenceWalk {
  /** By event id: the state sets in whose chains it was found, one bit each. */
  private readonly masks = new Map<string, bigint>();
  private readonly everySet: bigint;
  /** Events found in some but not yet all chains, conflicted ones aside. */
  private readonly open = new Set<string>();
  /** Events to walk on from, by falling generation. */
  private readonly queue = new Heap<QueueItem>((a, b) => a.generation > b.generation);
  private readonly queued = new Set<string>();
  /** Queued events that are not in every chain: from them new open ones can turn up. */
  private readonly partialQueued = new Set<string>();
  private fresh: string[] = [];

  constructor(
    private readonly conflict: Conflict,
    private readonly conflicted: ReadonlySet<string>,
    private readonly store: ResolutionEvents,
  ) {
    this.everySet = (1n << BigInt(conflict.sets.length)) - 1n;
  }

  async run(): Promise<ReadonlySet<string>> {
    for (const [index, set] of this.conflict.sets.entries()) {
      for (const id of set.values()) this.reach(id, 1n << BigInt(index));
    }
    await this.walk();
    if (this.open.size > 0) await this.walkFrom(this.likelySources());
    let batch: string[] = [];
    for (const id of this.conflict.unconflicted.values()) {
      if (this.open.size === 0) break;
      if (batch.push(id) < sourceBatch) continue;
      await this.walkFrom(batch);
      batch = [];
    }
    if (this.open.size > 0) await this.walkFrom(batch);
    return this.open;
  }

  /** What the state sets agree on under the keys of the open events has mostly come after them, and cites them. */
  private likelySources(): string[] {
    const keys = new Set(spine);
    for (const id of this.open) {
      const event = this.store.get(id);
      if (event === undefined) continue;
      if (event.stateKey !== undefined) keys.add(stateKeyOf(event.type, event.stateKey));
      keys.add(stateKeyOf('m.room.member', event.sender));
    }
    return [...keys].map((key) => this.conflict.unconflicted.get(key)).filter((id) => id !== undefined);
  }

  private walkFrom(agreed: readonly string[]): Promise<void> {
    for (const id of agreed) this.reach(id, this.everySet);
    return this.walk();
  }

  private async walk(): Promise<void> {
    for (;;) {
      await this.enqueueFresh();
      const top = this.queue.pop();
      if (top === undefined) return;
      if (this.partialQueued.size === 0 && (this.open.size === 0 || top.generation <= this.lowestOpen())) {
        // Kept, since what lies below can still matter to events that other sources lead to.
        this.queue.push(top);
        return;
      }
      // All of one generation at once, so that their auth events come in one batch.
      for (let next: QueueItem | undefined = top; next !== undefined; next = this.popOf(top.generation)) {
        this.expand(next.id);
        await this.store.pause();
      }
    }
  }

  private popOf(generation: number): QueueItem | undefined {
    const next = this.queue.pop();
    if (next === undefined || next.generation === generation) return next;
    this.queue.push(next);
    return undefined;
  }

  private expand(id: string): void {
    this.queued.delete(id);
    this.partialQueued.delete(id);
    const mask = this.masks.get(id) ?? 0n;
    for (const authId of this.store.links(id)?.authEventIds ?? []) this.reach(authId, mask);
  }

  private reach(id: string, by: bigint): void {
    const before = this.masks.get(id) ?? 0n;
    const mask = before | by;
    if (mask === before) return;
    this.masks.set(id, mask);
    const isPartial = mask !== this.everySet;
    if (!this.conflicted.has(id)) {
      if (isPartial) this.open.add(id);
      else this.open.delete(id);
    }
    if (isPartial) this.partialQueued.add(id);
    else this.partialQueued.delete(id);
    if (this.queued.has(id)) return;
    this.queued.add(id);
    this.fresh.push(id);
  }

  private async enqueueFresh(): Promise<void> {
    if (this.fresh.length === 0) return;
    const fresh = this.fresh;
    this.fresh = [];
    const open = fresh.filter((id) => this.open.has(id));
    await this.store.load(open);
    await this.store.loadLinks(fresh);
    for (const id of open) {
      const event = this.store.get(id);
      if (event === undefined) this.open.delete(id);
      else if (this.isAgreed(event)) this.reach(id, this.everySet);
    }
    for (const id of fresh) this.queue.push({ id, generation: this.store.links(id)?.generation ?? Infinity });
  }

  private isAgreed({ eventId, type, stateKey }: RoomEvent): boolean {
    return stateKey !== undefined && this.conflict.unconflicted.get(stateKeyOf(type, stateKey)) === eventId;
  }

  /** What is not above every open event can no longer lead to one; unknown generations stop nothing. */
  private lowestOpen(): number {
    let lowest = Infinity;
    for (const id of this.open) lowest = Math.min(lowest, this.store.links(id)?.generation ?? -1);
    return lowest;
  }
}

interface QueueItem {
  readonly id: string;
  readonly generation: number;
}
