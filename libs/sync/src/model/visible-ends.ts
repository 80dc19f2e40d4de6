import type { VisibleEvent } from '@rookery/rooms';
import type { TimelineSlice } from './rooms.js';

/** Where most of a room's end is hidden, so many times as many events are read, but no more than these. */
const times = 5;
const most = 100;

/** How many events are read of a room of whose last `limit` ones most are hidden. */
export const furtherBack = (limit: number): number => Math.max(limit, Math.min(limit * times, most));

/**
 * Rooms of whose end the reader may see less than half, though there is more before it: what hidden senders said must not take
 * the places of what there is to see.
 */
export function mostlyHidden(
  slices: ReadonlyMap<string, Pick<TimelineSlice, 'events' | 'limited'>>,
  visible: ReadonlyMap<string, readonly VisibleEvent[]>,
): ReadonlySet<string> {
  const isHidden = (roomId: string, { events, limited }: Pick<TimelineSlice, 'events' | 'limited'>): boolean =>
    limited && (visible.get(roomId)?.length ?? 0) * 2 < events.length;
  return new Set([...slices].flatMap(([roomId, slice]) => (isHidden(roomId, slice) ? [roomId] : [])));
}

/**
 * The end of a slice that shows at most `limit` events.
 * @param visible those of its events that the reader may see
 * @param placeBefore the place before an event in the order of arrival
 */
export function endOf(
  slice: TimelineSlice,
  visible: readonly VisibleEvent[],
  limit: number,
  placeBefore: (event: VisibleEvent['stored']) => TimelineSlice['start'],
): { readonly slice: TimelineSlice; readonly visible: readonly VisibleEvent[] } {
  const first = visible.length > limit ? visible.at(-limit) : undefined;
  if (first === undefined) return { slice, visible };
  const { eventId } = first.stored.event;
  const events = slice.events.slice(slice.events.findIndex(({ event }) => event.eventId === eventId));
  return {
    slice: { events, limited: true, start: placeBefore(first.stored) },
    visible: visible.slice(-limit),
  };
}
