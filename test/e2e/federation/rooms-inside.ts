import type { Database } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { EventPersister, EventStore, InboundEvents, type MissingEventsSource, RoomPorts } from '@rookery/rooms';
import type { TestHomeserver } from '@rookery/testing';
import { startAndReach } from '../rooms/reach.js';

/** The parts of a running server that federation hands events to. */
export interface RoomsInside {
  readonly inbound: InboundEvents;
  readonly persister: EventPersister;
  /** Whom the server asks for what is missing. */
  useMissingEvents(source: MissingEventsSource): void;
  /** The current state of a room, read as its owner sees it: events by id. */
  events(eventIds: readonly string[]): Promise<RoomEvent[]>;
  /** The events that nothing builds upon yet. */
  heads(roomId: string): Promise<RoomEvent[]>;
}

interface InboundParts {
  readonly persister: EventPersister;
  readonly events: EventStore;
  readonly remote: { readonly ports: RoomPorts };
  readonly database: Database;
}

/**
 * Starts a server of this process and reaches into it: events arrive as if they had been signed and checked, so that a test
 * can say what no honest server would.
 */
export async function startWithInside(
  start: () => Promise<TestHomeserver>,
): Promise<{ homeserver: TestHomeserver; inside: RoomsInside }> {
  const { homeserver, instance } = await startAndReach(InboundEvents, start);
  return { homeserver, inside: insideOf(instance) };
}

/** The parts, of a server that was reached some other way. */
export function insideOf(inbound: InboundEvents): RoomsInside {
  const { persister, events, remote, database } = inbound as unknown as InboundParts;
  return {
    inbound,
    persister,
    useMissingEvents: (source) => remote.ports.missingEvents.replace(source),
    events: async (eventIds) => (await events.inOrder([...eventIds])).map((stored) => stored.event),
    heads: async (roomId) => {
      const rows = await database.query<{ event_id: string }>(
        'SELECT event_id FROM event_forward_extremities WHERE room_id = ? ORDER BY event_id',
        [roomId],
      );
      return (await events.inOrder(rows.map((row) => row.event_id))).map((stored) => stored.event);
    },
  };
}
