/**
 * How many bytes the state of a room takes on disk: for each member of a room that is joined, for each change of state after that, for
 * each change in forks that are merged again, and what is left once its history is purged. A room of a server that is played here is
 * joined by this server and, where there is one, by a server of another make; both get the same PDUs. Both write SQLite; what is counted
 * are the pages of the tables of state groups with their indexes, which are called the same in both.
 *
 * `npm run bench -- state-size [members...] [--alone]`. The other server is the one that `npm run test:interop` installs.
 */
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
import { eventually, makeTestAuthority } from '@rookery/testing';
import Sqlite from 'better-sqlite3';
import { existsSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Agent, request } from 'undici';
import { PlayedServer } from '../e2e/federation/federation-world.js';
import { type Peer, preparePeer, registrationSecret } from '../interop/peers.js';
import { call, register, table } from './support.js';

const changes = 400;
const forks = 50;
const branches = 2;
const eachBranch = 3;
const pdusPerTransaction = 50;
const patienceMs = 1_800_000;
const version = '11';
const rules = roomVersionRules(version)!;
const stateTables = ['state_groups', 'state_groups_state', 'state_group_edges', 'event_to_state_groups'];

const python = join(process.cwd(), 'node_modules', '.cache', 'interop', 'bin', 'python');
if (existsSync(python)) process.env['INTEROP_PYTHON'] ??= python;
const isAlone = process.argv.includes('--alone') || process.env['INTEROP_PYTHON'] === undefined;
if (isAlone) console.log('Without a server of another make (`npm run test:interop` installs one).');
const named = process.argv.slice(2).filter((each) => !each.startsWith('-'));
const sizes = named.length > 0 ? named.map(Number) : [10, 1_000, 10_000];

const authority = makeTestAuthority();
const { cert, key } = authority.issue(['localhost']);

/** The room, as the server that is played here has it: its state, and the event that the next follows upon. */
let state = new Map<string, RoomEvent>();
let head: RoomEvent | undefined;
let ts = 0;

const stateKeyOf = (type: string, stateKey: string): string => `${type}\0${stateKey}`;
const inState = (type: string, stateKey = ''): RoomEvent | undefined => state.get(stateKeyOf(type, stateKey));
const isGiven = <T>(value: T | undefined): value is T => value !== undefined;
const authOf = (type: string, sender: string): RoomEvent[] =>
  [
    inState('m.room.create'),
    inState('m.room.power_levels'),
    type === 'm.room.member' ? inState('m.room.join_rules') : undefined,
    inState('m.room.member', sender),
  ].filter(isGiven);

/** An event of the room behind others. It is in the state from now on if it has a state key. */
function make(
  roomId: string,
  type: string,
  sender: string,
  content: JsonObject,
  stateKey?: string,
  prev: readonly RoomEvent[] = head ? [head] : [],
): RoomEvent {
  const event = signEvent(
    buildEvent(
      {
        ...{ roomId, type, sender, content, originServerTs: (ts += 10) },
        ...(stateKey !== undefined && { stateKey }),
        depth: Math.max(0, ...prev.map(({ depth }) => depth)) + 1,
        prevEventIds: prev.map(({ eventId }) => eventId),
        authEventIds: authOf(type, sender).map(({ eventId }) => eventId),
      },
      rules,
    ),
    played.name,
    played.key,
  );
  if (stateKey !== undefined) state.set(stateKeyOf(type, stateKey), event);
  head = event;
  return event;
}

const peer = createServer({ cert, key }, (asked, response) => {
  const chunks: Buffer[] = [];
  asked.on('data', (chunk: Buffer) => chunks.push(chunk));
  asked.on('end', () => {
    const url = new URL(asked.url ?? '', 'https://peer');
    const [, , , , kind = '', ...rest] = url.pathname.split('/').map(decodeURIComponent);
    const answer = (text: string): void =>
      void response.writeHead(200, { 'content-type': 'application/json' }).end(text);
    if (url.pathname === '/_matrix/key/v2/server') return answer(JSON.stringify(played.statement()));
    if (kind === 'make_join') return answer(template(rest[0] ?? '', rest[1] ?? ''));
    if (kind === 'send_join') return answer(joined(rest[0] ?? '', Buffer.concat(chunks).toString()));
    if (kind === 'send') return answer('{"pdus":{}}');
    response.writeHead(404, { 'content-type': 'application/json' }).end('{"errcode":"M_NOT_FOUND","error":"No"}');
  });
});
await new Promise<void>((resolve) => peer.listen(0, '127.0.0.1', resolve));
const played = new PlayedServer(
  `localhost:${(peer.address() as AddressInfo).port}`,
  SigningKey.fromSeed('bench', new Uint8Array(32).fill(9)),
);
const creator = `@carol:${played.name}`;

