import type { StoredEvent, VisibleEvent } from '@rookery/rooms';
import type { TimelineSlice } from './rooms.js';

/** Where most of a room's end is hidden, so many times as many events are read, but no more than these. */
const times = 5;
const most = 100;

/** Ends of rooms, and what their reader may see of them, by room and oldest first. */
export interface VisibleEnds {
  readonly slices: Map<string, TimelineSlice>;
  readonly visible: Map<string, readonly VisibleEvent[]>;
}

/** How ends are read. */
export interface EndsReading<Room> {
  /** How many events are shown of a room. */
  readonly limitOf: (room: Room) => number;
  /** @param sizeOf how many events are read of a room of which so many are shown */
  readonly slices: (rooms: readonly Room[], sizeOf: (limit: number) => number) => Promise<Map<string, TimelineSlice>>;
  /** Those that the reader may see. */
  readonly visible: (events: readonly StoredEvent[]) => Promise<VisibleEvent[]>;
  /** The place before an event in the order of arrival. */
  readonly placeBefore: (event: StoredEvent) => TimelineSlice['start'];
}

/**
 * The ends of rooms, as long as was asked for where there is as much to see not too far back: what hidden senders said must not
 * take the places of what there is to see. Rooms of whose end most is hidden are read once more, all at once.
 */
export async function visibleEnds<Room extends { readonly roomId: string }>(
  rooms: readonly Room[],
  reading: EndsReading<Room>,
): Promise<VisibleEnds> {
  const ends = await read(rooms, reading, (limit) => limit);
  const hidden = rooms.filter((room) => {
    const limit = reading.limitOf(room);
    return furtherBack(limit) > limit && isMostlyHidden(room.roomId, ends);
  });
  if (hidden.length === 0) return ends;
  const further = await read(hidden, reading, furtherBack);
  for (const room of hidden) {
    const slice = further.slices.get(room.roomId);
    if (slice === undefined) continue;
    const shown = further.visible.get(room.roomId) ?? [];
    const limit = reading.limitOf(room);
    const first = shown.length > limit ? shown.at(-limit)?.stored : undefined;
    ends.slices.set(room.roomId, first === undefined ? slice : beginningWith(first, slice, reading.placeBefore(first)));
    ends.visible.set(room.roomId, shown.slice(-limit));
  }
  return ends;
}

const furtherBack = (limit: number): number => Math.max(limit, Math.min(limit * times, most));

async function read<Room>(
  rooms: readonly Room[],
  reading: EndsReading<Room>,
  sizeOf: (limit: number) => number,
): Promise<VisibleEnds> {
  const slices = await reading.slices(rooms, sizeOf);
  const visible = await reading.visible([...slices.values()].flatMap(({ events }) => events));
  return { slices, visible: Map.groupBy(visible, ({ stored }) => stored.event.roomId) };
}

/** Whether less than half of a room's end is to be seen, though there is more before it. */
function isMostlyHidden(roomId: string, { slices, visible }: VisibleEnds): boolean {
  const slice = slices.get(roomId);
  return slice !== undefined && slice.limited && (visible.get(roomId)?.length ?? 0) * 2 < slice.events.length;
}

/** The place behind what was read of a room, where nothing of it is shown. */
export function behind({ events, start }: TimelineSlice): TimelineSlice['start'] {
  const last = events.at(-1);
  return last === undefined ? start : { topological: undefined, stream: last.streamOrdering };
}

/** What of a slice begins with one of its events. */
function beginningWith(first: StoredEvent, { events }: TimelineSlice, start: TimelineSlice['start']): TimelineSlice {
  const place = events.findIndex(({ event }) => event.eventId === first.event.eventId);
  return { events: events.slice(place), limited: true, start };
}
