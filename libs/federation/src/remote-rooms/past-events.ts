import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { BackwardGaps, EventPersister, EventStore, InboundEvents, RoomStateReader } from '@rookery/rooms';
import { followerWithStateOf } from './followers.js';
import { type KnownState, type StateAfter, StoredStates } from './stored-states.js';

/** Places in one list whose state is not known and must be fetched. */
const maxRoots = 5;

/** Puts events of the past into their rooms. */
@Injectable()
export class PastEvents {
  constructor(
    private readonly states: StoredStates,
    private readonly persister: EventPersister,
    private readonly inbound: InboundEvents,
    private readonly events: EventStore,
    private readonly gaps: BackwardGaps,
    private readonly state: RoomStateReader,
  ) {}

  /**
   * Stores events of the past, oldest first: where their ancestors are not known, with the state of what follows upon them, or with that which
   * the server tells.
   * @returns ids of those that are stored now
   */
  async take(server: string, roomId: string, events: readonly RoomEvent[]): Promise<string[]> {
    const known = await this.events.many(events.flatMap((event) => [event.eventId, ...event.prevEventIds]));
    const placed = new Set([...known].flatMap(([id, stored]) => (stored.outlier ? [] : [id])));
    const fresh = events.filter(({ eventId }) => !placed.has(eventId));
    let run: RoomEvent[] = [];
    const page = new Map(fresh.map((event) => [event.eventId, event]));
    const followers = this.state.isWhole(roomId) ? await this.gaps.followers(roomId, [...page.keys()]) : [];
    const nearer = followers.map(({ event }) => event);
    let state: KnownState | StateAfter | undefined;
    let roots = 0;
    const flush = async (): Promise<void> => {
      if (run.length === 0) return;
      await this.inbound.completeAuth(server, roomId, run);
      await this.persister.backfill(roomId, run, state);
      run = [];
    };
    for (const event of fresh) {
      const isConnected = event.prevEventIds.length > 0 && event.prevEventIds.every((id) => placed.has(id));
      if (!isConnected) {
        const same = followerWithStateOf(event, page, nearer);
        const told = (): Promise<KnownState | undefined> | undefined =>
          ++roots > maxRoots ? undefined : this.#stateBefore(server, event);
        const before = same ? { after: same.eventId } : await told();
        if (!before) continue;
        await flush();
        state = before;
      } else if (run.length === 0) state = undefined;
      run.push(event);
      placed.add(event.eventId);
    }
    await flush();
    const stored = await this.events.many(fresh.map(({ eventId }) => eventId));
    return [...stored].flatMap(([id, entry]) => (entry.outlier ? [] : [id]));
  }

  /** The state before an event without known ancestors. The room's first event has none. */
  async #stateBefore(server: string, event: RoomEvent): Promise<KnownState | undefined> {
    if (event.prevEventIds.length > 0) return this.states.beforeMissing(server, event);
    return event.type === 'm.room.create' ? { state: new Map(), servers: new Set() } : undefined;
  }
}
