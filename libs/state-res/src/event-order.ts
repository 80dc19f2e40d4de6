import type { RoomEvent } from '@rookery/events';

/** Ids of the events that allow an event: its auth events, and the create event also where that is implied. */
export function restsUpon({ authEventIds, roomId, rules, type }: RoomEvent): string[] {
  const isImplied = rules.createEventImplied && type !== 'm.room.create';
  return isImplied ? [...authEventIds, `$${roomId.slice(1)}`] : [...authEventIds];
}

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

/** Events with each behind those of its auth events that are among them. */
export const byAuth = (events: readonly RoomEvent[]): RoomEvent[] => [...behind(events, restsUpon)];

/** {@link byAuth} one by one, for whoever lets others run in between: the order is found as far as it is asked for. */
export const inAuthOrder = (events: readonly RoomEvent[]): Generator<RoomEvent, void> => behind(events, restsUpon);

/** Events with each behind those of its previous events that are among them, whatever depths they claim. */
export const byPrev = (events: readonly RoomEvent[]): RoomEvent[] => [...behind(events, (event) => event.prevEventIds)];

/** Events with each behind those that it names. A cycle, which hashes forbid, ends anywhere. */
function* behind(
  events: readonly RoomEvent[],
  namedBy: (event: RoomEvent) => readonly string[],
): Generator<RoomEvent, void> {
  const byId = new Map(events.map((event) => [event.eventId, event]));
  const done = new Set<string>();
  for (const start of events) {
    const pending: { event: RoomEvent; expanded: boolean }[] = [{ event: start, expanded: false }];
    for (let next = pending.pop(); next; next = pending.pop()) {
      if (next.expanded) {
        yield next.event;
        continue;
      }
      if (done.has(next.event.eventId)) continue;
      done.add(next.event.eventId);
      pending.push({ event: next.event, expanded: true });
      for (const id of namedBy(next.event)) {
        const named = byId.get(id);
        if (named && !done.has(id)) pending.push({ event: named, expanded: false });
      }
    }
  }
}
