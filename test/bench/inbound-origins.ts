import {
  buildEvent,
  parseJson,
  parsePdu,
  pduText,
  type RoomEvent,
  roomVersionRules,
  signEvent,
  SigningKey,
} from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { freePort, makeTestAuthority, type TestHomeserver } from '@rookery/testing';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { createServer } from 'node:net';
import { PlayedServer } from '../e2e/federation/federation-world.js';
import { Visit } from '../e2e/federation/visiting-server.js';
import { type Transaction, transactionOf } from './transactions.js';

/** What a server does that means no good; `good`: nothing of the kind. */
export type Temper = 'good' | 'rubbish' | 'endless' | 'silent' | 'forks' | 'huge';
export const hostile = ['rubbish', 'endless', 'silent', 'forks', 'huge'] as const;

/** A server that is played: it has a name, a key, and sends transactions. */
export class Origin {
  readonly played: PlayedServer;
  readonly userId: string;
  /** A room of its own, where it means no good. */
  room: SharedRoom | undefined;

  constructor(
    readonly name: string,
    readonly temper: Temper,
    seed: number,
  ) {
    this.played = new PlayedServer(name, SigningKey.fromSeed('bench', new Uint8Array(32).fill(1 + seed)));
    this.userId = `@member:${name}`;
  }

  /** Puts PDUs into a transaction; texts are taken as they are. */
  transaction(pdus: readonly (RoomEvent | string)[], destination: string): Transaction {
    return transactionOf(this.played, pdus, destination);
  }
}

/** A room of the server under test, as its other servers see it. */
export class SharedRoom {
  readonly #views = new Map<Origin, Visit>();
  heads: RoomEvent[] = [];

  constructor(readonly roomId: string) {}

  /** All of them join, one after the other. */
  async join(home: TestHomeserver, origins: readonly Origin[]): Promise<void> {
    let last: Visit | undefined;
    for (const { played, userId } of origins) last = await Visit.join(played, home, this.roomId, userId);
    if (last) this.#seenBy(origins, last);
  }

  /** As it is without the server under test having anything to do with it. */
  static of(origin: Origin, home: TestHomeserver, events: readonly RoomEvent[]): SharedRoom {
    const visit = new Visit(origin.played, home, events[0]!.roomId, events[0]!.rules);
    for (const event of events) visit.apply(event);
    const shared = new SharedRoom(visit.roomId);
    shared.#seenBy([origin], visit);
    return shared;
  }

  #seenBy(origins: readonly Origin[], { home, rules, state, heads }: Visit): void {
    this.heads = heads;
    for (const origin of origins) {
      const view = new Visit(origin.played, home, this.roomId, rules);
      for (const event of state.values()) view.learn(event, true);
      this.#views.set(origin, view);
    }
  }

  /** An event behind others; the heads stay what they are. */
  make(origin: Origin, type: string, content: JsonObject, prev: readonly RoomEvent[], stateKey?: string): RoomEvent {
    const view = this.#views.get(origin)!;
    const event = view.make({
      type,
      sender: origin.userId,
      content,
      prev,
      ...(stateKey !== undefined && { stateKey }),
    });
    if (stateKey === origin.userId) view.learn(event, true);
    return event;
  }

  message(origin: Origin, body: string, prev = this.heads): RoomEvent {
    return this.make(origin, 'm.room.message', { msgtype: 'm.text', body }, prev);
  }
}

/** A room of a played server with many members, as it answers about it. */
export interface LargeRoom {
  readonly events: readonly RoomEvent[];
  readonly texts: readonly string[];
}

const version = '11';
const rules = roomVersionRules(version)!;

/** Makes a room of a played server with as many members. */
export function largeRoom({ name, played, userId: creator }: Origin, members: number): LargeRoom {
  const events: RoomEvent[] = [];
  const add = (type: string, stateKey: string, content: JsonObject, sender: string, auth: string[]): string => {
    const head = events.at(-1);
    const draft = {
      ...{ roomId: `!large:${name}`, type, stateKey, sender, content, authEventIds: auth, originServerTs: Date.now() },
      ...{ depth: (head?.depth ?? 0) + 1, prevEventIds: head ? [head.eventId] : [] },
    };
    const event = signEvent(buildEvent(draft, rules), name, played.key);
    events.push(event);
    return event.eventId;
  };
  const create = add('m.room.create', '', { room_version: version }, creator, []);
  const first = add('m.room.member', creator, { membership: 'join' }, creator, [create]);
  const levels = add('m.room.power_levels', '', { users: { [creator]: 100 } }, creator, [create, first]);
  const open = add('m.room.join_rules', '', { join_rule: 'public' }, creator, [create, first, levels]);
  for (let n = 4; n < members; n++) {
    const userId = `@member${n}:${name}`;
    add('m.room.member', userId, { membership: 'join' }, userId, [create, levels, open]);
  }
  return { events, texts: events.map(pduText) };
}

