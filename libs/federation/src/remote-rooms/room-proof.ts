import type { EventPersister } from '@rookery/rooms';
import type { RoomEvent } from '@rookery/events';
import { authStateOf, byAuth, checkAuth, checkAuthEvents, restsUpon, stateKeyOf } from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** The state before an event and what allows it, as another server told them. */
export type StateAtEvent = Parameters<EventPersister['receiveWithState']>[2];

/** Events that are looked at before others get a turn. */
const eventsPerTurn = 500;

/** The state of a room as another server tells it, as far as it proves itself. */
export interface ProvenState {
  /** One event for each key. */
  readonly state: readonly RoomEvent[];
  readonly authChain: readonly RoomEvent[];
}

/** What is wrong with a state as a whole. */
type Disproof = { readonly wrong: string };

/**
 * Keeps those of some events that the auth rules allow by auth events which are among them, or known.
 * @param known accepted events from elsewhere, by id
 */
async function allowedByThemselves(
  events: readonly RoomEvent[],
  known: ReadonlyMap<string, RoomEvent>,
): Promise<Map<string, RoomEvent>> {
  const allowed = new Map<string, RoomEvent>();
  for (const [index, event] of byAuth(events).entries()) {
    if (index % eventsPerTurn === eventsPerTurn - 1) await nextTurn();
    const needed = restsUpon(event);
    const found = needed.flatMap((id) => allowed.get(id) ?? known.get(id) ?? []);
    // An event stands and falls with each of its auth events.
    if (found.length < needed.length) continue;
    const named = found.filter(({ eventId }) => event.authEventIds.includes(eventId));
    if (!checkAuthEvents(event, named).allowed) continue;
    if (checkAuth(event, authStateOf(found)).allowed) allowed.set(event.eventId, event);
  }
  return allowed;
}

/** Ids of auth events that lie outside of a list. */
export function authEventsOutside(events: readonly RoomEvent[]): Set<string> {
  const inside = new Set(events.map((event) => event.eventId));
  const outside = new Set<string>();
  for (const event of events) for (const id of restsUpon(event)) if (!inside.has(id)) outside.add(id);
  return outside;
}

/**
 * Proves a room's state: who made it, by which version, and each entry by its auth events. Entries without proof are left
 * out.
 * @param told the state and its auth chain, whose hashes and signatures were checked
 * @param known accepted events that this server has
 */
export async function proveState(
  told: { readonly state: readonly RoomEvent[]; readonly authChain: readonly RoomEvent[] },
  version: string,
  known: ReadonlyMap<string, RoomEvent>,
): Promise<ProvenState | Disproof> {
  const allowed = await allowedByThemselves([...told.authChain, ...told.state], known);
  const state = new Map<string, RoomEvent>();
  for (const event of told.state) {
    if (event.stateKey === undefined) return { wrong: 'a message event in the state' };
    const key = stateKeyOf(event.type, event.stateKey);
    if ((state.get(key) ?? event) !== event) return { wrong: 'two events for one piece of state' };
    if (allowed.has(event.eventId)) state.set(key, event);
  }
  const create = state.get(stateKeyOf('m.room.create', ''));
  if (!create) return { wrong: 'no create event that stands' };
  if ((create.content['room_version'] ?? '1') !== version) return { wrong: 'a create event of another room version' };
  const isAnother = ({ type, eventId }: RoomEvent): boolean => type === 'm.room.create' && eventId !== create.eventId;
  if ([...allowed.values()].some(isAnother)) return { wrong: 'two create events' };
  const inState = new Set([...state.values()].map((event) => event.eventId));
  return {
    state: [...state.values()],
    authChain: told.authChain.filter(({ eventId }) => allowed.has(eventId) && !inState.has(eventId)),
  };
}

/** Why an event may not follow upon a proven state; `undefined` when it may. */
export function refusalOf(event: RoomEvent, { state, authChain }: ProvenState): string | undefined {
  const known = new Map([...authChain, ...state].map((each) => [each.eventId, each]));
  const named = event.authEventIds.flatMap((id) => known.get(id) ?? []);
  if (named.length < event.authEventIds.length) return 'an auth event is missing';
  const byNamed = checkAuthEvents(event, named);
  if (!byNamed.allowed) return byNamed.reason;
  const byState = checkAuth(event, authStateOf(state));
  return byState.allowed ? undefined : byState.reason;
}
