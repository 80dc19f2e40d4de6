import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import {
  FederationClient,
  federationPath,
  type FederationRequest,
  FederationRequestError,
} from '@rookery/federation-client';
import { domainOf, isValidEventId, MatrixError } from '@rookery/matrix-types';
import { atEase, Clock, Config, Semaphore } from '@rookery/platform';
import { EventPersister, EventStore } from '@rookery/rooms';
import { authStateOf, authTypesFor, byAuth, checkAuth, restsUpon, stateKeyOf } from '@rookery/state-res';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { WrongAnswer } from './candidates.js';
import { ListSplitter } from './list-splitter.js';
import { maxBytes, MissingEvents, patienceMs } from './missing-events.js';
import { PduChecker } from './pdu-checker.js';
import { stateLimitsOf } from './state-limits.js';
import { arriving, faultOf, lookForBeginning, maxEventBytes, ToldEvents } from './told-events.js';
import type { ToldJoin } from './told-join.js';

/** All of the state before an event, whose events are stored. */
export type KnownState = Parameters<EventPersister['completeState']>[2];

/** The state before an event is that after another one. */
export type StateAfter = Extract<Parameters<EventPersister['backfill']>[2], { readonly after: string }>;

/** Answers to joins whose state waits to be stored: of more of them it is fetched once more. */
const maxAtHand = 8;

/** The same while it is being made: a large one is not copied. */
interface OwnState extends KnownState {
  readonly state: Map<string, string>;
  readonly servers: Set<string>;
}

/** Up to so many events of a state are fetched one by one; with more of them missing it comes as a whole. */
const fewEvents = 30;
/** States that are fetched as a whole at once, whoever made this server ask for them; and those that wait for their turn. */
const maxAtOnce = 3;
const maxWaiting = 100;
/** Events that are checked and stored together: others get a turn in between. */
const eventsAtOnce = 25;
/** Lists of an answer that names a state, and the longest value in it, bytes: six for each of an id, and whatever stands beside the lists. */
const idLists: ReadonlySet<string> = new Set(['pdu_ids', 'auth_chain_ids']);
const maxIdBytes = 65_536;
/** For how long a state may arrive, and for how long it is stored, milliseconds. */
const arrivingLimitMs = 10 * 60_000;
const storingLimitMs = 60 * 60_000;
/** The same for one before an event for which somebody waits. */
const awaitedLimitMs = 10 * 60_000;
const createKey = stateKeyOf('m.room.create', '');

interface At {
  readonly server: string;
  /** Whose state is asked for, or what follows upon that; with its room. */
  readonly event: RoomEvent;
  readonly signal: AbortSignal;
  /** Somebody waits for it. */
  readonly isAwaited?: boolean;
}

/**
 * Fetches the state before events from other servers and stores the events of which it consists, a few at a time. Memory and the turns
 * of others do not depend on how many there are.
 */
