import type { RoomEvent } from '@rookery/events';
import type { ResolutionEvents } from './resolution-events.js';
import { compareByTime } from './power-order.js';

/**
 * Sorts events by the place where their power levels leave the mainline, the line of power levels events that led to
 * the given one: oldest first, those without any before all others; then the earlier timestamp, then the smaller id.
 *
 * All lines are followed back side by side, one batch per step, and only until they have met: what lies before the
 * meeting is the same for all.
 * @param events loaded, and so are their auth events
 * @param head id of the power levels event at the mainline's end, if the state has one
 * @spec rooms/v2#definitions
 */
export async function mainlineOrder(
  events: readonly RoomEvent[],
  head: string | undefined,
  store: ResolutionEvents,
): Promise<RoomEvent[]> {
  const starts = new Map(events.map((event) => [event, powerLevelsAmong(event.authEventIds, store)]));
  if (head === undefined) return [...events].sort(compareByTime);

  /** Each power levels event's predecessor; `undefined` at the start of its line. */
  const before = new Map<string, string | undefined>();
  let tips = new Set([head]);
  for (const start of starts.values()) if (start !== undefined) tips.add(start);
  await store.load(tips);
  // Once a line has ended, another may still lead into it, so that a last one has to be followed to its end.
  let hasEnded = false;
  while (tips.size > (hasEnded ? 0 : 1)) {
    await store.load([...tips].flatMap((tip) => store.get(tip)?.authEventIds ?? []));
    const next = new Set<string>();
    for (const tip of tips) {
      const previous = powerLevelsAmong(store.get(tip)?.authEventIds ?? [], store);
      before.set(tip, previous);
      if (previous === undefined) hasEnded = true;
      else if (!before.has(previous) && !tips.has(previous)) next.add(previous);
      await store.pause();
    }
    tips = next;
  }

  const position = new Map<string, number>();
  for (let at: string | undefined = head; at !== undefined && !position.has(at); at = before.get(at)) {
    position.set(at, position.size);
  }
  const places = new Map<string | undefined, number>([[undefined, Infinity]]);
  const placeOf = (start: string | undefined): number => {
    const passed: (string | undefined)[] = [];
    let at = start;
    while (at !== undefined && !position.has(at) && !places.has(at) && passed.length <= before.size) {
      passed.push(at);
      at = before.get(at);
    }
    const place = at === undefined ? Infinity : (position.get(at) ?? places.get(at) ?? Infinity);
    for (const id of passed) places.set(id, place);
    return place;
  };
  const rows = [...starts].map(([event, start]) => ({ event, place: placeOf(start) }));
  rows.sort((a, b) => (a.place === b.place ? compareByTime(a.event, b.event) : a.place > b.place ? -1 : 1));
  return rows.map((row) => row.event);
}

function powerLevelsAmong(authEventIds: readonly string[], store: ResolutionEvents): string | undefined {
  return authEventIds.find((id) => {
    const event = store.get(id);
    return event?.type === 'm.room.power_levels' && event.stateKey === '';
  });
}
