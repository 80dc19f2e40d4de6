import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { EventPersister, EventStore, InboundEvents } from '@rookery/rooms';
import { MissingEvents } from './missing-events.js';
import type { StateAtEvent } from './room-proof.js';

/** Places in one list whose state is not known and must be fetched. */
const maxRoots = 5;

/** Puts events of the past into their rooms. */
@Injectable()
export class PastEvents {
  constructor(
    private readonly missing: MissingEvents,
    private readonly persister: EventPersister,
    private readonly inbound: InboundEvents,
    private readonly events: EventStore,
  ) {}

  /**
   * Stores events of the past, oldest first: where their ancestors are not known, with the state that the server tells.
   * @returns ids of those that are stored now
   */
  async take(server: string, roomId: string, events: readonly RoomEvent[]): Promise<string[]> {
    const known = await this.events.many(events.flatMap((event) => [event.eventId, ...event.prevEventIds]));
    const placed = new Set([...known].flatMap(([id, stored]) => (stored.outlier ? [] : [id])));
    const fresh = events.filter(({ eventId }) => !placed.has(eventId));
    let run: RoomEvent[] = [];
    let state: StateAtEvent | undefined;
    let roots = 0;
    const flush = async (): Promise<void> => {
      if (run.length === 0) return;
      await this.inbound.completeAuth(server, roomId, run, state);
      await this.persister.backfill(roomId, run, state);
      run = [];
    };
    for (const event of fresh) {
      const isConnected = event.prevEventIds.length > 0 && event.prevEventIds.every((id) => placed.has(id));
      if (!isConnected) {
        const before = ++roots > maxRoots ? undefined : await this.#stateBefore(server, event);
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
  async #stateBefore(server: string, event: RoomEvent): Promise<StateAtEvent | undefined> {
    if (event.prevEventIds.length > 0) return this.missing.stateBefore(server, event.roomId, event.eventId);
    return event.type === 'm.room.create' ? { state: [], authChain: [] } : undefined;
  }
}
