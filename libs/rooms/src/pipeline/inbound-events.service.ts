import { Injectable } from '@nestjs/common';
import { Database, isTransient } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { MatrixError } from '@rookery/matrix-types';
import { Logger } from '@rookery/platform';
import { byAuth, leadingTo } from '@rookery/state-res';
import type { MissingEventsSource } from '../ports.js';
import { RemoteRooms } from '../remote-rooms.js';
import { PartialRooms } from '../store/partial-rooms.js';
import { EventPersister } from './event-persister.js';
import type { GivenState, RemoteEvent, ReceiveVerdict } from '../model/remote-events.js';
import { EventStore } from '../store/event-store.js';
import { selectExtremities, selectReferenced, selectRoom } from '../room/room-snapshot.query.js';

/** How often the ancestors of one event are asked for before its state is taken from the origin, or it is given up. */
const maxRounds = 5;
/** Auth events that are fetched for one event, over all rounds. */
const maxAuthEvents = 500;
/** Events of a gap whose auth chain is asked for as a whole. */
const maxChains = 5;
/** Places in a gap at which the state is taken from the origin. */
const maxStates = 5;

/**
 * Receives events of other servers, and fetches what is missing before them: previous events first, since most of the auth
 * events that are missing are among them, then the auth chain, and where the gap is too wide the state that the origin has.
 * @spec server-server-api#checks-performed-on-receipt-of-a-pdu
 */
@Injectable()
export class InboundEvents {
  readonly #logger: Logger;

  constructor(
    private readonly persister: EventPersister,
    private readonly events: EventStore,
    private readonly remote: RemoteRooms,
    private readonly database: Database,
    private readonly partial: PartialRooms,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /**
   * @param origin the server to ask for what is missing
   * @returns what became of the event; `missingAncestors` when the origin would not fill the gap: nothing was stored then
   */
  async receive(origin: string, roomId: string, remote: RemoteEvent): Promise<ReceiveVerdict> {
    let verdict = await this.#try(origin, roomId, remote);
    const source = this.remote.missingEvents;
    if (!source) return verdict;
    const { event } = remote;
    const auth = new AuthBudget();
    let askedForPrev = false;
    for (let round = 0; round < maxRounds && verdict.kind === 'missingAncestors'; round++) {
      const { eventIds } = verdict;
      const isPrev = (id: string): boolean => event.prevEventIds.includes(id);
      // The same event may be both: once it is known it still lacks a place in the timeline.
      const named = eventIds.filter((id) => event.authEventIds.includes(id) || !isPrev(id));
      const missingAuth = await this.#unknown(named);
      if (!askedForPrev && (eventIds.length === 0 || eventIds.some(isPrev))) {
        askedForPrev = true;
        await this.#fetchPrev(source, origin, event);
      } else if (missingAuth.length > 0) {
        const isSomeThere = await this.#fetchAuth(source, origin, event, missingAuth, auth);
        if (!isSomeThere) return verdict;
      } else {
        return this.#withOriginsState(source, origin, remote, verdict);
      }
      verdict = await this.#try(origin, roomId, remote);
    }
    return verdict;
  }

  /**
   * Stores an event of a room of which not all is known yet, where all that it follows upon is here: what comes later judges it
   * once more with the others.
   * @returns `undefined` where something before it is missing, or the room is not such a one; nothing was stored then
   */
  async receiveInPart(origin: string, roomId: string, remote: RemoteEvent): Promise<ReceiveVerdict | undefined> {
    await this.partial.heard();
    if (!this.partial.has(roomId)) return undefined;
    const verdict = await this.#try(origin, roomId, remote);
    return verdict.kind === 'missingAncestors' ? undefined : verdict;
  }

  /**
   * Fetches the auth events of events that are about to be stored, where they are not known.
   * @param given what comes with the events
   */
  async completeAuth(origin: string, roomId: string, events: readonly RoomEvent[], given?: GivenState): Promise<void> {
    const around = given && 'authChain' in given ? [...given.state, ...given.authChain] : [];
    const own = new Set([...events, ...around].map((event) => event.eventId));
    const named = new Set(events.flatMap((event) => event.authEventIds).filter((id) => !own.has(id)));
    const known = await this.events.many(named);
    const missing = [...named].filter((id) => !known.has(id));
    const source = this.remote.missingEvents;
    const first = events.find(
      (event) => event.roomId === roomId && event.authEventIds.some((id) => missing.includes(id)),
    );
    if (first && source) await this.#fetchAuth(source, origin, first, missing, new AuthBudget());
  }

  async #try(origin: string, roomId: string, remote: RemoteEvent): Promise<ReceiveVerdict> {
    const [verdict] = await this.persister.receive(roomId, [{ origin, ...remote }]);
    if (!verdict) throw new Error(`No verdict for ${remote.event.eventId}`);
    return verdict;
  }

