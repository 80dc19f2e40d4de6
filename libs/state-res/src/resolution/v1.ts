import { createHash } from 'node:crypto';
import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { authTypesFor } from '../auth/auth-types.js';
import { checkAuth } from '../auth/check-auth.js';
import type { AuthState } from '../auth/verdict.js';
import { splitStateKey, stateKeyOf, type StateMap } from '../state-map.js';
import { type Conflict, idsByKey } from './conflict.js';
import type { ResolutionEvents } from './resolution-events.js';

const powerLevelsKey = stateKeyOf('m.room.power_levels', '');

/**
 * State resolution of room version 1: power levels, then join rules, then members, then all other conflicts.
 * @returns what counts besides the unconflicted state, by state key
 * @spec rooms/v1#state-resolution
 */
export async function resolveV1(
  conflict: Conflict,
  store: ResolutionEvents,
  rules: RoomVersionRules,
): Promise<StateMap> {
  const { unconflicted } = conflict;
  const conflicted = idsByKey(conflict);
  await store.load([...conflicted.values()].flatMap((ids) => [...ids]));

  const candidates = new Map<string, RoomEvent[]>();
  const agreed = new Set<string>();
  for (const [key, ids] of conflicted) {
    const events = [...ids].map((id) => store.get(id)).filter((event) => event !== undefined);
    candidates.set(key, oldestFirst(events));
    for (const event of events) {
      for (const [type, stateKey] of authTypesFor(event, rules)) {
        const id = unconflicted.get(stateKeyOf(type, stateKey));
        if (id !== undefined) agreed.add(id);
      }
    }
  }
  await store.load(agreed);

  const resolved = new Map<string, string>();
  const state: AuthState = (type, stateKey) => {
    const key = stateKeyOf(type, stateKey);
    const id = resolved.get(key) ?? unconflicted.get(key);
    return id === undefined ? undefined : store.get(id);
  };
  const keys = [...candidates.keys()];
  for (const group of [0, 1, 2, 3]) {
    const winners: [string, RoomEvent][] = [];
    for (const key of keys.filter((candidate) => groupOf(candidate) === group)) {
      await store.pause();
      const events = candidates.get(key) ?? [];
      const winner = group < 3 ? lastInRow(events, state) : deepestAllowed(events, state);
      if (winner !== undefined) winners.push([key, winner]);
    }
    // A whole group is decided before any of it counts, or else the order of the keys would matter.
    for (const [key, winner] of winners) resolved.set(key, winner.eventId);
  }
  return resolved;
}

/** Power levels, join rules, members, all others: each group is decided before the next. */
function groupOf(key: string): number {
  if (key === powerLevelsKey) return 0;
  const [type] = splitStateKey(key);
  return type === 'm.room.join_rules' ? 1 : type === 'm.room.member' ? 2 : 3;
}

function oldestFirst(events: RoomEvent[]): RoomEvent[] {
  const digests = new Map(events.map(({ eventId }) => [eventId, createHash('sha1').update(eventId).digest('hex')]));
  const digest = (event: RoomEvent): string => digests.get(event.eventId) ?? '';
  return events.sort((a, b) => a.depth - b.depth || (digest(a) < digest(b) ? 1 : -1));
}

/** The last event of the row in which each is allowed after the one before; the first needs nobody's leave. */
function lastInRow(events: readonly RoomEvent[], state: AuthState): RoomEvent | undefined {
  let [winner] = events;
  for (const event of events.slice(1)) {
    const soFar = winner;
    const verdict = checkAuth(event, (type, stateKey) =>
      type === soFar?.type && stateKey === soFar.stateKey ? soFar : state(type, stateKey),
    );
    if (!verdict.allowed) break;
    winner = event;
  }
  return winner;
}

/**
 * NOTSPEC: where the auth rules allow none of the events, the specification leaves the entry open. The oldest is kept,
 * as other servers do: room version 1 has to agree with them above all.
 */
function deepestAllowed(events: readonly RoomEvent[], state: AuthState): RoomEvent | undefined {
  return events.findLast((event) => checkAuth(event, state).allowed) ?? events[0];
}
