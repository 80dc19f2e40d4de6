/** A server that is played and has one large room: what it answers to who joins that room, and asks for its state and its past. */
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
import { makeTestAuthority, type TestAuthority } from '@rookery/testing';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { PlayedServer } from '../e2e/federation/federation-world.js';

const version = '11';
const rules = roomVersionRules(version)!;

/** What an event is to be that follows upon others. */
export interface LargeDraft {
  readonly type: string;
  readonly stateKey?: string;
  readonly content: object;
  readonly sender?: string;
  /** Default: the newest. */
  readonly prev?: RoomEvent | readonly RoomEvent[];
}

interface StateEntry {
  readonly id: string;
  readonly text: string;
  readonly isMember: boolean;
}

/** What a room is made of. */
export interface LargeSize {
  readonly members: number;
  /** State events beside members, each of a key of its own. */
  readonly others?: number;
  /** Who may do everything in it, besides its creator. */
  readonly admins?: readonly string[];
}

/**
 * A room as the played server has it: texts of its PDUs, by what is asked for. Its events follow upon one another; whoever joins is no part of
 * it unless it is told to {@link goOn}.
 */
export class LargeRoom {
  readonly roomId: string;
  readonly creator: string;
  readonly state: StateEntry[] = [];
  /** Joins of other servers' users, in order. */
  readonly joins: RoomEvent[] = [];
  readonly #placeOf = new Map<string, number>();
  #head: RoomEvent | undefined;
  #auth: readonly string[] = [];
  #tsMs: number;

  private constructor(
    private readonly played: PlayedServer,
    { members, others = 0 }: LargeSize,
  ) {
    this.creator = `@carol:${played.name}`;
    this.roomId = `!large${members}-${others}:${played.name}`;
    this.#tsMs = Date.now() - 10 * (members + others) - 10_000;
  }

  static async make(played: PlayedServer, size: LargeSize): Promise<LargeRoom> {
    const room = new LargeRoom(played, size);
    const { creator } = room;
    const add = (type: string, stateKey: string, content: object, sender = creator): string =>
      room.#take(room.make({ type, stateKey, content, sender }), type === 'm.room.member');
    const create = add('m.room.create', '', { room_version: version });
    room.#auth = [create];
    const first = add('m.room.member', creator, { membership: 'join' });
    room.#auth = [create, first];
    const powers = [creator, ...(size.admins ?? [])].map((userId) => [userId, 100]);
    const levels = add('m.room.power_levels', '', { users: Object.fromEntries(powers) as object, events_default: 0 });
    room.#auth = [create, first, levels];
    const open = add('m.room.join_rules', '', { join_rule: 'public' });
    add('m.room.name', '', { name: 'A large room' });
    const breathe = async (n: number): Promise<void> => {
      if (n % 500 === 0) await new Promise((resolve) => setImmediate(resolve));
    };
    for (let n = 0; n < (size.others ?? 0); n++) {
      add('org.example.thing', `thing${n}`, { n, text: 'state of an ordinary length, as widgets have it' });
      await breathe(n);
    }
    room.#auth = [create, first, levels, open];
    for (let n = 1; n < size.members; n++) {
      const content = { membership: 'join', displayname: `Member number ${n}`, avatar_url: 'mxc://localhost/abcdefgh' };
      const userId = `@member${n}:${played.name}`;
      add('m.room.member', userId, content, userId);
      await breathe(n);
    }
    return room;
  }

  /** The newest event. */
  get head(): RoomEvent {
    return this.#head!;
  }

  /** Makes an event of the room, which is not part of what is told of it. */
  make({ type, stateKey, content, sender = this.creator, prev = this.#head }: LargeDraft): RoomEvent {
    const prevs = prev === undefined ? [] : [prev].flat();
    const [create, first, levels, open] = this.#auth;
    const auth = sender === this.creator ? [create, first, levels] : [create, levels];
    if (type === 'm.room.member') auth.push(open);
    return signEvent(
      buildEvent(
        {
          ...{ roomId: this.roomId, type, stateKey, sender, content: content as RoomEvent['content'] },
          originServerTs: (this.#tsMs += 10),
          depth: Math.max(0, ...prevs.map(({ depth }) => depth)) + 1,
          prevEventIds: prevs.map(({ eventId }) => eventId),
          authEventIds: auth.filter((id) => id !== undefined),
        },
        rules,
      ),
      this.played.name,
      this.played.key,
    );
  }

  /** The next event follows upon this one, which is a part of the room if it is state. */
  goOn(event: RoomEvent): RoomEvent {
    if (event.stateKey === undefined) this.#head = event;
    else this.#take(event, event.type === 'm.room.member');
    return event;
  }

  #take(event: RoomEvent, isMember: boolean): string {
    this.#head = event;
    this.#placeOf.set(event.eventId, this.state.length);
    this.state.push({ id: event.eventId, text: pduText(event), isMember });
    return event.eventId;
  }

  get #chain(): StateEntry[] {
    return this.#auth.flatMap((id) => this.state[this.#placeOf.get(id) ?? -1] ?? []);
  }

