import type { RoomEvent, RoomVersionRules } from '@rookery/events';
import { PowerLevels } from '../auth/power-levels.js';
import type { ResolutionEvents } from './resolution-events.js';
import { Heap } from './heap.js';

/**
 * Whether an event may take somebody's power away: power levels, join rules, kicks and bans.
 *
 * NOTSPEC: power levels and join rules under another state key than the empty one govern nothing; like other servers,
 * this one does not treat them as power events.
 * @spec rooms/v2#definitions
 */
export function isPowerEvent(event: RoomEvent): boolean {
  if (event.stateKey === undefined) return false;
  if (event.type === 'm.room.power_levels' || event.type === 'm.room.join_rules') return event.stateKey === '';
  if (event.type !== 'm.room.member' || event.sender === event.stateKey) return false;
  const membership = event.content['membership'];
  return membership === 'leave' || membership === 'ban';
}

interface Vertex {
  readonly event: RoomEvent;
  readonly level: number;
  readonly citing: Vertex[];
  /** Auth events within the set that have not been taken yet. */
  waitsFor: number;
}

/**
 * Sorts events after their auth events; where that leaves a choice, higher power of the sender first, then the earlier
 * timestamp, then the smaller id.
 * @param events loaded, and so are their auth events
 * @param create of rooms whose create event is implied
 * @spec rooms/v2#definitions
 */
export async function powerOrder(
  events: readonly RoomEvent[],
  store: ResolutionEvents,
  create: RoomEvent | undefined,
  rules: RoomVersionRules,
): Promise<RoomEvent[]> {
  const vertices = new Map<string, Vertex>();
  for (const event of events) {
    const level = senderLevel(event, store, create, rules);
    vertices.set(event.eventId, { event, level, citing: [], waitsFor: 0 });
  }
  const ready = new Heap<Vertex>(
    (a, b) => a.level > b.level || (a.level === b.level && compareByTime(a.event, b.event) < 0),
  );
  for (const vertex of vertices.values()) {
    await store.pause();
    for (const authId of new Set(vertex.event.authEventIds)) {
      const cited = vertices.get(authId);
      if (cited === undefined) continue;
      cited.citing.push(vertex);
      vertex.waitsFor++;
    }
    if (vertex.waitsFor === 0) ready.push(vertex);
  }
  const sorted: RoomEvent[] = [];
  for (let vertex = ready.pop(); vertex !== undefined; vertex = ready.pop()) {
    await store.pause();
    sorted.push(vertex.event);
    for (const citing of vertex.citing) {
      if (--citing.waitsFor === 0) ready.push(citing);
    }
  }
  return sorted;
}

/** The sender's power when the event was made, as far as its own auth events tell. */
function senderLevel(
  event: RoomEvent,
  store: ResolutionEvents,
  implied: RoomEvent | undefined,
  rules: RoomVersionRules,
): number {
  let powerLevels: RoomEvent | undefined;
  let create = implied;
  for (const authId of event.authEventIds) {
    const authEvent = store.get(authId);
    if (authEvent?.stateKey !== '') continue;
    if (authEvent.type === 'm.room.power_levels') powerLevels = authEvent;
    else if (authEvent.type === 'm.room.create') create ??= authEvent;
  }
  return new PowerLevels(powerLevels, create, rules).user(event.sender);
}

/** Earlier first; of the same millisecond, the smaller id by code points. */
export function compareByTime(a: RoomEvent, b: RoomEvent): number {
  if (a.originServerTs !== b.originServerTs) return a.originServerTs - b.originServerTs;
  return Buffer.compare(Buffer.from(a.eventId), Buffer.from(b.eventId));
}
