import { Injectable } from '@nestjs/common';
import { type RoomEvent, roomVersionRules, type RoomVersionRules } from '@rookery/events';
import { FederationClient, federationPath, FederationRequestError } from '@rookery/federation-client';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Config, eachLimit, Logger } from '@rookery/platform';
import { EventStore, type MissingEventsSource, RoomStateReader } from '@rookery/rooms';
import { leadingTo } from '@rookery/state-res';
import { WrongAnswer } from './candidates.js';
import { PduChecker } from './pdu-checker.js';
import { RoomHosts } from './room-hosts.js';

/** Events of a gap that are asked for at a time. */
const gapPage = 20;
/** What the specification has servers give who are not asked for a number: who gives less has no more. */
const usualPage = 10;
/** How often is asked for more of a gap. */
const gapPages = 10;
/** Heads of the room that are named. */
const maxExtremities = 20;
/** Events of an auth chain that are looked at; a long one is of some hundreds. */
const maxAuthChain = 2_000;
/** Single events that are asked for at once. */
const parallel = 8;
/** Other servers that are asked for what the origin does not give. */
const maxOthers = 2;
/** Longest a server may take, since a room's events wait for it; milliseconds. */
export const patienceMs = 30_000;
/** Largest answers, bytes. */
export const maxBytes = 32 * 1_048_576;

/** Fetches what is missing before events of other servers. Whoever does not help has nothing. */
@Injectable()
export class MissingEvents implements Omit<MissingEventsSource, 'stateBefore'> {
  readonly #logger: Logger;

  // Eight parameters: what is missing is asked of servers, checked, and held against what is stored.
  constructor(
    private readonly client: FederationClient,
    private readonly checker: PduChecker,
    private readonly hosts: RoomHosts,
    private readonly stored: EventStore,
    private readonly state: RoomStateReader,
    private readonly config: Config,
    private readonly clock: Clock,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
  }

