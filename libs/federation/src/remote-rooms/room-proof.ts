import type { EventPersister } from '@rookery/rooms';
import type { RoomEvent } from '@rookery/events';
import { authStateOf, checkAuth, checkAuthEvents, inAuthOrder, restsUpon, stateKeyOf } from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';

/** The state before an event and what allows it, as another server told them. */
export type StateAtEvent = Parameters<EventPersister['receiveWithState']>[2];

/** Events that are judged, and that are only looked at, before others get a turn. */
const [judgedPerTurn, eventsPerTurn] = [500, 5_000];

/** The state of a room as another server tells it, as far as it proves itself. */
export interface ProvenState {
  /** One event for each key. */
  readonly state: readonly RoomEvent[];
  readonly authChain: readonly RoomEvent[];
  /** The state by key. */
  readonly entries: ReadonlyMap<string, RoomEvent>;
  /** State and auth chain by id. */
  readonly events: ReadonlyMap<string, RoomEvent>;
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
  let judged = 0;
  for (const event of inAuthOrder(events)) {
    if (++judged % judgedPerTurn === 0) await nextTurn();
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
export async function authEventsOutside(events: readonly RoomEvent[]): Promise<Set<string>> {
  const outside = new Set<string>();
  for (const [index, event] of events.entries()) {
    if (index % eventsPerTurn === eventsPerTurn - 1) await nextTurn();
    for (const id of restsUpon(event)) outside.add(id);
  }
  for (const { eventId } of events) outside.delete(eventId);
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
  const events = await allowedByThemselves([...told.authChain, ...told.state], known);
  const entries = new Map<string, RoomEvent>();
  for (const [index, event] of told.state.entries()) {
    if (index % eventsPerTurn === eventsPerTurn - 1) await nextTurn();
    if (event.stateKey === undefined) return { wrong: 'a message event in the state' };
    const key = stateKeyOf(event.type, event.stateKey);
    if ((entries.get(key) ?? event) !== event) return { wrong: 'two events for one piece of state' };
    if (events.has(event.eventId)) entries.set(key, event);
  }
  const create = entries.get(stateKeyOf('m.room.create', ''));
  if (!create) return { wrong: 'no create event that stands' };
  if ((create.content['room_version'] ?? '1') !== version) return { wrong: 'a create event of another room version' };
  for (const { type, eventId } of events.values())
    if (type === 'm.room.create' && eventId !== create.eventId) return { wrong: 'two create events' };
  const isInState = ({ type, stateKey, eventId }: RoomEvent): boolean =>
    stateKey !== undefined && entries.get(stateKeyOf(type, stateKey))?.eventId === eventId;
  return {
    state: [...entries.values()],
    authChain: told.authChain.filter((event) => events.has(event.eventId) && !isInState(event)),
    entries,
    events,
  };
}

/**
 * Why an event may not follow upon a proven state; `undefined` when it may.
 * @param isPartial the state lacks members: whom it does not have is believed to be what the event's own auth events say
 */
export function refusalOf(
  event: RoomEvent,
  { entries, events }: Pick<ProvenState, 'entries' | 'events'>,
  isPartial = false,
): string | undefined {
  const named = event.authEventIds.flatMap((id) => events.get(id) ?? []);
  if (named.length < event.authEventIds.length) return 'an auth event is missing';
  const byNamed = checkAuthEvents(event, named);
  if (!byNamed.allowed) return byNamed.reason;
  const claimed = authStateOf(isPartial ? named : []);
  const byState = checkAuth(
    event,
    (type, stateKey) => entries.get(stateKeyOf(type, stateKey)) ?? claimed(type, stateKey),
  );
  return byState.allowed ? undefined : byState.reason;
}
