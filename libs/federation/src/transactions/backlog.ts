import type { RoomEvent } from '@rookery/events';

/**
 * Ids of the events that need not wait: those that others of them build upon, which can be fetched again, and of the rest all
 * but the last.
 * @param events in their order of arrival
 * @param keep how many are kept at most
 */
export function superfluousOf(events: readonly RoomEvent[], keep: number): string[] {
  const named = new Set(events.flatMap((event) => event.prevEventIds));
  const ends = events.filter((event) => !named.has(event.eventId));
  const kept = new Set(ends.slice(-keep).map((event) => event.eventId));
  return events.filter((event) => !kept.has(event.eventId)).map((event) => event.eventId);
}
