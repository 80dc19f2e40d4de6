/**
 * How long a message takes to a thousand servers of which three hundred are dead or slow. A built server runs in a process of its own; the
 * others are played here, over real TLS, each at an address of its own. Of the slow, a third takes no connection, a third never answers,
 * a third answers after three seconds. Measured are the times until the living have a message, the CPU time
 * of the server process, its memory, and how soon it answers after a restart with ten thousand servers that are left alone.
 *
 * `npm run bench -- fanout [servers] [dead or slow] [messages]`
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
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { call, percentiles, register, startServer, table } from './support.js';

const [all = 1_000, badly = 300, messages = 30] = process.argv.slice(2).map(Number);
const resting = 10_000;
const spacingMs = 500;
const slowMs = 3_000;
const version = '11';
const rules = roomVersionRules(version)!;
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
    for (const [, n] of body.matchAll(/"body":"message (\d+)"/g)) took[Number(n)]!.push(nowMs - sentMs[Number(n)]!);
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
    else if (kind === 'slow') setTimeout(() => response.end('{"pdus":{}}'), slowMs);
  });
});
const listeners = new Map<string, Server>();
for (const [n, name] of names.entries()) {
  const listener = createServer((socket) => void http.emit('connection', socket));
  await new Promise<void>((resolve) => listener.listen(port, addressOf(n), resolve));
  listeners.set(name, listener);
}

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-fanout-'));
const file = join(folder, 'homeserver.db');
const settings = {
  ...{ database: { name: 'sqlite3', args: { database: file } }, signing_key_path: join(folder, 'signing.key') },
  ...{ ip_range_whitelist: ['127.0.0.0/8'], federation_verify_certificates: false, presence: { enabled: false } },
  trusted_key_servers: [{ server_name: resident, accept_keys_insecurely: true }],
};
const server = await startServer(settings);
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
async function send(count: number): Promise<readonly (string | number)[]> {
  const from = sent;
  const cpu = server.cpuSeconds();
  for (let n = 0; n < count; n++) {
    const at = sent++;
    took[at] = [];
    sentMs[at] = performance.now();
    const path = `/_matrix/client/v3/rooms/${encodeURIComponent(large.roomId)}/send/m.room.message/t${at}`;
    await call(server.baseUrl, 'PUT', path, user.token, { msgtype: 'm.text', body: `message ${at}` });
    await pause(Math.max(0, spacingMs - (performance.now() - sentMs[at]!)));
  }
  const wanted = (): number => took.slice(from).filter((each) => each.length < living).length;
  for (let waitedMs = 0; wanted() > 0 && waitedMs < 120_000; waitedMs += 50) await pause(50);
  const { p50, p99 } = percentiles(took.slice(from).flat());
  const cpuMs = ((server.cpuSeconds() - cpu) / count) * 1_000;
  return [count, Math.round(p50), Math.round(p99), wanted(), Math.round(cpuMs), Math.round(server.residentMib())];
}

const rows: (readonly (string | number)[])[] = [];
rows.push(['all living: the first, with its connections', ...(await send(1))]);
rows.push(['all living', ...(await send(messages))]);
isTrouble = true;
for (const [name, kind] of kinds) if (kind === 'dead') listeners.get(name)!.close();
http.closeAllConnections();
rows.push([`${all - living} dead or slow: the first, with its connections`, ...(await send(1))]);
rows.push([`${all - living} dead or slow`, ...(await send(messages))]);
table(`Messages to ${all} servers`, [
  ['', 'messages', 'p50 ms', 'p99 ms', 'not with all in two minutes', 'CPU ms each', 'MiB'],
  ...rows,
]);
await server.stop();

const database = new Sqlite(file);
const { top } = database.prepare('SELECT MAX(stream_ordering) AS top FROM events').get() as { top: number };
database.transaction(() => {
  const away = database.prepare(
    `INSERT OR REPLACE INTO destinations (destination, failure_ts, retry_last_ts, retry_interval, last_successful_stream_ordering)
     VALUES (?, ?, ?, 86400000, 0)`,
  );
  const behind = database.prepare(
    'INSERT OR REPLACE INTO destination_rooms (destination, room_id, stream_ordering) VALUES (?, ?, ?)',
  );
  for (let n = 0; n < resting; n++) {
    away.run(`away${n}.invalid`, Date.now(), Date.now());
    behind.run(`away${n}.invalid`, large.roomId, top);
  }
})();
database.close();
const startedMs = performance.now();
const again = await startServer(settings);
const readyMs = performance.now() - startedMs;
const idle = async (): Promise<number> => {
  for (let last = -1, now = again.cpuSeconds(); ; last = now, now = again.cpuSeconds()) {
    if (now - last < 0.05) return now;
    await pause(500);
  }
};
table(`Start with ${resting} servers that are left alone`, [
  ['answers after ms', 'CPU s until it is at rest', 'MiB'],
  [Math.round(readyMs), (await idle()).toFixed(1), Math.round(again.residentMib())],
]);
await again.stop();
await rm(folder, { recursive: true, force: true });
process.exit(0);
