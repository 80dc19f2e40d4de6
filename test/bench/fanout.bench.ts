/**
 * How long a message takes to a thousand servers of which three hundred are dead or slow. A built server runs in a process of its own; the
 * others are played here, over real TLS, each at an address of its own. Of the three hundred, a third takes no connection, a third never
 * answers, a third answers after three seconds. Measured are the times until the living have a message, the CPU time of the server
 * process, its memory, and what its tables of other servers take on disk; then how long it takes until one of the dead has what it missed
 * once it sends something itself, and until all of them have; then how soon the server answers after a restart, and after one with ten
 * thousand servers that are left alone, and when one of these has what it missed.
 *
 * `npm run bench -- fanout [servers] [dead or slow] [messages]`
 *
 * `BENCH_PROFILE=FOLDER` keeps profiles of the main thread.
 */
import {
  buildEvent,
  parseJson,
  parsePdu,
  pduText,
  roomVersionRules,
  signEvent,
  signJson,
  SigningKey,
} from '@rookery/events';
import { freePort, makeTestAuthority } from '@rookery/testing';
import Sqlite from 'better-sqlite3';
import { mkdtemp, rm } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import { createServer, type Server } from 'node:net';
import type { Duplex } from 'node:stream';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { profiled } from './profile.js';
import { call, percentiles, register, startServer, table } from './support.js';
import { deliver, transactionOf } from './transactions.js';

const [all = 1_000, badly = 300, messages = 30] = process.argv.slice(2).map(Number);
const resting = 10_000;
const spacingMs = 500;
const slowMs = 3_000;
const version = '11';
const rules = roomVersionRules(version)!;
const homeName = 'bench.test';
const key = SigningKey.fromSeed('bench', new Uint8Array(32).fill(7));
const port = await freePort();
const { cert, key: tlsKey } = makeTestAuthority().issue(['localhost']);

type Kind = 'living' | 'dead' | 'silent' | 'slow';
const addressOf = (n: number): string => `127.77.${Math.floor(n / 250)}.${1 + (n % 250)}`;
const nameOf = (n: number): string => `${addressOf(n)}:${port}`;
const kindOf = (n: number): Kind =>
  n === 0 || n >= badly + 1 ? 'living' : (['dead', 'silent', 'slow'] as const)[n % 3]!;
const names = Array.from({ length: all }, (_, n) => nameOf(n));
const kinds = new Map(names.map((name, n) => [name, kindOf(n)]));
const resident = names[0]!;
const living = [...kinds.values()].filter((kind) => kind === 'living').length;

let isTrouble = false;
/** When each message was sent, and how long it took to each of the living. */
const sentMs: number[] = [];
const took: number[][] = [];
/** How often each server was sent each message, by its number; and when a server was last sent something that it had not got. */
const gotten = new Map<string, Map<number, number>>(names.map((name) => [name, new Map()]));
const newestMs = new Map<string, number>();

function statement(name: string): object {
  const own = { server_name: name, valid_until_ts: Date.now() + 86_400_000, old_verify_keys: {} };
  return signJson({ ...own, verify_keys: { [key.keyId]: { key: key.publicKey } } }, name, key);
}

/** A room with a member of each server. */
function makeRoom(): {
  roomId: string;
  head: ReturnType<typeof buildEvent>;
  state: Map<string, string>;
  auth: string[];
} {
  const creator = `@member:${resident}`;
  const roomId = `!large:${resident}`;
  const state = new Map<string, string>();
  let head: ReturnType<typeof buildEvent> | undefined;
  const add = (type: string, stateKey: string, content: object, sender: string, auth: string[]): string => {
    const draft = {
      ...{ roomId, type, stateKey, sender, content: content as Record<string, string>, authEventIds: auth },
      ...{ originServerTs: Date.now(), depth: (head?.depth ?? 0) + 1, prevEventIds: head ? [head.eventId] : [] },
    };
    head = signEvent(buildEvent(draft, rules), sender.slice(sender.indexOf(':') + 1), key);
    state.set(head.eventId, pduText(head));
    return head.eventId;
  };
  const create = add('m.room.create', '', { room_version: version }, creator, []);
  const first = add('m.room.member', creator, { membership: 'join' }, creator, [create]);
  const levels = add('m.room.power_levels', '', { users: { [creator]: 100 } }, creator, [create, first]);
  const open = add('m.room.join_rules', '', { join_rule: 'public' }, creator, [create, first, levels]);
  for (const name of names.slice(1)) {
    const userId = `@member:${name}`;
    add('m.room.member', userId, { membership: 'join' }, userId, [create, levels, open]);
  }
  return { roomId, head: head!, state, auth: [create, first, levels, open] };
}
const large = makeRoom();