@Injectable()
export class StoredStates {
  /** What the answer to a join told, by the join. */
  readonly #atHand = new Map<string, ToldJoin>();
  readonly #awaited = new Semaphore(maxAtOnce, {
    ...{ maxWaiting, maxPerHolder: maxWaiting },
    refuse: () => MatrixError.limitExceeded(10_000),
  });

  constructor(
    private readonly client: FederationClient,
    private readonly missing: MissingEvents,
    private readonly checker: PduChecker,
    private readonly stored: EventStore,
    private readonly persister: EventPersister,
    private readonly config: Config,
    private readonly clock: Clock,
  ) {}

  /** Has the state before a join at hand, which came with the answer to it: it is taken once, and given back then. */
  async keep(joinEventId: string, told: ToldJoin): Promise<void> {
    this.#atHand.set(joinEventId, told);
    for (const oldest of this.#atHand.keys()) if (this.#atHand.size > maxAtHand) await this.drop(oldest);
  }

  /** Told that nobody will ask for the state before a join. */
  async drop(joinEventId: string): Promise<void> {
    const told = this.#atHand.get(joinEventId);
    this.#atHand.delete(joinEventId);
    await told?.close();
  }

  /**
   * The state before an event that this server has, as another one tells it. What does not prove itself by its auth events, or does not
   * come, is left out.
   * @param signal ends it, what is asked for and between two events; what is stored by then stays
   * @returns `undefined` where it was ended
   * @throws FederationRequestError when the other server does not help
   */
  async before(server: string, eventId: string, signal: AbortSignal): Promise<KnownState | undefined> {
    try {
      return await this.#beforeStored(server, eventId, signal);
    } catch (error) {
      if (signal.aborted && error instanceof FederationRequestError) return undefined;
      throw error;
    }
  }

  async #beforeStored(server: string, eventId: string, signal: AbortSignal): Promise<KnownState | undefined> {
    const event = (await this.stored.one(eventId))?.event;
    if (!event) throw new Error(`An event that is known is not there: ${eventId}`);
    const told = this.#atHand.get(eventId);
    if (told) {
      this.#atHand.delete(eventId);
      return this.#toldBefore({ server: told.server, event, signal }, told);
    }
    const at = { server, event, signal };
    const [prev] = event.prevEventIds;
    // One that has the event knows the state before it; but who has not seen it yet knows the one that it follows upon.
    if (event.prevEventIds.length !== 1 || prev === undefined) return this.#before(at, eventId);
    const before = await this.#before(at, prev);
    return before && this.#after(at, prev, before);
  }

  /**
   * The state before an event that is not stored yet, as its origin tells it or, where that does not help, another server of the room.
   * @returns `undefined` where nobody helps
   */
  async beforeMissing(origin: string, event: RoomEvent): Promise<KnownState | undefined> {
    const signal = AbortSignal.timeout(awaitedLimitMs);
    return this.missing.orAnother(origin, event.roomId, async (server) => {
      const found = await this.#before({ server, event, signal, isAwaited: true }, event.eventId);
      if (!found) throw new WrongAnswer(server, 'its state takes too long to be stored');
      return found;
    });
  }

  async #toldBefore(at: At, { events, state }: ToldJoin): Promise<OwnState | undefined> {
    await this.#storeAll(at, events);
    return at.signal.aborted ? undefined : this.#known(at, [...state]);
  }

  async #before(at: At, eventId: string): Promise<OwnState | undefined> {
    const { server, event } = at;
    const [state, chain] = await this.#idsBefore(at, eventId);
    await nextTurn();
    const all = [...state, ...chain];
    const stored = await this.stored.stored(all);
    const missing = new Set(all.filter((id) => !stored.has(id)));
    if (missing.size > fewEvents) {
      const store = (): Promise<void> => this.#storeMany(at, eventId, missing);
      await (at.isAwaited ? this.#awaited.run(store, { holder: server }) : store());
    }
    if (missing.size > 0 && missing.size <= fewEvents) {
      const events = await this.missing.events(server, event.roomId, [...missing], at.signal);
      for (const each of events) lookForBeginning(server, event, each);
      await this.persister.receiveOutliers(event.roomId, byAuth(events));
    }
    // What is left out because the server stops must not be taken for all there is.
    return at.signal.aborted ? undefined : this.#known(at, state);
  }

  #request({ server, event }: At, kind: 'state' | 'state_ids', eventId: string): FederationRequest {
    const path = federationPath`/_matrix/federation/v1/${kind}/${event.roomId}`;
    return { destination: server, method: 'GET', path, query: { event_id: eventId } };
  }

  /** Ids of the state before an event, and of what else is in its auth chain, each once, read while they arrive. @throws FederationRequestError */
  async #idsBefore(at: At, eventId: string): Promise<[state: string[], chain: string[]]> {
    const { body } = await this.client.stream({
      ...this.#request(at, 'state_ids', eventId),
      ...{ maxBytes, timeoutMs: Math.min(patienceMs, this.config.get('federation.client_timeout')) },
      signal: at.signal,
    });
    const [state, chain] = [new Set<string>(), new Set<string>()];
    try {
      const { maxEvents } = stateLimitsOf(this.config);
      const splitter = new ListSplitter(idLists, { maxBytes: maxIdBytes, maxElements: 2 * maxEvents });
      for await (const { piece } of arriving(body)) {
        for (const { list, bytes } of splitter.push(piece)) {
          const id: unknown = JSON.parse(bytes.toString('utf8'));
          if (typeof id === 'string' && isValidEventId(id)) (list === 'pdu_ids' ? state : chain).add(id);
        }
      }
      splitter.end();
    } catch (error) {
      body.destroy();
      throw faultOf(at.server, error);
    }
    return [[...state], [...chain].filter((id) => !state.has(id))];
  }

  async #storeMany(at: At, eventId: string, missing: ReadonlySet<string>): Promise<void> {
    const { server, event, signal } = at;
    const { roomId, rules } = event;
    const { maxEvents, maxBytes: maxStateBytes } = stateLimitsOf(this.config);
    const { body } = await this.client.stream({
      ...this.#request(at, 'state', eventId),
      ...{ maxBytes: maxStateBytes, retries: 'none', timeoutMs: arrivingLimitMs, signal },
      silenceMs: this.config.get('federation.client_timeout'),
    });
    const told = await ToldEvents.read(body, {
      ...{ lists: new Set(['pdus', 'auth_chain']), ids: missing, rules, roomId },
      limits: { maxBytes: maxEventBytes, maxElements: 2 * maxEvents },
      look: (each) => lookForBeginning(server, event, each),
    }).catch((error: unknown) => {
      body.destroy();
      throw faultOf(server, error);
    });
    await this.#storeAll(at, told);
  }

  /** Checks and stores events that are told, and gives their file back. */
  async #storeAll({ server, event, signal, isAwaited }: At, told: ToldEvents): Promise<void> {
    const { roomId, rules } = event;
    const untilMs = this.clock.monotonicMs() + storingLimitMs;
    const storeSome = async (): Promise<boolean> => {
      const pdus = await told.next(eventsAtOnce);
      if (pdus.length === 0) return false;
      const events = await this.checker.sound(pdus, rules, roomId);
      await this.persister.receiveOutliers(roomId, events);
      return true;
    };
    try {
      const step = async (): Promise<boolean> => {
        if (!isAwaited) return atEase(this.clock, signal, storeSome);
        await nextTurn();
        return storeSome();
      };
      while (!signal.aborted && (await step()))
        if (this.clock.monotonicMs() >= untilMs) throw new WrongAnswer(server, 'its state takes too long to be stored');
    } finally {
      await told.close();
    }
  }

  /** What is stored of a state and was accepted. @throws WrongAnswer when that cannot be the state of the room */
  async #known({ server, event }: At, eventIds: readonly string[]): Promise<OwnState> {
    const state = new Map<string, string>();
    const servers = new Set<string>();
    for await (const entries of this.stored.stateEntries(event.roomId, eventIds)) {
      for (const { eventId, type, stateKey, membership } of entries) {
        if (stateKey === undefined) throw new WrongAnswer(server, 'a message event in the state');
        const key = stateKeyOf(type, stateKey);
        if (state.has(key)) throw new WrongAnswer(server, 'two events for one piece of state');
        state.set(key, eventId);
        if (membership === 'join') servers.add(domainOf(stateKey));
      }
    }
    const create = state.get(createKey);
    if (create === undefined || !restsUpon(event).includes(create))
      throw new WrongAnswer(server, 'no create event upon which the event rests');
    return { state, servers };
  }

  /** Adds the event that stands between a state and the one that is known, where the state allows that. */
  async #after({ server, event, signal }: At, prev: string, before: OwnState): Promise<KnownState> {
    const { roomId, rules } = event;
    let above = await this.stored.one(prev);
    if (!above) {
      const events = await this.missing.events(server, roomId, [prev], signal);
      await this.persister.receiveOutliers(roomId, events);
      above = await this.stored.one(prev);
    }
    if (!above) throw new WrongAnswer(server, 'no event before the join');
    const { type, stateKey, content } = above.event;
    if (stateKey === undefined || above.rejectedReason !== undefined || above.event.roomId !== roomId) return before;
    // The create event counts also where auth events do not name it.
    const keys = new Set([createKey, ...authTypesFor(above.event, rules).map(([each, key]) => stateKeyOf(each, key))]);
    const needed = [...keys].flatMap((each) => before.state.get(each) ?? []);
    const auth = authStateOf([...(await this.stored.events(needed)).values()]);
    if (!checkAuth(above.event, auth).allowed) return before;
    before.state.set(stateKeyOf(type, stateKey), prev);
    if (type === 'm.room.member' && content['membership'] === 'join') before.servers.add(domainOf(stateKey));
    return before;
  }
}
