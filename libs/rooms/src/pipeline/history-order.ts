import type { RoomEvent } from '@rookery/events';
import { byPrev } from './remote-stager.js';

/**
 * Those of some events that lead up to known ones, each behind its ancestors among them. Who names an event by its hash
 * vouches for it; whatever else a server mixes in is left out.
 * @param wanted ids that known events name
 */
export function leadingTo(wanted: readonly string[], events: readonly RoomEvent[]): RoomEvent[] {
  const byId = new Map(events.map((event) => [event.eventId, event]));
  const reached = new Map<string, RoomEvent>();
  const pending = [...wanted];
  for (let id = pending.pop(); id !== undefined; id = pending.pop()) {
    const event = byId.get(id);
    if (!event || reached.has(id)) continue;
    reached.set(id, event);
    pending.push(...event.prevEventIds);
  }
  return byPrev([...reached.values()]);
}