function answer(name: string, url: string, body: string): object {
  const [, , , , kind, , userId = ''] = url.split('?', 1)[0]!.split('/').map(decodeURIComponent);
  if (url.startsWith('/_matrix/key/v2/server')) return statement(name);
  if (url.startsWith('/_matrix/key/v2/query'))
    return { server_keys: Object.keys((JSON.parse(body) as { server_keys: object }).server_keys).map(statement) };
  if (kind === 'make_join') {
    const [create, , levels, open] = large.auth;
    const member = { type: 'm.room.member', room_id: large.roomId, sender: userId, state_key: userId };
    const place = {
      prev_events: [large.head.eventId],
      auth_events: [create, levels, open],
      depth: large.head.depth + 1,
    };
    const event = {
      ...member,
      ...place,
      content: { membership: 'join' },
      origin_server_ts: Date.now(),
      hashes: { sha256: '' },
    };
    return { room_version: version, event: { ...event, signatures: {} } };
  }
  if (kind === 'send_join') {
    const event = JSON.parse(pduText(parsePdu(parseJson(body), rules, { roomId: large.roomId }))) as object;
    const texts = [...large.state.values()].map((text) => JSON.parse(text) as object);
    const chain = large.auth.map((id) => JSON.parse(large.state.get(id)!) as object);
    return { origin: name, event, state: texts, auth_chain: chain };
  }
  if (kind === 'send') {
    const nowMs = performance.now();
    for (const [, digits] of body.matchAll(/"body":"message (\d+)"/g)) {
      const n = Number(digits);
      const before = gotten.get(name)!.get(n) ?? 0;
      gotten.get(name)!.set(n, before + 1);
      if (before > 0) continue;
      newestMs.set(name, nowMs);
      if (kinds.get(name) === 'living') took[n]!.push(nowMs - sentMs[n]!);
    }
  }
  return { pdus: {} };
}

const http = createSecureServer({ cert, key: tlsKey }, (request: IncomingMessage, response: ServerResponse) => {
  const name = request.headers.host!;
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const kind = isTrouble ? kinds.get(name) : 'living';
    const reply = (): void =>
      void response.end(JSON.stringify(answer(name, request.url!, Buffer.concat(chunks).toString())));
    if (kind === 'living') reply();
    else if (kind === 'slow') setTimeout(reply, slowMs);
    // It came by a connection that was made while the others were cut.
    else if (kind === 'dead') request.socket.destroy();
  });
});
http.keepAliveTimeout = 75_000;
// It listens nowhere itself, and so knows none of its connections.
const connections = new Set<Duplex>();
http.on('secureConnection', (socket: Duplex) => {
  connections.add(socket);
  socket.once('close', () => connections.delete(socket));
});
const listeners = new Map<string, Server>();
async function listen(name: string): Promise<void> {
  const listener = createServer((socket) => void http.emit('connection', socket));
  await new Promise<void>((resolve) => listener.listen(port, name.split(':')[0], resolve));
  listeners.set(name, listener);
}
for (const name of names) await listen(name);

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-fanout-'));
const file = join(folder, 'homeserver.db');
const settings = {
  ...{ database: { name: 'sqlite3', args: { database: file } }, signing_key_path: join(folder, 'signing.key') },
  ...{ ip_range_whitelist: ['127.0.0.0/8'], federation_verify_certificates: false, presence: { enabled: false } },
  trusted_key_servers: [{ server_name: resident, accept_keys_insecurely: true }],
  // Who cannot be reached twice is left alone, so that the outage need not take hours.
  federation: { max_long_retries: 1 },
};
const inspector = await freePort();
const server = await startServer(settings, [`--inspect=127.0.0.1:${inspector}`]);
const user = await register(server.baseUrl, 'bench');
const joining = performance.now();
await call(
  server.baseUrl,
  'POST',
  `/_matrix/client/v3/join/${encodeURIComponent(large.roomId)}?via=${resident}`,
  user.token,
  {},
);
console.log(`joined after ${((performance.now() - joining) / 1_000).toFixed(1)} s`);