  /**
   * Fetches auth events, their auth events and so on, and stores them as outliers.
   * @param above an event that rests upon them
   * @returns whether any came that was not known
   */
  async #fetchAuth(
    source: MissingEventsSource,
    origin: string,
    above: RoomEvent,
    eventIds: readonly string[],
    budget: AuthBudget,
  ): Promise<boolean> {
    const { roomId } = above;
    const room = await selectRoom(this.database, roomId);
    if (!room || budget.events <= 0) return false;
    const fetched = new Map<string, RoomEvent>();
    const take = async (told: readonly RoomEvent[]): Promise<void> => {
      const known = await this.events.many(told.map((event) => event.eventId));
      for (const event of told) {
        const isFresh = event.roomId === roomId && !known.has(event.eventId) && !fetched.has(event.eventId);
        if (isFresh && budget.events > 0) {
          fetched.set(event.eventId, event);
          budget.events--;
        }
      }
    };
    if (budget.chains-- > 0) await take(await source.authChain(origin, roomId, above.eventId));
    // What one answer did not bring is asked for singly, level by level.
    const asked = new Set<string>();
    for (let wanted = [...eventIds]; budget.events > 0;) {
      wanted = await this.#unknown(
        [...wanted, ...[...fetched.values()].flatMap((event) => event.authEventIds)],
        fetched,
      );
      wanted = wanted.filter((id) => !asked.has(id)).slice(0, budget.events);
      if (wanted.length === 0) break;
      for (const id of wanted) asked.add(id);
      await take(await source.events(origin, roomId, wanted));
    }
    if (fetched.size === 0) return false;
    await this.persister.receiveOutliers(roomId, byAuth([...fetched.values()]));
    return true;
  }

  /** Those of some events that are neither stored nor fetched, each once. */
  async #unknown(eventIds: readonly string[], fetched?: ReadonlyMap<string, RoomEvent>): Promise<string[]> {
    const named = new Set(eventIds.filter((id) => !fetched?.has(id)));
    const known = await this.events.many(named);
    return [...named].filter((id) => !known.has(id));
  }

  /**
   * Fetches what lies between what is known of a room and an event, and stores it in order, as much as possible at once. What
   * comes from behind the known events, from before this server joined as a rule, is no news: whoever wants to read it fetches it.
   */
  async #fetchPrev(source: MissingEventsSource, origin: string, event: RoomEvent): Promise<void> {
    const { roomId } = event;
    const extremities = await selectExtremities(this.database, roomId);
    const found = await source.missingEvents(
      origin,
      roomId,
      extremities.map((extremity) => extremity.event_id),
      [event.eventId],
    );
    const known = await this.events.many(found.map(({ eventId }) => eventId));
    const fresh = found.filter((one) => one.roomId === roomId && (known.get(one.eventId)?.outlier ?? true));
    const gap = leadingTo(event.prevEventIds, fresh);
    const past = await this.#takePast(source, origin, event, gap);
    const news = gap.filter(({ eventId }) => !past.has(eventId));
    const ids = new Set(news.map(({ eventId }) => eventId));
    let misplaced = await this.#tryAll(origin, roomId, news);
    const auth = new AuthBudget();
    for (let states = maxStates; misplaced.length > 0;) {
      // Of a room of which not all is known the state before what is missing brings most auth events along.
      const isOpen = this.partial.has(roomId) && misplaced[0]!.missing.some((id) => isPrevOf(misplaced[0]!, id, ids));
      const above = isOpen ? undefined : misplaced.findLast((each) => authLackedBy(each, ids).length > 0)?.event;
      const missingAuth = new Set(misplaced.flatMap((each) => authLackedBy(each, ids)));
      if (above && auth.chains > 0 && (await this.#fetchAuth(source, origin, above, [...missingAuth], auth))) {
        misplaced = await this.#tryAll(origin, roomId, eventsOf(misplaced));
        continue;
      }
      // The oldest of them stands alone: with the state before it the others can be placed.
      const [{ event: oldest, missing }, ...others] = misplaced as [Misplaced, ...Misplaced[]];
      if (states-- === 0) return;
      const verdict: ReceiveVerdict = { kind: 'missingAncestors', eventIds: missing };
      const { kind } = await this.#withOriginsState(source, origin, { event: oldest }, verdict);
      misplaced = kind === 'missingAncestors' ? others : await this.#tryAll(origin, roomId, eventsOf(others));
    }
  }

  /**
   * Finds those of a gap that known events follow upon, and stores those of them that the others follow upon: as history, which
   * current state does not judge and nobody is told of.
   * @returns ids of all of them
   */
  async #takePast(
    source: MissingEventsSource,
    origin: string,
    { roomId, prevEventIds }: RoomEvent,
    gap: readonly RoomEvent[],
  ): Promise<ReadonlySet<string>> {
    const gapIds = gap.map(({ eventId }) => eventId);
    const referenced = await selectReferenced(this.database, roomId, gapIds);
    const past = new Set(leadingTo([...referenced], gap).map(({ eventId }) => eventId));
    const named = new Set(prevEventIds);
    for (const event of gap) if (!past.has(event.eventId)) for (const id of event.prevEventIds) named.add(id);
    const needed = gap.filter(({ eventId }) => past.has(eventId) && named.has(eventId)).slice(-maxStates);
    for (const event of needed) {
      const state =
        event.type === 'm.room.create' ? { state: [], authChain: [] } : await source.stateBefore(origin, event);
      if (state) await this.#storePast(origin, event, state);
    }
    return past;
  }

  async #storePast(origin: string, event: RoomEvent, state: GivenState): Promise<void> {
    await this.completeAuth(origin, event.roomId, [event], state);
    await this.#ifStorable(event, () => this.persister.backfill(event.roomId, [event], state));
  }

  /**
   * Stores what is missing before another event. Should that fail because of what is in it, it stays missing, as if nobody had it:
   * what follows upon it is placed all the same. One event must not have its room stand still for good.
   */
  async #ifStorable<T>({ roomId, eventId }: RoomEvent, store: () => Promise<T>): Promise<T | undefined> {
    try {
      return await store();
    } catch (err) {
      if (isTransient(err) || MatrixError.is(err)) throw err;
      this.#logger.error('An event that others follow upon could not be stored', {
        ...{ room_id: roomId, event_id: eventId, err },
      });
      return undefined;
    }
  }

  /**
   * Stores events in their order, together where nothing prevents it.
   * @returns those that could not be placed, in order
   */
  async #tryAll(origin: string, roomId: string, events: readonly RoomEvent[]): Promise<readonly Misplaced[]> {
    const [first, ...others] = events;
    if (!first) return [];
    const receive = (): Promise<readonly ReceiveVerdict[]> =>
      this.persister.receive(
        roomId,
        events.map((event) => ({ origin, event })),
      );
    let verdicts: readonly ReceiveVerdict[];
    try {
      verdicts = others.length > 0 ? await receive() : ((await this.#ifStorable(first, receive)) ?? []);
    } catch (error) {
      if (others.length === 0 || isTransient(error)) throw error;
      // One of them may be to blame: each on its own.
      const each: Misplaced[] = [];
      for (const event of events) each.push(...(await this.#tryAll(origin, roomId, [event])));
      return each;
    }
    return verdicts.flatMap((verdict, index) =>
      verdict.kind === 'missingAncestors' ? [{ event: events[index]!, missing: verdict.eventIds }] : [],
    );
  }

  /**
   * Stores previous events that are missing as history, each with the state before it. In a room of which not all is known that is
   * better than the origin's state before the event itself: what follows is judged once more when all is here.
   */
  async #placePrev(
    source: MissingEventsSource,
    origin: string,
    { roomId, prevEventIds }: RoomEvent,
    missing: readonly string[],
  ): Promise<void> {
    const wanted = prevEventIds.filter((id) => missing.includes(id)).slice(0, maxStates);
    const events = await this.events.events(wanted);
    const unknown = wanted.filter((id) => !events.has(id));
    for (const event of unknown.length > 0 ? await source.events(origin, roomId, unknown) : [])
      events.set(event.eventId, event);
    for (const event of events.values()) {
      const state = event.roomId === roomId ? await source.stateBefore(origin, event) : undefined;
      if (state) await this.#storePast(origin, event, state);
    }
  }

  async #withOriginsState(
    source: MissingEventsSource,
    origin: string,
    remote: RemoteEvent,
    verdict: ReceiveVerdict,
  ): Promise<ReceiveVerdict> {
    const { roomId } = remote.event;
    if (this.partial.has(roomId) && verdict.kind === 'missingAncestors') {
      await this.#placePrev(source, origin, remote.event, verdict.eventIds);
      const again = await this.#try(origin, roomId, remote);
      if (again.kind !== 'missingAncestors') return again;
    }
    const state = await source.stateBefore(origin, remote.event);
    return state ? this.persister.receiveWithState(undefined, remote, state) : verdict;
  }
}

/** An event that cannot be placed yet, and what it lacks. */
interface Misplaced {
  readonly event: RoomEvent;
  readonly missing: readonly string[];
}

/** Auth events that an event lacks, but for those of the gap: they come in their turn. */
const authLackedBy = ({ event, missing }: Misplaced, gap: ReadonlySet<string>): string[] =>
  missing.filter((id) => event.authEventIds.includes(id) && !gap.has(id));

/** Whether something is a previous event that an event lacks, and no part of the gap. */
const isPrevOf = ({ event }: Misplaced, id: string, gap: ReadonlySet<string>): boolean =>
  event.prevEventIds.includes(id) && !gap.has(id);

const eventsOf = (misplaced: readonly Misplaced[]): RoomEvent[] => misplaced.map(({ event }) => event);

/** What may still be fetched of auth events. */
class AuthBudget {
  events = maxAuthEvents;
  chains = maxChains;
}
