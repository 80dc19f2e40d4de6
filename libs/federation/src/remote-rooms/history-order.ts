import type { RoomEvent } from '@rookery/events';

/**
 * Those of some events that lead up to known ones, each behind its ancestors among them. Who names an event by its hash
 * vouches for it; whatever else a server mixes in is left out.
 * @param wanted ids that known events name
 */
export function leadingTo(wanted: readonly string[], events: readonly RoomEvent[]): RoomEvent[] {
  const byId = new Map(events.map((event) => [event.eventId, event]));
  const done = new Set<string>();
  const sorted: RoomEvent[] = [];
  for (const id of wanted) {
    const start = byId.get(id);
    const pending = start ? [{ event: start, expanded: false }] : [];
    for (let next = pending.pop(); next; next = pending.pop()) {
      if (next.expanded) {
        sorted.push(next.event);
        continue;
      }
      if (done.has(next.event.eventId)) continue;
      done.add(next.event.eventId);
      pending.push({ event: next.event, expanded: true });
      for (const prev of next.event.prevEventIds) {
        const event = byId.get(prev);
        if (event && !done.has(prev)) pending.push({ event, expanded: false });
      }
    }
  }
  return sorted;
}
