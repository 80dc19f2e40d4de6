import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { EventSerializer, type StoredEvent, type VisibleEvent } from '@rookery/rooms';
import { compileEventFields } from '../request/event-fields.js';
import type { SyncContext } from '../sync-context.js';
import type { ShownTimeline } from './timeline.js';

/** Events of many rooms, written for one client. */
export type WrittenEvents = ReadonlyMap<string, readonly JsonObject[]>;

/** Writes events that the client may see as it asked for them: in the format and with the fields of its filter. */
@Injectable()
export class EventWriter {
  constructor(private readonly serializer: EventSerializer) {}

  /** Timelines. */
  async timelines(timelines: ReadonlyMap<string, ShownTimeline>, context: SyncContext): Promise<WrittenEvents> {
    return this.#write(
      [...timelines.values()].flatMap(({ events }) => events),
      context,
      false,
    );
  }

  /** State, which has no aggregations. */
  async state(states: ReadonlyMap<string, readonly StoredEvent[]>, context: SyncContext): Promise<WrittenEvents> {
    const visible = [...states.values()].flatMap((events) =>
      events.map((stored) => ({ stored, membership: undefined })),
    );
    return this.#write(visible, context, true);
  }

  async #write(
    visible: readonly VisibleEvent[],
    context: SyncContext,
    withoutAggregations: boolean,
  ): Promise<WrittenEvents> {
    const { filter, userId, deviceId } = context;
    const byRoom = new Map<string, JsonObject[]>();
    const events: readonly object[] =
      filter.eventFormat === 'federation'
        ? visible.map(({ stored }) => stored.event.pdu)
        : await this.serializer.serialize({ userId, deviceId }, visible, { withoutRoomId: true, withoutAggregations });
    const pick = compileEventFields(filter.eventFields);
    for (let index = 0; index < visible.length; index++) {
      const written = events[index] as JsonObject | undefined;
      if (written === undefined) continue;
      const { roomId } = visible[index]!.stored.event;
      const list = byRoom.get(roomId);
      const event = pick === undefined ? written : pick(written);
      if (list === undefined) byRoom.set(roomId, [event]);
      else list.push(event);
    }
    return byRoom;
  }
}
