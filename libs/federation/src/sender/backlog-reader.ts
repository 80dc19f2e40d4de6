import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { lastSuccessOf } from '@rookery/federation-client';
import { domainOf } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { EventStore, isServable, RoomStateReader } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import { RemoteAudience } from './remote-audience.js';
import {
  arrivalsOf,
  latestOfRooms,
  type Missed,
  missedBy,
  namedSince,
  type OutgoingEvent,
  type PresenceEntry,
  presenceIn,
} from './sender.query.js';

/** How a server is in a room. */
interface Presence {
  /** The place behind which it was there; `undefined` where none of its users is known to be. */
  since: number | undefined;
  /** The place behind which what shuts servers out is what it is now. */
  aclSince: number;
  /** Its users, some of them, and the events with which they came. */
  readonly arrivals: Map<string, string>;
}

const memberType = 'm.room.member';
const aclType = 'm.room.server_acl';
const aclKey = stateKeyOf(aclType, '');

/** Tells what a server has not got that was away, or that this one was away from. */
@Injectable()
export class BacklogReader {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly events: EventStore,
    private readonly state: RoomStateReader,
    private readonly audience: RemoteAudience,
  ) {}

  /** Up to where a server has everything, as far as that is written. */
  reachedBy(destination: string): Promise<number> {
    return lastSuccessOf(this.database, destination);
  }

  /**
   * What a server has not got, in stream order, maybe the first part of it. While that is little it is everything that local users
   * did in rooms in which it was all the time since; else, and in other rooms, the latest event that it was to get. Events that were
   * deleted are left out.
   * @param after everything up to this place was sent
   */
  async of(destination: string, after: number): Promise<OutgoingEvent[]> {
    const { database, config } = this;
    const missed = await missedBy(database, config.serverName, destination, after);
    if (missed === undefined) return latestOfRooms(database, destination, after);
    const rooms = [...new Set(missed.filter(({ isLatest }) => !isLatest).map(({ roomId }) => roomId))];
    const seen = rooms.length === 0 ? noEvents : await this.#seenBy(destination, rooms, missed);
    return missed
      .filter(({ eventId, isLatest }) => isLatest || seen.has(eventId))
      .map(({ eventId, roomId, streamOrdering }) => ({ eventId, roomId, streamOrdering }));
  }

  /**
   * What local users did right before events, in stream order: what the events name as previous ones, of which it is sure that a server
   * may have them. Those that are among the given ones are left out.
   */
  async before(destination: string, eventIds: readonly string[]): Promise<OutgoingEvent[]> {
    const given = new Set(eventIds);
    const previous = new Set<string>();
    for (const { event } of (await this.events.many(eventIds)).values())
      for (const eventId of event.prevEventIds) if (!given.has(eventId)) previous.add(eventId);
    const own = [...(await this.events.many([...previous])).values()]
      .filter((stored) => isServable(stored) && domainOf(stored.event.sender) === this.config.serverName)
      .map(({ event: { eventId, roomId }, streamOrdering }) => ({ eventId, roomId, streamOrdering, isLatest: false }));
    if (own.length === 0) return [];
    const seen = await this.#seenBy(destination, [...new Set(own.map(({ roomId }) => roomId))], own);
    return own
      .filter(({ eventId }) => seen.has(eventId))
      .map(({ eventId, roomId, streamOrdering }) => ({ eventId, roomId, streamOrdering }))
      .sort((a, b) => a.streamOrdering - b.streamOrdering);
  }

  /** Events of which it is sure that a server was in their rooms, and not shut out, when they happened; and ever since. */
  async #seenBy(destination: string, roomIds: readonly string[], missed: readonly Missed[]): Promise<Set<string>> {
    const entries = await presenceIn(this.database, destination, roomIds);
    const named = await namedSince(this.database, destination, roomIds);
    const presences = presencesOf(entries, named);
    const isPast = ({ roomId, streamOrdering }: Missed): boolean => {
      const { since, aclSince } = presences.get(roomId)!;
      return since !== undefined && streamOrdering <= Math.max(since, aclSince);
    };
    const ofRooms = missed.filter(({ isLatest, roomId }) => !isLatest && presences.has(roomId));
    const seen = new Set(
      ofRooms
        .filter((event) => presences.get(event.roomId)!.since !== undefined && !isPast(event))
        .map(({ eventId }) => eventId),
    );
    const unsure = ofRooms.filter(isPast);
    if (unsure.length > 0)
      for (const eventId of await this.#seenInStates(destination, unsure, presences)) seen.add(eventId);
    return seen;
  }

  /**
   * The same by the events' own states: when its users became members here, or were called otherwise, tells nothing of when they came
   * where all members of the room came with a join; nor does a list that shuts out others.
   */
  async #seenInStates(
    destination: string,
    events: readonly Missed[],
    presences: ReadonlyMap<string, Presence>,
  ): Promise<string[]> {
    const roomIds = [...new Set(events.map(({ roomId }) => roomId))];
    const users = [...new Set(roomIds.flatMap((roomId) => [...presences.get(roomId)!.arrivals.keys()]))];
    if (users.length > 0) addArrivals(presences, await arrivalsOf(this.database, roomIds, users));
    const states = await this.state.idsAfter(
      events.map(({ eventId }) => eventId),
      { types: [[aclType, ''], ...users.map((userId) => [memberType, userId] as const)] },
    );
    const aclIds = [...states.values()].flatMap((state) => state.get(aclKey) ?? []);
    const allowing = await this.audience.allowing(destination, aclIds);
    return events.flatMap(({ eventId, roomId, streamOrdering }) => {
      const state = states.get(eventId);
      if (!state) return [];
      const { since, arrivals } = presences.get(roomId)!;
      const aclId = state.get(aclKey);
      if (aclId !== undefined && !allowing.has(aclId)) return [];
      const wasThere = [...arrivals].some(([userId, came]) => state.get(stateKeyOf(memberType, userId)) === came);
      return streamOrdering > since! || wasThere ? [eventId] : [];
    });
  }
}

const noEvents: ReadonlySet<string> = new Set();

/** @param named by room, since when a server is taken for one of those of which not all are known */
function presencesOf(entries: readonly PresenceEntry[], named: ReadonlyMap<string, number>): Map<string, Presence> {
  const presences = new Map<string, Presence>();
  const of = (roomId: string): Presence => {
    let presence = presences.get(roomId);
    if (!presence) presences.set(roomId, (presence = { since: named.get(roomId), aclSince: 0, arrivals: new Map() }));
    return presence;
  };
  for (const roomId of named.keys()) of(roomId);
  for (const entry of entries) {
    const presence = of(entry.room_id);
    if (entry.type === aclType) presence.aclSince = entry.place;
    else {
      presence.since = Math.min(presence.since ?? Infinity, entry.place);
      presence.arrivals.set(entry.state_key, entry.event_id);
    }
  }
  return presences;
}

function addArrivals(presences: ReadonlyMap<string, Presence>, arrivals: readonly PresenceEntry[]): void {
  for (const { room_id: roomId, state_key: userId, event_id: eventId, place } of arrivals) {
    const presence = presences.get(roomId);
    if (!presence?.arrivals.has(userId)) continue;
    presence.arrivals.set(userId, eventId);
    presence.since = Math.min(presence.since ?? Infinity, place);
  }
}
