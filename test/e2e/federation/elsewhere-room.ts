import {
  buildEvent,
  parseJson,
  parsePdu,
  referenceHash,
  type RoomEvent,
  roomVersionRules,
  type RoomVersionRules,
  signEvent,
} from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { authTypesFor, stateKeyOf } from '@rookery/state-res';
import type { Asked, PlayedServer } from './federation-world.js';

/** What an event of a played server is to be. */
export interface ElsewhereDraft {
  readonly type: string;
  readonly content: JsonObject;
  readonly stateKey?: string;
  readonly sender?: string;
  /** Default: the room's heads. */
  readonly prev?: readonly RoomEvent[];
  /** Chosen from the state unless told. */
  readonly auth?: readonly string[];
  readonly originServerTs?: number;
  readonly unsigned?: boolean;
  readonly redacts?: string;
}

/** A request as it is named in a path: `make_join`, `state_ids`. */
type Kind = string;

/** Changes an honest answer; `'silence'`: none is given. */
export type Lie = (honest: JsonObject, asked: Asked) => unknown;

/** A room on a server that a test plays. It answers honestly, as far as the test does not want something else. */
export class ElsewhereRoom {
  readonly rules: RoomVersionRules;
  readonly creator: string;
  roomId: string;
  /** All its events, oldest first. */
  readonly events: RoomEvent[] = [];
  readonly known = new Map<string, RoomEvent>();
  /** State before each event. */
  readonly before = new Map<string, ReadonlyMap<string, RoomEvent>>();
  state: ReadonlyMap<string, RoomEvent> = new Map();
  /** By kind of request. */
  readonly lies = new Map<Kind, Lie>();
  /** Kinds of requests, in order. */
  readonly requests: Kind[] = [];
  // No two rooms alike, where the create event makes the id.
  #nowMs = Date.now() - 3_600_000 + rooms;
  #ids = 0;

  /** @throws Error for a version that there is not */
  constructor(
    readonly server: PlayedServer,
    readonly version: string,
    joinRule: JsonObject = { join_rule: 'public' },
    predecessor?: string,
  ) {
    const rules = roomVersionRules(version);
    if (!rules) throw new Error(`there is no room version ${version}`);
    this.rules = rules;
    this.creator = `@carol:${server.name}`;
    this.roomId = `!room${version}-${++rooms}:${server.name}`;
    const creation = rules.creatorIsSender
      ? { room_version: version }
      : { ...(version !== '1' && { room_version: version }), creator: this.creator };
    const replaced = predecessor !== undefined && { predecessor: { room_id: predecessor } };
    const create = this.add({ type: 'm.room.create', stateKey: '', content: { ...creation, ...replaced } });
    this.roomId = create.roomId;
    this.add({ type: 'm.room.member', stateKey: this.creator, content: { membership: 'join' } });
    const users = rules.privilegedCreators ? {} : { [this.creator]: 100 };
    this.add({ type: 'm.room.power_levels', stateKey: '', content: { users, invite: 0 } });
    this.add({ type: 'm.room.join_rules', stateKey: '', content: joinRule });
    this.add({ type: 'm.room.name', stateKey: '', content: { name: `Elsewhere ${version}` } });
    server.answer = (asked, response) => void this.answer(asked, response);
  }

  /** The newest event. */
  get head(): RoomEvent {
    return this.events.at(-1)!;
  }

