/**
 * Rooms that hurt: one of many members and much other state on another server, which is played here. What is done in it, one thing after
 * the other, each with how long it takes and the longest turn of the event loop meanwhile, by the CPU time of its thread: joins, sends,
 * syncs, what lies in the past, search, thousands of forward extremities, a resolution of two long forks, a busy minute, upgrade, leave
 * and purge.
 *
 * `npm run bench -- heavy [members] [state events] [extremities] [conflicted]`; 10,000, 5,000, 2,000 and 2,000 unless told.
 */
import type { RoomEvent } from '@rookery/events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { request } from 'undici';
import { LargeRoom, LargeRoomServer, noteTurns } from './large-room.js';
import { call, percentiles, pool, register, startServer, table } from './support.js';
import { deliverAll } from './transactions.js';

const [members = 10_000, others = 5_000, extremities = 2_000, conflicted = 2_000] = process.argv
  .slice(2)
  .filter((each) => !each.startsWith('-'))
  .map(Number);
/** Of a busy minute: so many events in so many seconds. */
const [busyEvents, busySeconds] = [334, 20];

const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-heavy-'));
const peer = await LargeRoomServer.start(folder, true);
const noted = await noteTurns(folder);
const server = await startServer(
  {
    ip_range_whitelist: ['127.0.0.0/8', '::1/128'],
    federation_custom_ca_list: [join(folder, 'ca.pem')],
    trusted_key_servers: [],
    presence: { enabled: false },
  },
  noted.args,
);
const user = await register(server.baseUrl, 'bench');
const admin = await register(server.baseUrl, 'admin', true);
const large = await LargeRoom.make(peer.played, { members, others, admins: [user.userId] });
peer.room = large;
const client = '/_matrix/client/v3';
const unstable = '/_matrix/client/unstable';
const inRoom = `${client}/rooms/${encodeURIComponent(large.roomId)}`;

const rows: (readonly (string | number)[])[] = [];
/** Does something and notes what it took. What it returns is said about it. */
async function measure(what: string, work: () => Promise<string | void>): Promise<void> {
  // What is left over from before is not of it.
  await new Promise((resolve) => setTimeout(resolve, 300));
  const [startedMs, startedAt, cpuBefore] = [performance.now(), Date.now(), server.cpuSeconds()];
  const note = await work();
  const tookMs = performance.now() - startedMs;
  await new Promise((resolve) => setTimeout(resolve, 50));
  const { wallMs, cpuMs } = await noted.longest(startedAt);
  const row = [what, (tookMs / 1000).toFixed(2), (server.cpuSeconds() - cpuBefore).toFixed(2), wallMs.toFixed(0)];
  rows.push([...row, cpuMs.toFixed(0), Math.round(server.residentMib()), note ?? '']);
  console.log(rows.at(-1)!.join('  '));
}

const get = <T = Record<string, unknown>>(path: string, token = user.token): Promise<T> =>
  call<T>(server.baseUrl, 'GET', path, token);
let transactions = 0;
const say = (): Promise<unknown> =>
  call(server.baseUrl, 'PUT', `${inRoom}/send/m.room.message/m${++transactions}`, user.token, {
    msgtype: 'm.text',
    body: `a message of ordinary length, with the word needle${transactions % 7}`,
  });
