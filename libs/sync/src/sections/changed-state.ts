import type { StoredEvent } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import type { StateDelta } from '../model/rooms.js';

/** What changed since the last sync and the timeline does not tell; with `state_after`, all that changed. */
export function changedState(
  deltas: readonly StateDelta[],
  timeline: readonly StoredEvent[],
  useStateAfter: boolean,
): Map<string, string> {
  const ids = new Map<string, string>();
  if (deltas.length === 0) return ids;
  const inTimeline = new Set(timeline.map((stored) => stored.event.eventId));
  const start = timeline[0]?.streamOrdering ?? Number.MAX_SAFE_INTEGER;
  // Each delta once: there may be as many as a large room had members come and go, and as many events as a timeline holds.
  const final = new Map<string, StateDelta>();
  const before = new Map<string, string>();
  for (const delta of deltas) {
    const key = stateKeyOf(delta.type, delta.stateKey);
    final.set(key, delta);
    if (delta.streamId < start && delta.eventId !== undefined && !inTimeline.has(delta.eventId))
      before.set(key, delta.eventId);
  }
  for (const [key, { eventId }] of final) {
    if (eventId === undefined) continue;
    const told = useStateAfter || !inTimeline.has(eventId) ? eventId : before.get(key);
    if (told !== undefined) ids.set(key, told);
  }
  return ids;
}