function template(roomId: string, userId: string): string {
  return JSON.stringify({
    room_version: version,
    event: {
      ...{ type: 'm.room.member', room_id: roomId, sender: userId, state_key: userId, content: { membership: 'join' } },
      ...{ prev_events: [head!.eventId], auth_events: authOf('m.room.member', userId).map(({ eventId }) => eventId) },
      ...{ depth: head!.depth + 1, origin_server_ts: (ts += 10), hashes: { sha256: '' }, signatures: {} },
    },
  });
}

function joined(roomId: string, body: string): string {
  const event = parsePdu(parseJson(body), rules, { roomId });
  const chain = ['m.room.create', 'm.room.power_levels', 'm.room.join_rules'].map((type) => inState(type)!);
  const told = [...state.values()].map(pduText);
  const auth = [...chain, inState('m.room.member', creator)!].map(pduText);
  const text = `{"origin":"${played.name}","event":${pduText(event)},"state":[${told.join()}],"auth_chain":[${auth.join()}]}`;
  state.set(stateKeyOf('m.room.member', event.sender), event);
  head = event;
  return text;
}

/** A room of the played server with so many members. */
async function makeRoom(members: number): Promise<string> {
  const roomId = `!state${members}:${played.name}`;
  [state, head, ts] = [new Map(), undefined, Date.now() - 3_600_000];
  make(roomId, 'm.room.create', creator, { room_version: version }, '');
  make(roomId, 'm.room.member', creator, { membership: 'join' }, creator);
  make(roomId, 'm.room.power_levels', creator, { users: { [creator]: 100 } }, '');
  make(roomId, 'm.room.join_rules', creator, { join_rule: 'public' }, '');
  for (let n = 1; n < members; n++) {
    memberJoins(roomId, `@member${n}:${played.name}`);
    if (n % 500 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  return roomId;
}

const memberJoins = (roomId: string, userId: string): RoomEvent =>
  make(roomId, 'm.room.member', userId, { membership: 'join', displayname: `Member ${userId.slice(1, 12)}` }, userId);

const toPeers = new Agent({ connect: { ca: authority.cert } });
let transactions = 0;

/**
 * Sends PDUs in the order in which they are; each transaction once all before it are there, for the other make forgets what piles up for
 * a room and asks for it later.
 */
async function deliver(
  { name }: Peer,
  events: readonly RoomEvent[],
  isThere: (event: RoomEvent) => Promise<unknown>,
): Promise<void> {
  for (let from = 0; from < events.length; from += pdusPerTransaction) {
    const texts = events.slice(from, from + pdusPerTransaction).map(pduText);
    const body = `{"edus":[],"origin":"${played.name}","origin_server_ts":${Date.now()},"pdus":[${texts.join()}]}`;
    const uri = `/_matrix/federation/v1/send/s${(transactions += 1)}`;
    const authorization = played.authorization('PUT', uri, name, JSON.parse(body) as JsonObject);
    const headers = { authorization, 'content-type': 'application/json' };
    const answer = await request(`https://${name}${uri}`, { method: 'PUT', headers, body, dispatcher: toPeers });
    const text = await answer.body.text();
    if (answer.statusCode !== 200 || text.includes('"error"'))
      throw new Error(`${name} answers a transaction with ${answer.statusCode} ${text.slice(0, 500)}`);
    await isThere(events[Math.min(from + pdusPerTransaction, events.length) - 1]!);
  }
}

interface Sizes {
  readonly stateBytes: number;
  readonly groups: number;
}

/** What the tables of state take now, indexes included. */
function sizesOf({ folder }: Peer): Sizes {
  const db = new Sqlite(join(folder, 'homeserver.db'), { readonly: true });
  try {
    const names = db
      .prepare<string[], { name: string }>(
        `SELECT name FROM sqlite_master WHERE tbl_name IN (${stateTables.map(() => '?').join()}) AND rootpage > 0`,
      )
      .all(...stateTables);
    const size = db.prepare<[string], { bytes: number | null }>(
      'SELECT SUM(pgsize) AS bytes FROM dbstat WHERE name = ?',
    );
    const stateBytes = names.reduce((sum, { name }) => sum + (size.get(name)?.bytes ?? 0), 0);
    const { groups } = db.prepare<[], { groups: number }>('SELECT COUNT(*) AS groups FROM state_groups').get()!;
    return { stateBytes, groups };
  } finally {
    db.close();
  }
}

async function measure(peers: readonly Peer[], members: number): Promise<(string | number)[][]> {
  const roomId = await makeRoom(members);
  const path = encodeURIComponent(roomId);
  const before = new Map(peers.map((each) => [each, sizesOf(each)]));
  const people = new Map<Peer, string>();
  const joins: RoomEvent[] = [];
  for (const each of peers) {
    const { token } = await register(each.baseUrl, `reader${members}`, true, registrationSecret);
    people.set(each, token);
    const url = `/_matrix/client/v3/join/${path}?server_name=${encodeURIComponent(played.name)}&via=${encodeURIComponent(played.name)}`;
    await call(each.baseUrl, 'POST', url, token, {});
    joins.push(head!);
  }
  /** The answer once it is one, and `isRight`. */
  const asked = <T>(each: Peer, url: string, isRight: (answer: T) => boolean = () => true): Promise<unknown> =>
    eventually(async () => {
      const answer = await call<T>(each.baseUrl, 'GET', url, people.get(each)).catch(() => undefined);
      return answer !== undefined && isRight(answer);
    }, patienceMs);
  const inRoom = `/_matrix/client/v3/rooms/${path}`;
  const give = (each: Peer, events: readonly RoomEvent[]): Promise<void> =>
    deliver(each, events, ({ eventId }) => asked(each, `${inRoom}/event/${encodeURIComponent(eventId)}`));
  // Who came first hears of who came later; only then do both go on from the same event.
  for (const [n, each] of peers.entries()) {
    await give(each, joins.slice(n + 1));
    const isWhole = ({ joined: known }: { joined: object }): boolean =>
      Object.keys(known).length === members + peers.length;
    await asked(each, `${inRoom}/joined_members`, isWhole);
  }
  const afterJoin = new Map(peers.map((each) => [each, sizesOf(each)]));

  const later = Array.from({ length: changes }, (_, n) => memberJoins(roomId, `@later${n}:${played.name}`));
  for (const each of peers) await give(each, later);
  const afterChanges = new Map(peers.map((each) => [each, sizesOf(each)]));

  const forked: RoomEvent[] = [];
  for (let n = 0; n < forks; n++) {
    const from = head!;
    const [ends, held] = [[] as RoomEvent[], new Map(state)];
    for (let branch = 0; branch < branches; branch++) {
      head = from;
      state = new Map(held);
      for (let step = 0; step < eachBranch; step++)
        forked.push(make(roomId, 'm.room.topic', creator, { topic: `Fork ${n}, branch ${branch}, step ${step}` }, ''));
      ends.push(head);
    }
    state = held;
    forked.push(make(roomId, 'm.room.message', creator, { msgtype: 'm.text', body: `Merge ${n}` }, undefined, ends));
  }
  for (const each of peers) await give(each, forked);
  const afterForks = new Map(peers.map((each) => [each, sizesOf(each)]));

  for (const each of peers) {
    const token = people.get(each);
    const body = { delete_local_events: true, purge_up_to_event_id: forked.at(-1)!.eventId };
    const url = `/_synapse/admin/v1/purge_history/${path}`;
    const { purge_id: purgeId } = await call<{ purge_id: string }>(each.baseUrl, 'POST', url, token, body);
    await asked<{ status: string }>(
      each,
      `/_synapse/admin/v1/purge_history_status/${purgeId}`,
      ({ status }) => status === 'complete',
    );
  }
  const afterPurge = new Map(peers.map((each) => [each, sizesOf(each)]));

  const per = (to: Map<Peer, Sizes>, from: Map<Peer, Sizes>, each: Peer, count: number): number =>
    Math.round((to.get(each)!.stateBytes - from.get(each)!.stateBytes) / count);
  return peers.map((each) => [
    each.kind,
    members.toString(),
    per(afterJoin, before, each, members).toString(),
    per(afterChanges, afterJoin, each, changes).toString(),
    per(afterForks, afterChanges, each, forks * branches * eachBranch).toString(),
    (afterForks.get(each)!.groups - before.get(each)!.groups).toString(),
    per(afterPurge, before, each, members + changes).toString(),
    (afterPurge.get(each)!.groups - before.get(each)!.groups).toString(),
  ]);
}

const kinds: readonly Peer['kind'][] = isAlone ? ['rookery'] : ['rookery', 'synapse'];
const peers: Peer[] = [];
const rows: (string | number)[][] = [];
try {
  for (const kind of kinds) {
    const each = await preparePeer(kind, authority);
    peers.push(each);
    await each.start();
  }
  for (const members of sizes) rows.push(...(await measure(peers, members)));
} finally {
  for (const each of peers) await each.remove();
  peer.closeAllConnections();
  peer.close();
}
table('Bytes of state on disk', [
  [
    ...['server', 'members', 'each, after the join', 'each change', 'each change in forks', 'groups'],
    ...['each member, purged', 'groups, purged'],
  ],
  ...rows,
]);
process.exit(0);
