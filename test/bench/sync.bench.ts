// `npm run bench -- sync`: what /sync costs, beside a bare route of the same server driven by the same client.
import { call, load, percentiles, register, room, startServer, table, type BenchUser } from './support.js';

const sync = (baseUrl: string, user: BenchUser, query: string): Promise<{ next_batch: string }> =>
  call(baseUrl, 'GET', `/_matrix/client/v3/sync?${query}`, user.token);
const send = (baseUrl: string, user: BenchUser, roomId: string, n: number | string): Promise<{ event_id: string }> =>
  call(baseUrl, 'PUT', `/_matrix/client/v3/rooms/${roomId}/send/m.room.message/${n}`, user.token, {
    msgtype: 'm.text',
    body: `message ${n}`,
  });

const durationMs = 5_000;
const server = await startServer();
const { baseUrl } = server;

const users: BenchUser[] = [];
for (let n = 0; n < 20; n++) users.push(await register(baseUrl, `user${n}`));
const rooms: string[] = [];
for (let n = 0; n < 51; n++) rooms.push(await room(baseUrl, users));
let messages = 0;
for (const roomId of rooms)
  for (let n = 0; n < 25; n++) await send(baseUrl, users[n % 20] as BenchUser, roomId, (messages += 1));

const tokens = await Promise.all(users.map(async (user) => (await sync(baseUrl, user, 'timeout=0')).next_batch));
await load(10, 1_000, () => call(baseUrl, 'GET', '/_matrix/client/versions'));

const bare = await load(10, durationMs, () => call(baseUrl, 'GET', '/_matrix/client/versions'));
const cpuBefore = server.cpuSeconds();
const empty = await load(10, durationMs, (lane) =>
  sync(baseUrl, users[lane] as BenchUser, `timeout=0&since=${tokens[lane]}`),
);
const cpuPerSyncUs = ((server.cpuSeconds() - cpuBefore) / empty.timesMs.length) * 1e6;
table('Empty incremental sync, 20 users, 51 rooms of 20 members, 10 parallel', [
  ['', 'per second', 'share of bare', 'p50 ms', 'p99 ms'],
  ['bare route', bare.perSecond, 1, percentiles(bare.timesMs).p50, percentiles(bare.timesMs).p99],
  [
    'empty sync',
    empty.perSecond,
    empty.perSecond / bare.perSecond,
    percentiles(empty.timesMs).p50,
    percentiles(empty.timesMs).p99,
  ],
]);
console.log(`  CPU of the server per empty sync: ${cpuPerSyncUs.toFixed(0)} us`);

const fanOut: number[] = [];
const current = await Promise.all(users.map(async (user) => (await sync(baseUrl, user, 'timeout=0')).next_batch));
const cpuBeforeFanOut = server.cpuSeconds();
for (let round = 0; round < 60; round++) {
  const expected = messages + 1;
  const waiting = users.slice(1).map(async (user, index) => {
    for (;;) {
      const answer = await sync(baseUrl, user, `timeout=30000&since=${current[index + 1]}`);
      const at = performance.now();
      current[index + 1] = answer.next_batch;
      // Other news, of who is there for instance, also end a wait.
      if (JSON.stringify(answer).includes(`"message ${expected}"`)) return at;
    }
  });
  await new Promise((resolve) => setTimeout(resolve, 20));
  const sentAt = performance.now();
  await send(baseUrl, users[0] as BenchUser, rooms[round % rooms.length] as string, (messages += 1));
  for (const at of await Promise.all(waiting)) if (round >= 10) fanOut.push(at - sentAt);
}
const cpuPerMessageMs = ((server.cpuSeconds() - cpuBeforeFanOut) / 60) * 1_000;
const initial: number[] = [];
const lazy = encodeURIComponent(
  JSON.stringify({ room: { state: { lazy_load_members: true }, timeline: { limit: 20 } } }),
);
for (let round = 0; round < 30; round++) {
  const before = performance.now();
  await sync(baseUrl, users[round % 20] as BenchUser, `timeout=0&filter=${lazy}`);
  if (round >= 5) initial.push(performance.now() - before);
}
table('Latency, ms', [
  ['', 'p50', 'p95', 'p99'],
  ['message to 19 long-polling members', ...Object.values(percentiles(fanOut))],
  ['initial lazy sync, 51 rooms, timeline 20', ...Object.values(percentiles(initial))],
]);

console.log(`  CPU of the server for a message and its 19 readers: ${cpuPerMessageMs.toFixed(1)} ms`);

const memory: number[] = [];
for (let repeat = 0; repeat < 3; repeat++) {
  await load(10, 3_000, async (lane) => {
    await send(baseUrl, users[lane] as BenchUser, rooms[(messages += 1) % rooms.length] as string, messages);
    await sync(baseUrl, users[lane] as BenchUser, `timeout=0&filter=${lazy}`);
  });
  memory.push(server.residentMib());
}
table('Resident memory after 3 s of sends and initial syncs, three times', [['MiB', ...memory]]);

const quiet: (string | number)[][] = [['quiet rooms', 'incremental syncs with one message per second', 'p50 ms']];
let made = 0;
const reader = await register(baseUrl, 'reader');
const writer = await register(baseUrl, 'writer');
const busy = await room(baseUrl, [writer, reader]);
for (const count of [10, 100, 1_000]) {
  for (; made < count; made++) await room(baseUrl, [writer, reader]);
  let since = (await sync(baseUrl, reader, 'timeout=0')).next_batch;
  const run = await load(1, 2_000, async () => {
    await send(baseUrl, writer, busy, (messages += 1));
    since = (await sync(baseUrl, reader, `timeout=0&since=${since}`)).next_batch;
  });
  quiet.push([count, run.perSecond, percentiles(run.timesMs).p50]);
}
table('Send and incremental sync beside quiet rooms', quiet);

const idleBefore = { memory: server.residentMib(), cpu: 0 };
const idle = 2_000;
const { next_batch: now } = await sync(baseUrl, reader, 'timeout=0');
const ends = Array.from({ length: idle }, (_, n) => {
  const user = users[n % users.length] as BenchUser;
  return sync(baseUrl, user, `timeout=28000&since=${now}`).catch(() => undefined);
});
// What their arrival and the load before leave behind is collected by then: that is not what waiting costs.
await new Promise((resolve) => setTimeout(resolve, 14_000));
idleBefore.cpu = server.cpuSeconds();
await new Promise((resolve) => setTimeout(resolve, 8_000));
const idleCpu = (server.cpuSeconds() - idleBefore.cpu) / 8;
const idleKib = ((server.residentMib() - idleBefore.memory) * 1024) / idle;
await Promise.all(ends);
table('2,000 idle long polls', [
  ['share of a core', 'KiB each', 'resident MiB after'],
  [idleCpu, idleKib, server.residentMib()],
]);
await server.stop();
process.exit(0);
