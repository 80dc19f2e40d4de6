/**
 * What a server gets that was out of reach for a day. It is in many rooms: in most of them little was said meanwhile, in some much, in a
 * few very much. A built server runs in a process of its own, the other is played here over TLS. It comes back by sending something, while
 * people go on talking; once with all of that to be told, once with little, and so once more with a restart in the middle: what was under
 * way then may come twice. Measured are the time until it has the latest of each room, transactions and events, what came twice, and the
 * CPU time of the server process.
 *
 * `npm run bench -- outage [rooms] [messages in the busiest]`
 */
import { SigningKey } from '@rookery/events';
import { freePort, makeTestAuthority } from '@rookery/testing';
import { mkdtemp, rm } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ElsewhereRoom } from '../e2e/federation/elsewhere-room.js';
import { type Asked, PlayedServer } from '../e2e/federation/federation-world.js';
import { call, register, startServer, table } from './support.js';
import { deliver, transactionOf } from './transactions.js';

const [roomCount = 50, busiest = 1_000] = process.argv.slice(2).map(Number);
const homeName = 'bench.test';
const port = await freePort();
const far = new PlayedServer(`127.0.0.1:${port}`, SigningKey.fromSeed('bench', new Uint8Array(32).fill(7)));
const certificate = makeTestAuthority().issue(['localhost']);

interface Pdu {
  readonly room_id: string;
  readonly content: { readonly body?: string };
}
/** What it got: how often each message, and when the last. */
const got = new Map<string, number>();
let [transactions, lastMs] = [0, 0];
/** Called after each transaction. */
let onTransaction = (): void => undefined;

const rooms = Array.from({ length: roomCount }, () => new ElsewhereRoom(far, '11'));
function take({ body }: Asked, response: ServerResponse): void {
  const { pdus = [] } = JSON.parse(body) as { pdus?: readonly Pdu[] };
  for (const { room_id: roomId, content } of pdus) {
    if (content.body === undefined) continue;
    const key = `${roomId} ${content.body}`;
    got.set(key, (got.get(key) ?? 0) + 1);
    lastMs = performance.now();
  }
  transactions++;
  response.end('{"pdus":{}}');
  onTransaction();
}
far.answer = (asked, response) => {
  far.asked.length = 0;
  if (asked.url.includes('/v1/send/')) return take(asked, response);
  const url = decodeURIComponent(asked.url);
  void rooms.find(({ roomId }) => url.includes(roomId))?.answer(asked, response);
};

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-outage-'));
const settings = {
  ...{ database: { name: 'sqlite3', args: { database: join(folder, 'homeserver.db') } } },
  ...{ signing_key_path: join(folder, 'signing.key'), presence: { enabled: false } },
  ...{ ip_range_whitelist: ['127.0.0.0/8'], federation_verify_certificates: false },
  trusted_key_servers: [{ server_name: far.name, accept_keys_insecurely: true }],
  // Who cannot be reached twice is left alone, so that the outage need not take a day.
  federation: { max_long_retries: 1 },
};
let server = await startServer(settings);
let listening = await far.listen(certificate, port);
const user = await register(server.baseUrl, 'bench');
for (const { roomId } of rooms)
  await call(
    server.baseUrl,
    'POST',
    `/_matrix/client/v3/join/${encodeURIComponent(roomId)}?via=${far.name}`,
    user.token,
    {},
  );

let said = 0;
/** The latest message of each room. */
const latest = new Map<string, string>();
async function say(roomId: string): Promise<void> {
  const body = `message ${++said}`;
  const path = `/_matrix/client/v3/rooms/${encodeURIComponent(roomId)}/send/m.room.message/t${said}`;
  await call(server.baseUrl, 'PUT', path, user.token, { msgtype: 'm.text', body });
  latest.set(roomId, body);
}
/** In each of some rooms one message after the other. */
const sayIn = (some: readonly ElsewhereRoom[], count: (n: number) => number): Promise<unknown> =>
  Promise.all(
    some.map(async ({ roomId }, n) => {
      for (let left = count(n); left > 0; left--) await say(roomId);
    }),
  );
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
async function until(isSo: () => boolean, longestMs: number): Promise<void> {
  for (const endMs = performance.now() + longestMs; !isSo() && performance.now() < endMs;) await pause(20);
}
const lacking = (): number => [...latest].filter(([roomId, body]) => !got.has(`${roomId} ${body}`)).length;

interface Outage {
  readonly name: string;
  /** Messages of a room by its number. */
  readonly count: (n: number) => number;
  readonly restarts?: boolean;
  /** Messages that are said while it is told, one with each of its first transactions. */
  readonly meanwhile: number;
}

/** The server is away, misses what is said, and comes back. */
async function outage({ name, count, restarts = false, meanwhile }: Outage): Promise<readonly (string | number)[]> {
  await until(() => lacking() === 0, 30_000);
  await listening.close();
  const before = said;
  // It is found to be down, before much waits.
  await say(rooms[0]!.roomId);
  await pause(4_000);
  await sayIn(rooms, count);
  const missed = said - before;
  got.clear();
  [transactions, lastMs] = [0, performance.now()];
  listening = await far.listen(certificate, port);
  const late: Promise<void>[] = [];
  let interrupted: Promise<unknown> | undefined;
  onTransaction = () => {
    if (restarts && transactions === 2) interrupted ??= server.stop();
    else if (late.length < meanwhile) late.push(say(rooms[(late.length * 7) % roomCount]!.roomId));
  };
  const [cpu, backMs] = [server.cpuSeconds(), performance.now()];
  await deliver({ baseUrl: server.baseUrl }, transactionOf(far, [], homeName));
  let [stopMs, startMs] = [0, 0];
  if (restarts) {
    await until(() => interrupted !== undefined, 30_000);
    const stoppingMs = performance.now();
    await interrupted;
    const stoppedMs = performance.now();
    stopMs = Math.round(stoppedMs - stoppingMs);
    server = await startServer(settings);
    startMs = Math.round(performance.now() - stoppedMs);
    await deliver({ baseUrl: server.baseUrl }, transactionOf(far, [], homeName));
  }
  await until(() => lacking() === 0, 60_000);
  await Promise.all(late);
  await until(() => lacking() === 0, 60_000);
  const tookMs = lastMs - backMs;
  await pause(1_500);
  onTransaction = () => undefined;
  const twice = [...got.values()].filter((times) => times > 1).length;
  const cpuMs = restarts ? '' : Math.round((server.cpuSeconds() - cpu) * 1_000);
  const told = [Math.round(tookMs), stopMs, startMs, transactions, got.size, lacking(), twice, cpuMs];
  return [name, missed, late.length, ...told];
}

const few = 4;
const many = (n: number): number => (n < 2 ? busiest : n < 10 ? Math.ceil(busiest / 10) : few);
const rows = [
  await outage({ name: 'much was said', count: many, meanwhile: 5 }),
  await outage({ name: 'little was said', count: () => few, meanwhile: 5 }),
  await outage({
    name: 'little, and a restart with the second transaction',
    count: () => few,
    meanwhile: 0,
    restarts: true,
  }),
];
table(`A server in ${roomCount} rooms is back`, [
  [
    '',
    'missed',
    'said meanwhile',
    'has them after ms',
    'of those the stop',
    'the start',
    'transactions',
    'events',
    'rooms without their latest',
    'events twice',
    'CPU ms',
  ],
  ...rows,
]);
await server.stop();
await listening.close();
await rm(folder, { recursive: true, force: true });
process.exit(0);