  /** Answers a request; `undefined` for one that nothing is known of. */
  answer(
    kind: string,
    rest: readonly string[],
    query: URLSearchParams,
    body: string,
    leavesOut: boolean,
  ): string | undefined {
    if (kind === 'make_join') return this.#template(rest[1] ?? '');
    if (kind === 'send_join') return this.#joined(body, leavesOut && query.get('omit_members') === 'true');
    const texts = (entries: readonly StateEntry[]): string => entries.map(({ text }) => text).join();
    const ids = (entries: readonly StateEntry[]): string[] => entries.map(({ id }) => id);
    if (kind === 'state_ids') return JSON.stringify({ pdu_ids: ids(this.state), auth_chain_ids: ids(this.#chain) });
    if (kind === 'state') return `{"pdus":[${texts(this.state)}],"auth_chain":[${texts(this.#chain)}]}`;
    const told = (entries: readonly StateEntry[]): string =>
      `{"origin":"${this.played.name}","origin_server_ts":1,"pdus":[${texts(entries)}]}`;
    const place = this.#placeOf.get(kind === 'event' ? (rest[0] ?? '') : (query.get('v') ?? ''));
    if (kind === 'event' && place !== undefined) return told(this.state.slice(place, place + 1));
    if (kind === 'backfill' && place !== undefined)
      return told(this.state.slice(Math.max(0, place + 1 - Number(query.get('limit'))), place + 1).reverse());
    return kind === 'send' ? '{"pdus":{}}' : undefined;
  }

  #template(userId: string): string {
    const { roomId, head } = this;
    const [create, , levels, open] = this.#auth;
    return JSON.stringify({
      room_version: version,
      event: {
        ...{ type: 'm.room.member', room_id: roomId, sender: userId, state_key: userId },
        ...{ content: { membership: 'join' }, prev_events: [head.eventId], auth_events: [create, levels, open] },
        ...{ depth: head.depth + 1, origin_server_ts: Date.now(), hashes: { sha256: '' }, signatures: {} },
      },
    });
  }

  #joined(body: string, omits: boolean): string {
    const event = parsePdu(parseJson(body), rules, { roomId: this.roomId });
    this.joins.push(event);
    const told = this.state.filter(({ isMember, id }) => !omits || !isMember || this.#auth.includes(id));
    const more = omits ? `,"members_omitted":true,"servers_in_room":["${this.played.name}"]` : '';
    const chain = this.#chain.map(({ text }) => text).join();
    return `{"origin":"${this.played.name}","event":${pduText(event)},"state":[${told.map(({ text }) => text).join()}],"auth_chain":[${chain}]${more}}`;
  }
}

/** The server that has the room, over real TLS. */
export class LargeRoomServer {
  /** Its room at the moment. */
  room: LargeRoom | undefined;
  /** What was answered. */
  bytes = 0;
  requests = 0;

  private constructor(
    readonly played: PlayedServer,
    private readonly server: Server,
  ) {}

  /**
   * @param folder gets `ca.pem`, which who talks to it must trust
   * @param leavesOut whether it leaves members out of its answers to joins where it may
   * @param authority issues its certificate
   */
  static async start(
    folder: string,
    leavesOut: boolean,
    authority: TestAuthority = makeTestAuthority(),
  ): Promise<LargeRoomServer> {
    await writeFile(join(folder, 'ca.pem'), authority.cert);
    const server = createServer(authority.issue(['localhost']), (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const url = new URL(request.url ?? '', 'https://peer');
        const [, , , , kind = '', ...rest] = url.pathname.split('/').map(decodeURIComponent);
        const answer =
          url.pathname === '/_matrix/key/v2/server'
            ? JSON.stringify(started.played.statement())
            : started.room?.answer(kind, rest, url.searchParams, Buffer.concat(chunks).toString(), leavesOut);
        if (answer === undefined) return void response.writeHead(404).end('{"errcode":"M_NOT_FOUND","error":"No"}');
        started.bytes += Buffer.byteLength(answer);
        started.requests++;
        response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const name = `localhost:${(server.address() as AddressInfo).port}`;
    const key = SigningKey.fromSeed('bench', new Uint8Array(32).fill(7));
    const started = new LargeRoomServer(new PlayedServer(name, key), server);
    return started;
  }

  stop(): void {
    this.server.closeAllConnections();
    this.server.close();
  }
}

/** Long turns of the event loop of a process, by the clock and by the CPU time of its thread. */
export interface Turns {
  readonly wallMs: number;
  readonly cpuMs: number;
}

/** Notes long turns of the event loop of a process that is started with `args`. */
export async function noteTurns(
  folder: string,
): Promise<{ args: readonly string[]; longest(fromMs: number): Promise<Turns> }> {
  const [script, file] = [join(folder, 'turns.mjs'), join(folder, 'turns')];
  await writeFile(
    script,
    `import { appendFileSync } from 'node:fs';
     let last = performance.now(), cpu = process.threadCpuUsage();
     setInterval(() => {
       const now = performance.now(), used = process.threadCpuUsage();
       const gap = now - last - 5, own = (used.user + used.system - cpu.user - cpu.system) / 1000;
       if (gap > 10) appendFileSync(${JSON.stringify(file)}, Date.now() + ' ' + gap.toFixed(1) + ' ' + Math.min(gap, own).toFixed(1) + '\\n');
       last = now; cpu = used;
     }, 5).unref();`,
  );
  return {
    args: ['--import', script],
    longest: async (fromMs) => {
      const text = await readFile(file, 'utf8').catch(() => '');
      if (process.env['BENCH_TURNS']) console.log(text);
      const turns = text.split('\n').flatMap((line) => (line === '' ? [] : [line.split(' ').map(Number)]));
      const late = turns.filter(([atMs = 0]) => atMs >= fromMs);
      return {
        wallMs: Math.max(0, ...late.map(([, wall = 0]) => wall)),
        cpuMs: Math.max(0, ...late.map(([, , cpu = 0]) => cpu)),
      };
    },
  };
}
