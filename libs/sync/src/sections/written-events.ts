import { Injectable } from '@nestjs/common';
import { WrittenList } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import { EventSerializer, type StoredEvent, type VisibleEvent } from '@rookery/rooms';
import { compileEventFields } from '../request/event-fields.js';
import type { SyncContext } from '../sync-context.js';
import type { ShownTimeline } from './timeline.js';

/** Events of many rooms, written for one client; long lists may be text already, where that was asked for. */
export type WrittenEvents = ReadonlyMap<string, readonly JsonObject[] | WrittenList>;

/** Writes events that the client may see as it asked for them: in the format and with the fields of its filter. */
@Injectable()
export class EventWriter {
  constructor(private readonly serializer: EventSerializer) {}

  /** Timelines. */
  async timelines(
    timelines: ReadonlyMap<string, ShownTimeline>,
    context: SyncContext,
  ): Promise<ReadonlyMap<string, readonly JsonObject[]>> {
    return this.#write(
      [...timelines.values()].flatMap(({ events }) => events),
      context,
      false,
    );
  }

  /**
   * State, which has no aggregations.
   * @param asText of more than one page nothing is kept but its text
   */
  async state(
    pages: AsyncIterable<readonly StoredEvent[]>,
    context: SyncContext,
    asText = false,
  ): Promise<WrittenEvents> {
    const state = new StateLists(asText);
    for await (const page of pages) {
      const visible = page.map((stored) => ({ stored, membership: undefined }));
      state.add(await this.#write(visible, context, true));
    }
    return state.lists;
  }

  async #write(
    visible: readonly VisibleEvent[],
    context: SyncContext,
    withoutAggregations: boolean,
  ): Promise<Map<string, JsonObject[]>> {
    const { filter, userId, deviceId } = context;
    // Only state has no aggregations.
    const withoutRoomId = !(withoutAggregations && context.stateNamesRoom === true);
    const events: readonly object[] =
      filter.eventFormat === 'federation'
        ? visible.map(({ stored }) => stored.event.pdu)
        : await this.serializer.serialize({ userId, deviceId }, visible, { withoutRoomId, withoutAggregations });
    return byRoom(visible, events, compileEventFields(filter.eventFields));
  }
}

/**
 * Written events by the room that they are of.
 * @param written in the order of `visible`
 */
export function byRoom(
  visible: readonly Pick<VisibleEvent, 'stored'>[],
  written: readonly object[],
  pick?: (event: JsonObject) => JsonObject,
): Map<string, JsonObject[]> {
  const rooms = new Map<string, JsonObject[]>();
  for (const [index, { stored }] of visible.entries()) {
    const whole = written[index] as JsonObject | undefined;
    if (whole === undefined) continue;
    const event = pick === undefined ? whole : pick(whole);
    const list = rooms.get(stored.event.roomId);
    if (list === undefined) rooms.set(stored.event.roomId, [event]);
    else list.push(event);
  }
  return rooms;
}

/** State of rooms that is written a page at a time. */
export class StateLists {
  readonly #objects = new Map<string, JsonObject[]>();
  readonly #texts = new Map<string, WrittenList>();
  #pages = 0;

  /** @param asText of more than one page nothing is kept but its text */
  constructor(private readonly asText: boolean) {}

  get lists(): WrittenEvents {
    return this.#texts.size > 0 ? this.#texts : this.#objects;
  }

  add(page: ReadonlyMap<string, JsonObject[]>): void {
    const isText = this.asText && this.#pages++ > 0;
    if (isText) for (const [roomId, events] of this.#objects) this.#write(roomId, events);
    if (isText) this.#objects.clear();
    for (const [roomId, events] of page) {
      if (isText) this.#write(roomId, events);
      else this.#objects.set(roomId, this.#objects.get(roomId)?.concat(events) ?? events);
    }
  }

  #write(roomId: string, events: readonly JsonObject[]): void {
    let list = this.#texts.get(roomId);
    if (list === undefined) this.#texts.set(roomId, (list = new WrittenList()));
    list.add(events);
  }
}