  /** Makes an event that is not part of the room. */
  make(draft: ElsewhereDraft): RoomEvent {
    const { type, stateKey, content, sender = this.creator } = draft;
    const prev = draft.prev ?? this.events.slice(-1);
    const isCreate = type === 'm.room.create' && prev.length === 0;
    const authIds =
      draft.auth ??
      authTypesFor({ type, stateKey, content, sender }, this.rules).flatMap(
        ([t, k]) => this.state.get(stateKeyOf(t, k))?.eventId ?? [],
      );
    const isV1 = this.rules.eventFormat === 'v1';
    const hashed = [...prev, ...authIds.flatMap((id) => this.known.get(id) ?? [])];
    const event = buildEvent(
      {
        roomId: isCreate && this.rules.createEventImplied ? undefined : this.roomId,
        ...{ type, stateKey, content, sender, redacts: draft.redacts },
        originServerTs: draft.originServerTs ?? (this.#nowMs += 1000),
        depth: Math.max(0, ...prev.map((each) => each.depth)) + 1,
        prevEventIds: prev.map((each) => each.eventId),
        authEventIds: authIds,
        ...(isV1 && {
          eventId: `$${++this.#ids}-${this.roomId.slice(1)}`,
          referenceHashes: new Map(hashed.map((each) => [each.eventId, referenceHash(each.pdu, this.rules)])),
        }),
      },
      this.rules,
    );
    return draft.unsigned ? event : signEvent(event, this.server.name, this.server.key);
  }

  /** Makes an event on top of the room. */
  add(draft: ElsewhereDraft): RoomEvent {
    return this.take(this.make(draft));
  }

  /** Takes an event in, on top of the room. */
  take(event: RoomEvent): RoomEvent {
    this.events.push(event);
    this.known.set(event.eventId, event);
    this.before.set(event.eventId, this.state);
    if (event.stateKey !== undefined) {
      this.state = new Map(this.state).set(stateKeyOf(event.type, event.stateKey), event);
    }
    return event;
  }

  say(body: string): RoomEvent {
    return this.add({ type: 'm.room.message', content: { msgtype: 'm.text', body } });
  }

  /** The auth chain of events, without themselves. */
  chainOf(events: Iterable<RoomEvent>): RoomEvent[] {
    const chain = new Map<string, RoomEvent>();
    const pending = [...events];
    for (let next = pending.pop(); next; next = pending.pop()) {
      for (const id of next.authEventIds) {
        const auth = this.known.get(id);
        if (!auth || chain.has(id)) continue;
        chain.set(id, auth);
        pending.push(auth);
      }
    }
    return [...chain.values()];
  }

  /** Answers a request of another server. */
  async answer(asked: Asked, response: Parameters<PlayedServer['answer']>[1]): Promise<void> {
    const url = new URL(asked.url, 'https://played');
    const [, , , , kind = '', ...rest] = url.pathname.split('/').map(decodeURIComponent);
    this.requests.push(kind);
    let body: unknown;
    let status = 200;
    try {
      body = this.#honest(kind, rest, url.searchParams, asked);
    } catch (error) {
      status = 404;
      body = { errcode: 'M_NOT_FOUND', error: String(error) };
    }
    const lie = this.lies.get(kind);
    if (lie) {
      status = 200;
      body = await lie(body as JsonObject, asked);
    }
    if (body === 'silence') return;
    if (body instanceof Refusal) {
      status = body.status;
      body = body.body;
    }
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
  }

  #honest(kind: Kind, rest: readonly string[], query: URLSearchParams, asked: Asked): unknown {
    const [roomId = '', id = ''] = rest;
    const membership = /^(?:make|send)_(join|leave|knock)$/.exec(kind)?.[1];
    if (kind === 'query') return { room_id: this.roomId, servers: [this.server.name] };
    if (kind === 'event') return { pdus: [this.#known(roomId).pdu], origin: this.server.name, origin_server_ts: 1 };
    if (roomId !== this.roomId) throw new Error('no such room');
    if (membership !== undefined && kind.startsWith('make')) return this.#template(id, membership);
    if (kind === 'send_join') {
      const state = this.state;
      const { pdu } = this.#signedJoin(asked);
      const entries = [...state.values()];
      return { state: entries.map(pduOf), auth_chain: this.chainOf(entries).map(pduOf), event: pdu };
    }
    if (membership !== undefined) {
      this.take(parsePdu(parseJson(asked.body), this.rules, { roomId }));
      return membership === 'knock' ? { knock_room_state: [...this.state.values()].slice(0, 5).map(pduOf) } : {};
    }
    if (kind === 'state' || kind === 'state_ids') {
      const state = [...(this.before.get(query.get('event_id') ?? '') ?? this.state).values()];
      const chain = this.chainOf(state);
      return kind === 'state'
        ? { pdus: state.map(pduOf), auth_chain: chain.map(pduOf) }
        : { pdu_ids: state.map(idOf), auth_chain_ids: chain.map(idOf) };
    }
    if (kind === 'backfill') return { pdus: this.#back(query.getAll('v'), Number(query.get('limit'))).map(pduOf) };
    if (kind === 'get_missing_events') {
      const { latest_events: latest, limit } = JSON.parse(asked.body) as { latest_events: string[]; limit: number };
      const before = latest.flatMap((each) => this.#known(each).prevEventIds);
      return { events: this.#back(before, limit).reverse().map(pduOf) };
    }
    if (kind === 'timestamp_to_event') {
      const ts = Number(query.get('ts'));
      const found =
        query.get('dir') === 'f'
          ? this.events.find((event) => event.originServerTs >= ts)
          : this.events.findLast((event) => event.originServerTs <= ts);
      if (!found) throw new Error('no such event');
      return { event_id: found.eventId, origin_server_ts: found.originServerTs };
    }
    throw new Error(`nothing is known of ${kind}`);
  }

  #template(userId: string, membership: string): JsonObject {
    const content = { membership };
    const event = this.make({ type: 'm.room.member', stateKey: userId, sender: userId, content, unsigned: true });
    return { room_version: this.version, event: event.pdu };
  }

  #signedJoin(asked: Asked): RoomEvent {
    const event = parsePdu(parseJson(asked.body), this.rules, { roomId: this.roomId });
    return this.take(signEvent(event, this.server.name, this.server.key));
  }

  #known(id: string): RoomEvent {
    const event = this.known.get(id);
    if (!event) throw new Error('no such event');
    return event;
  }

  /** Events before some, those included, the latest first. */
  #back(ids: readonly string[], limit: number): RoomEvent[] {
    const found = new Map<string, RoomEvent>();
    const pending = [...ids];
    for (let id = pending.shift(); id !== undefined && found.size < limit; id = pending.shift()) {
      const event = this.known.get(id);
      if (!event || found.has(id)) continue;
      found.set(id, event);
      pending.push(...event.prevEventIds);
    }
    return [...found.values()];
  }
}

/** An answer with another status. */
export class Refusal {
  constructor(
    readonly status: number,
    readonly body: JsonObject,
  ) {}
}

let rooms = 0;
export const pduOf = (event: RoomEvent): Readonly<JsonObject> => event.pdu;
const idOf = (event: RoomEvent): string => event.eventId;