const saySome = async (count: number): Promise<string> => {
  const timesMs: number[] = [];
  for (let n = 0; n < count; n++) {
    const before = performance.now();
    await say();
    timesMs.push(performance.now() - before);
  }
  const { p50, p99 } = percentiles(timesMs);
  return `p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms, first ${timesMs[0]!.toFixed(1)} ms`;
};
/** Sends events of the other server and waits until they are stored. */
async function deliver(events: readonly RoomEvent[]): Promise<void> {
  await deliverAll(peer.played, { baseUrl: server.baseUrl, name: 'bench.test' }, events);
  await isStored(events.at(-1)!);
}
async function isStored({ eventId }: RoomEvent): Promise<void> {
  for (let tries = 0; tries < 12_000; tries++) {
    if (await get(`${inRoom}/event/${encodeURIComponent(eventId)}`).catch(() => undefined)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('an event was not stored');
}
const length = (value: unknown): string => `${(JSON.stringify(value).length / 1_048_576).toFixed(1)} MiB`;

await measure('join, until a message is sent', async () => {
  const via = encodeURIComponent(peer.played.name);
  await call(server.baseUrl, 'POST', `${client}/join/${encodeURIComponent(large.roomId)}?via=${via}`, user.token, {});
  await say();
});
await measure('join, until all members are known', async () => {
  const { joined } = await get<{ joined: object }>(`${inRoom}/joined_members`);
  if (Object.keys(joined).length !== members + 1) throw new Error('members are missing');
});
await measure('100 sends', () => saySome(100));
const lazily = encodeURIComponent(JSON.stringify({ room: { state: { lazy_load_members: true } } }));
let since = '';
await measure('first sync, all members', async () => {
  const answer = await get<{ next_batch: string }>(`${client}/sync?timeout=0`);
  since = answer.next_batch;
  return length(answer);
});
await measure('first sync, lazy', async () => length(await get(`${client}/sync?timeout=0&filter=${lazily}`)));
await measure('sync after a message', async () => {
  await say();
  return length(await get(`${client}/sync?timeout=0&since=${since}`));
});
await measure('/members', async () => length(await get(`${inRoom}/members`)));
await measure('/joined_members', async () => length(await get(`${inRoom}/joined_members`)));
await measure('/state', async () => length(await get(`${inRoom}/state`)));
await measure('sliding sync, all state', async () => {
  const wanted = { ranges: [[0, 0]], timeline_limit: 20, required_state: [['*', '*']] };
  const path = `${unstable}/org.matrix.simplified_msc3575/sync?timeout=0`;
  return length(await call(server.baseUrl, 'POST', path, user.token, { lists: { all: wanted } }));
});
await measure('/rooms/{id}/initialSync', async () => length(await get(`${inRoom}/initialSync?limit=20`)));
await measure('/initialSync', async () => length(await get(`${client}/initialSync?limit=20`)));
await measure('/context', async () => {
  const { chunk } = await get<{ chunk: { event_id: string }[] }>(`${inRoom}/messages?dir=b&limit=1`);
  return length(await get(`${inRoom}/context/${encodeURIComponent(chunk[0]!.event_id)}?limit=10`));
});
await measure('/hierarchy', async () =>
  length(await get(`${client.replace('v3', 'v1')}${inRoom.slice(client.length)}/hierarchy`)),
);
const byAdmin = `/_synapse/admin/v1/rooms/${encodeURIComponent(large.roomId)}`;
await measure("admin's /state", async () => length(await get(`${byAdmin}/state`, admin.token)));
await measure("admin's /members", async () => length(await get(`${byAdmin}/members`, admin.token)));
await measure("admin's room", async () => length(await get(byAdmin, admin.token)));
await measure('1,000 events of the past, from the other server', async () => {
  let from = '';
  let seen = 0;
  while (seen < 1_000) {
    const { chunk, end } = await get<{ chunk: unknown[]; end?: string }>(
      `${inRoom}/messages?dir=b&limit=100${from && `&from=${encodeURIComponent(from)}`}`,
    );
    seen += chunk.length;
    if (end === undefined) break;
    from = end;
  }
  return `${seen} events`;
});
await measure('search', async () => {
  const categories = { room_events: { search_term: 'needle3', filter: { rooms: [large.roomId] } } };
  type Found = { search_categories: { room_events: { count: number } } };
  const path = `${client}/search`;
  const found = await call<Found>(server.baseUrl, 'POST', path, user.token, { search_categories: categories });
  return `${found.search_categories.room_events.count} found`;
});
const text = (body: string): object => ({ msgtype: 'm.text', body });
await measure(`${busyEvents} events of the other server in ${busySeconds} s, and sends beside them`, async () => {
  const timesMs: number[] = [];
  const startedMs = performance.now();
  for (let n = 0; n < busyEvents; n++) {
    await deliver([large.make({ type: 'm.room.message', content: text(`busy ${n}`) })]);
    const before = performance.now();
    await say();
    timesMs.push(performance.now() - before);
    const dueMs = startedMs + ((n + 1) * busySeconds * 1_000) / busyEvents - performance.now();
    if (dueMs > 0) await new Promise((resolve) => setTimeout(resolve, dueMs));
  }
  const { p50, p99 } = percentiles(timesMs);
  return `p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms`;
});
const { head } = large;
await measure(`${extremities} events that all follow upon the same old one`, async () => {
  await deliver(
    Array.from({ length: extremities }, (_, n) =>
      large.make({ type: 'm.room.message', content: text(`loose ${n}`), prev: head }),
    ),
  );
});
await measure('20 sends upon these', () => saySome(20));
await measure('state at these: /messages', async () => length(await get(`${inRoom}/messages?dir=b&limit=100`)));
/** Two forks that set the same keys, each event upon the one before. */
const forks = ['one', 'two'].map((fork) => {
  let prev = head;
  return Array.from({ length: conflicted / 2 }, (_, n) => {
    prev = large.make({ type: 'org.example.fork', stateKey: `key${n}`, content: { fork, n }, prev });
    return prev;
  });
});
await measure(`first of two forks of ${conflicted / 2} state events`, () => deliver(forks[0]!));
await measure('second of them', () => deliver(forks[1]!));
await measure('20 sends upon both', () => saySome(20));
await measure('upgrade', async () => {
  await call(server.baseUrl, 'POST', `${inRoom}/upgrade`, user.token, { new_version: '12' });
});
await measure('leave', async () => {
  await call(server.baseUrl, 'POST', `${inRoom}/leave`, user.token, {});
});
await measure('purge', async () => {
  const path = `/_synapse/admin/v2/rooms/${encodeURIComponent(large.roomId)}`;
  const answer = await request(`${server.baseUrl}${path}`, {
    ...{ method: 'DELETE', dispatcher: pool, body: '{"purge":true}' },
    headers: { authorization: `Bearer ${admin.token}`, 'content-type': 'application/json' },
  });
  const { delete_id: id } = (await answer.body.json()) as { delete_id: string };
  for (;;) {
    const { status, error } = await get<{ status: string; error?: string }>(
      `/_synapse/admin/v2/rooms/delete_status/${id}`,
      admin.token,
    );
    if (status === 'complete') return;
    if (status === 'failed') throw new Error(error);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
});
const size = `${members} members, ${others} other state events`;
table(`A room of ${size}`, [['what', 's', 'CPU s', 'longest turn ms', 'of it CPU ms', 'MiB resident', ''], ...rows]);
await server.stop();
peer.stop();
await rm(folder, { recursive: true, force: true });
process.exit(0);