  /** @spec server-server-api#post_matrixfederationv1get_missing_eventsroomid */
  async missingEvents(
    origin: string,
    roomId: string,
    earliest: readonly string[],
    latest: readonly string[],
  ): Promise<readonly RoomEvent[]> {
    const found = new Map<string, RoomEvent>();
    const rules = await this.#rulesOf(roomId);
    if (!rules) return [];
    let wanted = latest;
    let isAll = false;
    const ask = async (server: string): Promise<readonly RoomEvent[]> => {
      const answer = await this.client.requestExactJson({
        destination: server,
        method: 'POST',
        path: federationPath`/_matrix/federation/v1/get_missing_events/${roomId}`,
        content: {
          earliest_events: earliest.slice(0, maxExtremities),
          latest_events: wanted,
          limit: gapPage,
          min_depth: 0,
        },
        ...{ maxBytes, timeoutMs: this.#patienceMs },
      });
      const told = listOf(server, answer['events'], gapPage);
      isAll = told.length < usualPage;
      return this.checker.sound(told, rules, roomId, { sender: server });
    };
    for (let page = 0; !isAll && wanted.length > 0 && page < gapPages; page++) {
      const events = await this.orAnother(origin, roomId, ask);
      const fresh = (events ?? []).filter(({ eventId }) => !found.has(eventId));
      if (fresh.length === 0) break;
      for (const event of fresh) found.set(event.eventId, event);
      wanted = await this.#openEnds(found);
    }
    return [...found.values()];
  }

  /**
   * @param signal nothing more is asked for once it aborts
   * @spec server-server-api#get_matrixfederationv1eventeventid
   */
  async events(
    origin: string,
    roomId: string,
    eventIds: readonly string[],
    signal?: AbortSignal,
  ): Promise<readonly RoomEvent[]> {
    const rules = await this.#rulesOf(roomId);
    if (!rules) return [];
    const found = await this.#singly(origin, roomId, eventIds, rules, signal);
    const missing = (): string[] => eventIds.filter((id) => !found.has(id));
    if (missing().length === 0) return [...found.values()];
    for (const server of await this.hosts.likely(roomId, maxOthers + 1)) {
      if (signal?.aborted === true) break;
      if (server === origin) continue;
      for (const [id, event] of await this.#singly(server, roomId, missing(), rules, signal)) found.set(id, event);
      if (missing().length === 0) break;
    }
    return [...found.values()];
  }

  /** @spec server-server-api#get_matrixfederationv1event_authroomideventid */
  async authChain(origin: string, roomId: string, eventId: string): Promise<readonly RoomEvent[]> {
    const rules = await this.#rulesOf(roomId);
    if (!rules) return [];
    const path = federationPath`/_matrix/federation/v1/event_auth/${roomId}/${eventId}`;
    const ask = async (server: string): Promise<readonly RoomEvent[]> => {
      const answer = await this.client.requestExactJson({
        ...{ destination: server, method: 'GET', path, maxBytes, timeoutMs: this.#patienceMs },
      });
      return this.checker.sound(listOf(server, answer['auth_chain'], maxAuthChain), rules, roomId, { sender: server });
    };
    return (await this.orAnother(origin, roomId, ask)) ?? [];
  }

  /** The events that were found of some ids, each asked for alone. */
  async #singly(
    server: string,
    roomId: string,
    eventIds: readonly string[],
    rules: RoomVersionRules,
    signal?: AbortSignal,
  ): Promise<Map<string, RoomEvent>> {
    const found = new Map<string, RoomEvent>();
    const untilMs = this.clock.nowMs() + 2 * patienceMs;
    let isInVain = false;
    await eachLimit(
      eventIds,
      parallel,
      async (id) => {
        const path = federationPath`/_matrix/federation/v1/event/${id}`;
        const answer = await this.#helping(server, () =>
          this.client.requestExactJson({
            ...{ destination: server, method: 'GET', path, maxBytes: 1_048_576, timeoutMs: this.#patienceMs, signal },
          }),
        );
        // Who is down, or has none of the first few, is not asked for hundreds more.
        if (answer === undefined && found.size === 0) isInVain = true;
        const pdus = answer?.['pdus'];
        if (!Array.isArray(pdus)) return;
        const [event] = await this.checker.sound(pdus.slice(0, 1), rules, roomId, { sender: server });
        if (event?.eventId === id) found.set(id, event);
      },
      { while: () => !isInVain && signal?.aborted !== true && this.clock.nowMs() < untilMs },
    );
    return found;
  }

  /** Ids of the events of a gap before which something is missing still. What known events follow upon is no part of it. */
  async #openEnds(found: ReadonlyMap<string, RoomEvent>): Promise<string[]> {
    const named = new Set([...found.values()].flatMap((event) => event.prevEventIds));
    const stored = await this.stored.many([...new Set([...found.keys(), ...named])]);
    const isUnknown = (id: string): boolean => stored.get(id)?.outlier ?? true;
    const fresh = [...found.values()].filter(({ eventId }) => isUnknown(eventId));
    const newest = fresh.filter(({ eventId }) => !named.has(eventId)).map(({ eventId }) => eventId);
    return leadingTo(newest, fresh)
      .filter((event) => event.prevEventIds.some((id) => !found.has(id) && isUnknown(id)))
      .map(({ eventId }) => eventId);
  }

  async #rulesOf(roomId: string): Promise<RoomVersionRules | undefined> {
    const version = (await this.state.versions([roomId])).get(roomId);
    return version === undefined ? undefined : roomVersionRules(version);
  }

  get #patienceMs(): number {
    return Math.min(patienceMs, this.config.get('federation.client_timeout'));
  }

  /** What the origin gives, or where it does not help another server in the room; `undefined` when none does. */
  async orAnother<T>(origin: string, roomId: string, ask: (server: string) => Promise<T>): Promise<T | undefined> {
    const given = await this.#helping(origin, () => ask(origin));
    if (given !== undefined) return given;
    for (const server of await this.hosts.likely(roomId, maxOthers + 1)) {
      const other = server === origin ? undefined : await this.#helping(server, () => ask(server));
      if (other !== undefined) return other;
    }
    return undefined;
  }

  /** What came of asking a server; `undefined` when it did not help. */
  async #helping<T>(server: string, ask: () => Promise<T>): Promise<T | undefined> {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      this.#logger.debug('Another server did not give what is missing', { destination: server, reason: error.message });
      return undefined;
    }
  }
}

/** A list of another server, cut to a size. @throws WrongAnswer when it is none */
function listOf(server: string, list: unknown, max: number): JsonObject[] {
  if (!Array.isArray(list)) throw new WrongAnswer(server, 'no list');
  return list.slice(0, max) as JsonObject[];
}