/** What servers are asked, and the server under test waits for. */
export class PlayedWorld {
  readonly origins: readonly Origin[];
  large: LargeRoom | undefined;
  /** Events of those who send without end, from the newest back. */
  readonly #behind = new Map<string, string>();

  private constructor(origins: readonly Origin[]) {
    this.origins = origins;
  }

  /** Servers at addresses of their own, over TLS. */
  static async listen(tempers: readonly Temper[]): Promise<PlayedWorld> {
    const port = await freePort();
    const { cert, key } = makeTestAuthority().issue(['localhost']);
    const addressOf = (n: number): string => `127.78.0.${1 + n}`;
    const world = new PlayedWorld(tempers.map((temper, n) => new Origin(`${addressOf(n)}:${port}`, temper, n)));
    const byName = new Map(world.origins.map((origin) => [origin.name, origin]));
    const http = createSecureServer({ cert, key }, (asked: IncomingMessage, response: ServerResponse) => {
      const chunks: Buffer[] = [];
      asked.on('data', (chunk: Buffer) => chunks.push(chunk));
      asked.on('end', () => {
        const origin = byName.get(asked.headers.host ?? '');
        if (origin) world.#answer(origin, asked.url ?? '', Buffer.concat(chunks).toString(), response);
      });
    });
    for (const n of tempers.keys()) {
      const listener = createServer((socket) => void http.emit('connection', socket));
      await new Promise<void>((resolve) => listener.listen(port, addressOf(n), resolve));
    }
    return world;
  }

  /** Who sends without end is asked for what lies before: a page of events behind another that nobody has. */
  before(event: RoomEvent, pdus: readonly RoomEvent[]): void {
    this.#behind.set(event.eventId, `{"events":[${pdus.map(pduText).join()}]}`);
  }

  #answer(origin: Origin, url: string, body: string, response: ServerResponse): void {
    const [, , , , kind] = url.split('?', 1)[0]!.split('/');
    const say = (text: string): void => void response.end(text);
    const refuse = (): void => void response.writeHead(404).end('{"errcode":"M_NOT_FOUND","error":"No"}');
    if (url.startsWith('/_matrix/key/v2/server')) return say(JSON.stringify(origin.played.statement()));
    if (kind === 'send') return say('{"pdus":{}}');
    if (origin.temper === 'silent') return;
    if (kind === 'get_missing_events') {
      const { latest_events: latest = [] } = JSON.parse(body) as { latest_events?: string[] };
      const known = latest.map((id) => this.#behind.get(id)).find((page) => page !== undefined);
      return known === undefined ? refuse() : say(known);
    }
    if (origin.temper !== 'huge' || !this.large) return refuse();
    const { events, texts } = this.large;
    const head = events.at(-1)!;
    const auth = [0, 2, 3].map((n) => events[n]!.eventId);
    if (kind === 'make_join') {
      const userId = decodeURIComponent(url.split('?', 1)[0]!.split('/')[6]!);
      const event = {
        ...{ type: 'm.room.member', room_id: head.roomId, sender: userId, state_key: userId, signatures: {} },
        ...{ content: { membership: 'join' }, prev_events: [head.eventId], auth_events: auth, depth: head.depth + 1 },
        ...{ origin_server_ts: Date.now(), hashes: { sha256: '' } },
      };
      return say(JSON.stringify({ room_version: version, event }));
    }
    if (kind !== 'send_join') return refuse();
    const event = pduText(parsePdu(parseJson(body), rules, { roomId: head.roomId }));
    say(
      `{"origin":"${origin.name}","event":${event},"state":[${texts.join()}],"auth_chain":[${texts.slice(0, 4).join()}]}`,
    );
  }
}
