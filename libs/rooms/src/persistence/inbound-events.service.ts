import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { RemoteRooms } from '../membership/remote-rooms.js';
import { EventPersister, type ForeignEvent, type ForeignState, type ReceiveVerdict } from './event-persister.js';
import { EventStore } from './event-store.js';
import { byAuth, byPrev } from './foreign-stager.js';
import { selectExtremities, selectRoom } from './room-snapshot.query.js';

/** How often the ancestors of one event are asked for before its state is taken from the origin, or it is given up. */
const maxRounds = 5;
/** Auth events that are fetched for one event, over all rounds. */
const maxAuthEvents = 500;
/** Places in a gap at which the state is taken from the origin. */
const maxStates = 5;

/**
 * Receives events of other servers, and fetches what is missing before them: auth events one by one, previous events in
 * bulk, and where the gap is too wide the state that the origin has.
 * @spec server-server-api#checks-performed-on-receipt-of-a-pdu
 */
@Injectable()
export class InboundEvents {
  constructor(
    private readonly persister: EventPersister,
    private readonly events: EventStore,
    private readonly remote: RemoteRooms,
    private readonly database: Database,
  ) {}

  /**
   * @param origin the server to ask for what is missing
   * @returns what became of the event; `missingAncestors` when the origin would not fill the gap: nothing was stored then
   */
  async receive(origin: string, roomId: string, foreign: ForeignEvent): Promise<ReceiveVerdict> {
    let verdict = await this.#try(origin, roomId, foreign);
    const source = this.remote.missingEvents;
    if (!source) return verdict;
    let fetchedAuth = 0;
    let askedForPrev = false;
    for (let round = 0; round < maxRounds && verdict.kind === 'missingAncestors'; round++) {
      const isAuth = (id: string): boolean => foreign.event.authEventIds.includes(id);
      const missingAuth = verdict.eventIds.filter(isAuth);
      if (missingAuth.length > 0) {
        fetchedAuth += await this.#fetchAuth(origin, roomId, missingAuth, maxAuthEvents - fetchedAuth);
        if (fetchedAuth >= maxAuthEvents) return verdict;
      } else if (!askedForPrev) {
        askedForPrev = true;
        await this.#fetchPrev(origin, roomId, foreign.event);
      } else {
        return this.#withOriginsState(origin, roomId, foreign, verdict);
      }
      verdict = await this.#try(origin, roomId, foreign);
    }
    return verdict;
  }

  /**
   * Fetches the auth events of events that are about to be stored, where they are not known.
   * @param given what comes with the events
   */
  async completeAuth(
    origin: string,
    roomId: string,
    events: readonly RoomEvent[],
    given: ForeignState = { state: [], authChain: [] },
  ): Promise<void> {
    const own = new Set([...events, ...given.state, ...given.authChain].map((event) => event.eventId));
    const named = new Set(events.flatMap((event) => event.authEventIds).filter((id) => !own.has(id)));
    const known = await this.events.many(named);
    const missing = [...named].filter((id) => !known.has(id));
    if (missing.length > 0 && this.remote.missingEvents) await this.#fetchAuth(origin, roomId, missing, maxAuthEvents);
  }

  async #try(origin: string, roomId: string, foreign: ForeignEvent): Promise<ReceiveVerdict> {
    return (await this.persister.receive(roomId, [{ origin, ...foreign }]))[0]!;
  }

  /** Fetches auth events, their auth events and so on, and stores them as outliers. */
  async #fetchAuth(origin: string, roomId: string, eventIds: readonly string[], budget: number): Promise<number> {
    const room = await selectRoom(this.database, roomId);
    if (!room) return budget;
    const fetched = new Map<string, RoomEvent>();
    let wanted = [...eventIds];
    while (wanted.length > 0 && fetched.size < budget) {
      const level = await this.remote.missingEvents!.events(origin, roomId, wanted.slice(0, budget - fetched.size));
      for (const event of level) if (event.roomId === roomId) fetched.set(event.eventId, event);
      const named = new Set(level.flatMap((event) => event.authEventIds).filter((id) => !fetched.has(id)));
      const known = await this.events.many(named);
      wanted = [...named].filter((id) => !known.has(id));
    }
    if (fetched.size === 0) return budget;
    await this.persister.receiveOutliers(roomId, room.room_version, byAuth([...fetched.values()]));
    return fetched.size;
  }

  /** Fetches what lies between the room's heads and an event, and stores it in order. */
  async #fetchPrev(origin: string, roomId: string, event: RoomEvent): Promise<void> {
    const heads = await selectExtremities(this.database, roomId);
    const found = await this.remote.missingEvents!.missingEvents(
      origin,
      roomId,
      heads.map((head) => head.event_id),
      [event.eventId],
    );
    let auth = maxAuthEvents;
    let states = maxStates;
    for (const each of byPrev(found.filter((one) => one.roomId === roomId))) {
      let verdict = await this.#try(origin, roomId, { event: each });
      if (verdict.kind !== 'missingAncestors') continue;
      const missingAuth = verdict.eventIds.filter((id) => each.authEventIds.includes(id));
      if (missingAuth.length > 0 && auth > 0) {
        auth -= await this.#fetchAuth(origin, roomId, missingAuth, auth);
        verdict = await this.#try(origin, roomId, { event: each });
      }
      // The oldest of them stands alone: with the state before it the others can be placed.
      if (verdict.kind === 'missingAncestors' && states-- > 0) {
        await this.#withOriginsState(origin, roomId, { event: each }, verdict);
      }
    }
  }

  async #withOriginsState(
    origin: string,
    roomId: string,
    foreign: ForeignEvent,
    verdict: ReceiveVerdict,
  ): Promise<ReceiveVerdict> {
    const room = await selectRoom(this.database, roomId);
    const state = room && (await this.remote.missingEvents!.stateBefore(origin, roomId, foreign.event.eventId));
    if (!room || !state) return verdict;
    return this.persister.receiveWithState(room.room_version, foreign.event, state);
  }
}
