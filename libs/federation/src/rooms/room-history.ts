import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { MatrixError } from '@rookery/matrix-types';
import {
  EventByTime,
  EventGraph,
  EventStore,
  RoomStateReader,
  ServerVisibility,
  type StoredEvent,
} from '@rookery/rooms';
import { ResidentRooms } from './resident-rooms.js';

/** A room's state before an event, and what it rests upon: ids. */
export interface StateAt {
  readonly state: readonly string[];
  readonly authChain: ReadonlySet<string>;
}

/** Which part of a graph is wanted. */
export interface MissingRange {
  readonly earliest: readonly string[];
  readonly latest: readonly string[];
  readonly limit: number;
  readonly minDepth: number;
}

const noEvent = (): MatrixError => MatrixError.notFound('The event is not known here');

/**
 * The past of rooms, for other servers in them. All methods throw MatrixError 403 `M_FORBIDDEN` for servers that are not in
 * the room, or shut out of it, and 404 `M_NOT_FOUND` for rooms and events that this server does not know.
 */
@Injectable()
export class RoomHistory {
  constructor(
    private readonly rooms: ResidentRooms,
    private readonly events: EventStore,
    private readonly graph: EventGraph,
    private readonly state: RoomStateReader,
    private readonly visibility: ServerVisibility,
    private readonly byTime: EventByTime,
  ) {}

  /** One event. Who may not see its room is not told whether there is such an event. @spec server-server-api#get_matrixfederationv1eventeventid */
  async event(origin: string, eventId: string): Promise<RoomEvent[]> {
    const stored = await this.events.one(eventId);
    if (!stored || stored.rejectedReason !== undefined) throw noEvent();
    await this.rooms.shared(origin, stored.event.roomId).catch((error: unknown) => {
      throw MatrixError.is(error) && error.status < 500 ? noEvent() : error;
    });
    return this.visibility.shown(origin, stored.event.roomId, [stored]);
  }

  /** @spec server-server-api#get_matrixfederationv1state_idsroomid */
  async stateAt(origin: string, roomId: string, eventId: string): Promise<StateAt> {
    const stored = await this.#inRoom(origin, roomId, eventId);
    if (!(await this.rooms.isWhole(roomId)))
      throw MatrixError.forbidden('This server does not know all of the room yet');
    const before = stored.outlier ? undefined : await this.state.idsBefore(stored);
    if (!before) throw noEvent();
    const state = [...before.values()];
    return { state, authChain: await this.graph.authChain(roomId, state) };
  }

  /** Ids of what an event rests upon. @spec server-server-api#get_matrixfederationv1event_authroomideventid */
  async authChain(origin: string, roomId: string, eventId: string): Promise<ReadonlySet<string>> {
    await this.#inRoom(origin, roomId, eventId);
    return this.graph.authChain(roomId, [eventId]);
  }

  /** Events and what was before them, the latest first. @spec server-server-api#get_matrixfederationv1backfillroomid */
  async backfill(origin: string, roomId: string, from: readonly string[], limit: number): Promise<RoomEvent[]> {
    await this.rooms.shared(origin, roomId);
    return this.visibility.shown(origin, roomId, await this.graph.walkBack(roomId, from, { limit }));
  }

  /** Events between others, the oldest first. @spec server-server-api#post_matrixfederationv1get_missing_eventsroomid */
  async missing(origin: string, roomId: string, range: MissingRange): Promise<RoomEvent[]> {
    await this.rooms.shared(origin, roomId);
    const { latest, earliest: stopAt, limit, minDepth } = range;
    const found = await this.graph.walkBack(roomId, latest, { limit, stopAt, minDepth, withoutStart: true });
    return this.visibility.shown(origin, roomId, found.reverse());
  }

  /** The event next to a time. @spec server-server-api#get_matrixfederationv1timestamp_to_eventroomid */
  async atTime(origin: string, roomId: string, ts: number, direction: 'f' | 'b'): Promise<RoomEvent> {
    await this.rooms.shared(origin, roomId);
    const found = await this.byTime.nearest(roomId, ts, direction, async (candidates) => {
      const shown = await this.visibility.shown(origin, roomId, candidates);
      // What comes redacted is not for them to see.
      return shown.find((event, index) => event === candidates[index]?.event);
    });
    if (!found) throw MatrixError.notFound('There is no event on that side of this time');
    return found;
  }

  async #inRoom(origin: string, roomId: string, eventId: string): Promise<StoredEvent> {
    await this.rooms.shared(origin, roomId);
    const stored = await this.events.one(eventId);
    if (stored?.event.roomId !== roomId || stored.rejectedReason !== undefined) throw noEvent();
    return stored;
  }
}