let sent = 0;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
async function until(isSo: () => boolean, longestMs: number): Promise<void> {
  for (const endMs = performance.now() + longestMs; !isSo() && performance.now() < endMs;) await pause(20);
}

async function say(baseUrl: string): Promise<number> {
  const n = sent++;
  took[n] = [];
  sentMs[n] = performance.now();
  const path = `/_matrix/client/v3/rooms/${encodeURIComponent(large.roomId)}/send/m.room.message/t${n}`;
  await call(baseUrl, 'PUT', path, user.token, { msgtype: 'm.text', body: `message ${n}` });
  return n;
}

/** Sends messages, and waits until the living have them. */
async function send(name: string, count: number): Promise<readonly (string | number)[]> {
  const [from, cpu] = [sent, server.cpuSeconds()];
  for (let n = 0; n < count; n++) {
    const at = await say(server.baseUrl);
    await pause(Math.max(0, spacingMs - (performance.now() - sentMs[at]!)));
  }
  const wanted = (): number => took.slice(from).filter((each) => each.length < living).length;
  await until(() => wanted() === 0, 120_000);
  const { p50, p99 } = percentiles(took.slice(from).flat());
  const cpuMs = ((server.cpuSeconds() - cpu) / count) * 1_000;
  return [
    ...[name, count, Math.round(p50), Math.round(p99), wanted(), Math.round(cpuMs), Math.round(server.residentMib())],
    ...[tablesKib()],
  ];
}

/** What the tables of other servers take on disk, indexes included, KiB. */
function tablesKib(): number {
  const database = new Sqlite(file, { readonly: true });
  const { bytes } = database
    .prepare(
      `SELECT SUM(pgsize) AS bytes FROM dbstat WHERE aggregate = TRUE AND name IN
         (SELECT name FROM sqlite_schema WHERE tbl_name IN ('destinations', 'destination_rooms'))`,
    )
    .get() as { bytes: number };
  database.close();
  return Math.round(bytes / 1_024);
}

/** A server sends something itself: a transaction without events. */
async function speaks(name: string, baseUrl: string): Promise<void> {
  const status = await deliver({ baseUrl }, transactionOf({ name, key }, [], homeName));
  if (status !== 200) throw new Error(`${name} was answered with ${status}`);
}
const missedBy = (name: string, upTo = sent): number =>
  Array.from({ length: upTo }, (_, n) => n).filter((n) => !gotten.get(name)!.has(n)).length;

const rows: (readonly (string | number)[])[] = [];
rows.push(await send('all living: the first, with its connections', 1));
rows.push(await profiled('living', inspector, () => send('all living', messages)));
isTrouble = true;
for (const [name, kind] of kinds) if (kind === 'dead') listeners.get(name)!.close();
for (const connection of connections) connection.destroy();
await pause(1_000);
rows.push(await send(`${all - living} dead or slow: the first, with its connections`, 1));
rows.push(await profiled('trouble', inspector, () => send(`${all - living} dead or slow`, messages)));
table(`Messages to ${all} servers`, [
  ['', 'messages', 'p50 ms', 'p99 ms', 'not with all in two minutes', 'CPU ms each', 'MiB', 'tables, KiB'],
  ...rows,
]);

// ---- the dead come back, and those who never answered have forgotten what they were asked: nothing tells that they lost it

isTrouble = false;
for (const [name, kind] of kinds) if (kind === 'dead') await listen(name);
await pause(2_000);
const dead = names.filter((name) => kinds.get(name) === 'dead');
const others = names.filter((name) => kinds.get(name) !== 'living' && name !== dead[0]);
const missed = missedBy(dead[0]!);
let spokeMs = performance.now();
await speaks(dead[0]!, server.baseUrl);
await until(() => missedBy(dead[0]!) === 0, 30_000);
const oneMs = (newestMs.get(dead[0]!) ?? NaN) - spokeMs;
const cpuBefore = server.cpuSeconds();
spokeMs = performance.now();
for (const name of others) await speaks(name, server.baseUrl);
const spokenMs = performance.now() - spokeMs;
await until(() => others.every((name) => missedBy(name) === 0), 60_000);
const lastMs = Math.max(...others.map((name) => newestMs.get(name) ?? NaN)) - spokeMs;
const allMissed = others.reduce((sum, name) => sum + missedBy(name), 0);
const twice = (which: readonly string[]): number =>
  which.reduce((sum, name) => sum + [...gotten.get(name)!.values()].filter((times) => times > 1).length, 0);
table('Servers that are back and send something', [
  ['', 'messages missed', 'has them after ms', 'CPU s', 'never arrived', 'arrived twice'],
  ['one', missed, Math.round(oneMs), '', missedBy(dead[0]!), twice([dead[0]!])],
  [
    ...[`the other ${others.length}, speaking within ${Math.round(spokenMs)} ms`, '', Math.round(lastMs)],
    ...[(server.cpuSeconds() - cpuBefore).toFixed(1), allMissed, twice(others)],
  ],
  ['those that were never away', 0, '', '', '', twice(names.filter((name) => kinds.get(name) === 'living'))],
]);
await server.stop();

// ---- starts

/** Starts again, and looks until the server is at rest. */
async function start(name: string): Promise<readonly (string | number)[]> {
  const startedMs = performance.now();
  const again = await startServer(settings);
  const readyMs = performance.now() - startedMs;
  for (let last = -1; again.cpuSeconds() - last >= 0.05;) {
    last = again.cpuSeconds();
    await pause(500);
  }
  const row = [name, Math.round(readyMs), again.cpuSeconds().toFixed(2), Math.round(again.residentMib())];
  const back = dead[1]!;
  const before = gotten.get(back)!.size;
  gotten.get(back)!.clear();
  const speakingMs = performance.now();
  await speaks(back, again.baseUrl);
  await until(() => gotten.get(back)!.size > 0, before === 0 ? 0 : 10_000);
  const heard = gotten.get(back)!.size > 0 ? Math.round(newestMs.get(back)! - speakingMs).toString() : '';
  await again.stop();
  return [...row, heard];
}

const starts = [await start('nobody is left alone'), await start('once more')];
const database = new Sqlite(file);
const { top } = database.prepare('SELECT MAX(stream_ordering) AS top FROM events').get() as { top: number };
database.transaction(() => {
  const away = database.prepare(
    `INSERT OR REPLACE INTO destinations (destination, failure_ts, retry_last_ts, retry_interval, last_successful_stream_ordering)
     VALUES (?, ?, ?, 86400000, ?)`,
  );
  const behind = database.prepare(
    'INSERT OR REPLACE INTO destination_rooms (destination, room_id, stream_ordering) VALUES (?, ?, ?)',
  );
  const leave = (name: string): void => {
    away.run(name, Date.now(), Date.now(), top - 1);
    behind.run(name, large.roomId, top);
  };
  leave(dead[1]!);
  for (let n = 0; n < resting; n++) leave(`away${n}.invalid`);
})();
database.close();
starts.push(await start(`${resting} are left alone`), await start('once more'));
table('Starts', [
  ['', 'answers after ms', 'CPU s until it is at rest', 'MiB', 'one that speaks has the message after ms'],
  ...starts,
]);
await rm(folder, { recursive: true, force: true });
process.exit(0);
