/**
 * What several processes cost and give, on PostgreSQL and Redis of one machine. For each number of processes, on an empty database:
 * CPU time of all server processes together per send, join, sync and inbound event; what it adds that a request comes to a process
 * that passes it on, many at a time and one after the other; how soon a message reaches 19 readers spread over the processes; what idle
 * processes cost; how many messages the bus carries per event. Load and database share the machine, so times are more than what they are
 * in earnest; CPU is not.
 *
 * `npm run bench -- workers [counts]`, such as `1,2,4,16`; `1,2,4` unless told. Needs redis-server or valkey-server.
 */
import { createClient } from '@redis/client';
import { SigningKey } from '@rookery/events';
import { makeTestAuthority, TestRedis } from '@rookery/testing';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { availableParallelism, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { startDurablePostgres } from '../crash/durable-postgres.js';
import { PlayedServer } from '../e2e/federation/federation-world.js';
import { Visit } from '../e2e/federation/visiting-server.js';
import { type BenchServer, type BenchUser, call, percentiles, register, room, startServer, table } from './support.js';

const counts = (process.argv[2] ?? '1,2,4').split(',').map(Number);
const [sends, joins, syncs, inbound, readers, idleMs] = [400, 100, 400, 200, 19, 15_000];
const lanes = 8;
const client = '/_matrix/client/v3';

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const authority = makeTestAuthority();
const { cert, key } = authority.issue(['localhost']);
const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-workers-'));
await writeFile(join(folder, 'ca.pem'), authority.cert);
/** Another server, which is only asked for its keys. */
const other = createServer({ cert, key }, (request, response) => {
  request.resume();
  response.end(request.url === '/_matrix/key/v2/server' ? JSON.stringify(played.statement()) : '{"pdus":{}}');
});
await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
const played = new PlayedServer(
  `localhost:${(other.address() as AddressInfo).port}`,
  SigningKey.fromSeed('bench', new Uint8Array(32).fill(7)),
);

/** What one number of processes came to. */
type Row = (string | number)[];
const rows = { cpu: [] as Row[], way: [] as Row[], readers: [] as Row[], idle: [] as Row[], bus: [] as Row[] };
let txn = 0;

async function measure(count: number): Promise<void> {
  const [postgres, redis] = [await startDurablePostgres(), await TestRedis.start()];
  const place = await mkdtemp(join(folder, 'server-'));
  const { args } = postgres.section;
  const database = await askDatabase(postgres.url);
  const servers: BenchServer[] = [];
  const begin = (): Promise<BenchServer> =>
    startServer({
      ...{ public_baseurl: 'http://127.0.0.1/', presence: { enabled: false }, trusted_key_servers: [] },
      ...{ signing_key_path: join(place, 'signing.key'), media_store_path: join(place, 'media') },
      ...{ ip_range_whitelist: ['127.0.0.0/8', '::1/128'], federation_custom_ca_list: [join(folder, 'ca.pem')] },
      database: { name: 'psycopg2', args: { ...args, cp_max: count > 8 ? 3 : 10 } },
      ...(count > 1 && { redis: { enabled: true, host: '127.0.0.1', port: redis.port } }),
    });
  // The first one writes; of the others as many at a time as there are processors, as `--processes` does.
  servers.push(await begin());
  while (servers.length < count) {
    const some = Math.min(availableParallelism(), count - servers.length);
    servers.push(...(await Promise.all(Array.from({ length: some }, begin))));
  }
  // The engine has collected by then what only the start needed.
  await sleep(13_000);
  const fresh = memoryOf(servers);
  const [writer, ...others] = servers as [BenchServer, ...BenchServer[]];
  const anyOther = (n: number): BenchServer => others[n % others.length] ?? writer;
  const any = (n: number): BenchServer => servers[n % count] ?? writer;
  const cpu = (): number => servers.reduce((sum, server) => sum + server.cpuSeconds(), 0);

  /** CPU of all processes, and of PostgreSQL, in ms for each, and how long each took. */
  const many = async (
    total: number,
    parallel: number,
    work: (n: number) => Promise<unknown>,
  ): Promise<{ cpuMs: number; databaseMs: number; p50: number; p95: number }> => {
    const [before, ofDatabase, timesMs] = [cpu(), await database.cpuMs(), [] as number[]];
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < total) {
        const n = next++;
        const startedMs = performance.now();
        await work(n);
        timesMs.push(performance.now() - startedMs);
      }
    };
    await Promise.all(Array.from({ length: parallel }, lane));
    // What follows a request belongs to it.
    await sleep(300);
    const cpuMs = ((cpu() - before) / total) * 1000;
    return { cpuMs, databaseMs: ((await database.cpuMs()) - ofDatabase) / total, ...percentiles(timesMs) };
  };

  const users: BenchUser[] = [];
  for (let n = 0; n < readers + 1; n++) users.push(await register(writer.baseUrl, `user${n}`));
  const [sender] = users as [BenchUser];
  const roomId = await room(writer.baseUrl, users);
  const send = (at: BenchServer): Promise<unknown> =>
    call(
      at.baseUrl,
      'PUT',
      `${client}/rooms/${encodeURIComponent(roomId)}/send/m.room.message/t${txn++}`,
      sender.token,
      { msgtype: 'm.text', body: 'a message of ordinary length' },
    );
  // Each process has done it often enough before it is measured: the first hundreds cost several times as much.
  for (const server of servers) await many(count > 8 ? sends / 8 : sends, lanes, () => send(server));

  // Turn and turn about, so that both ways meet the same machine. Many at a time share what is written to disk and to sockets, and how many
  // come together is not the same both ways; one after the other nothing is shared.
  const direct = { cpuMs: 0, databaseMs: 0, aloneMs: 0, p50: 0 };
  const around = { cpuMs: 0, databaseMs: 0, aloneMs: 0, p50: 0 };
  const turns = 4;
  for (let turn = 0; turn < turns; turn++)
    for (const [sum, at] of [
      [direct, () => writer],
      [around, anyOther],
    ] as const) {
      const together = await many(sends / turns, lanes, (n) => send(at(n)));
      const alone = await many(sends / turns, 1, (n) => send(at(n)));
      sum.cpuMs += together.cpuMs / turns;
      sum.databaseMs += together.databaseMs / turns;
      sum.aloneMs += alone.cpuMs / turns;
      sum.p50 += alone.p50 / turns;
    }
  if (others.length > 0) {
    const more = (of: 'cpuMs' | 'aloneMs'): string => `${Math.round((around[of] / direct[of] - 1) * 100)} %`;
    rows.way.push([
      ...[count, direct.cpuMs, around.cpuMs, more('cpuMs'), direct.databaseMs, around.databaseMs],
      ...[direct.aloneMs, around.aloneMs, more('aloneMs'), direct.p50, around.p50, around.p50 - direct.p50],
    ]);
  }

  const guests: BenchUser[] = [];
  for (let n = 0; n < joins; n++) guests.push(await register(writer.baseUrl, `guest${n}`));
  const other = await room(writer.baseUrl, [sender]);
  const sent = await many(sends, lanes, (n) => send(any(n)));
  const joined = await many(joins, 4, (n) =>
    call(any(n).baseUrl, 'POST', `${client}/join/${encodeURIComponent(other)}`, guests[n]?.token, {}),
  );
  const since = new Map<number, string>();
  const sync = async (n: number): Promise<void> => {
    const at = n % readers;
    const known = since.get(at);
    const query = known === undefined ? '' : `&since=${known}`;
    const path = `${client}/sync?timeout=0${query}`;
    since.set(at, (await call<{ next_batch: string }>(any(n).baseUrl, 'GET', path, users[at + 1]?.token)).next_batch);
  };
  for (const server of servers) {
    const warm = async (n: number): Promise<void> => {
      const answer = await call<{ next_batch: string }>(
        ...([server.baseUrl, 'GET', `${client}/sync?timeout=0&since=${since.get(n % readers)}`] as const),
        users[(n % readers) + 1]?.token,
      );
      since.set(n % readers, answer.next_batch);
    };
    for (let n = 0; n < readers; n++) await sync(n);
    await many(count > 8 ? syncs / 8 : syncs, lanes, warm);
  }
  await send(writer);
  const synced = await many(syncs, lanes, sync);
  const home = { baseUrl: any(1).baseUrl, server: { config: { serverName: 'bench.test' } } } as never;
  const visit = await Visit.join(played, home, roomId, `@guest:${played.name}`);
  const received = await many(inbound, 1, () => visit.send(visit.message(`@guest:${played.name}`, 'from elsewhere')));
  rows.cpu.push([count, sent.cpuMs, joined.cpuMs, synced.cpuMs, received.cpuMs]);

  // Readers wait, each at one of some processes; every message is timed until each of them has it.
  const bus = await listenTo(redis);
  const messages = 40;
  const heardBy = async (atProcesses: number): Promise<{ times: number[]; published: number; marks: number }> => {
    const times: number[] = [];
    let sentAtMs = 0;
    const place = (at: number): BenchServer => any(at % atProcesses);
    const waits = (): Promise<unknown> =>
      Promise.all(
        Array.from({ length: readers }, async (_, at) => {
          for (;;) {
            const path = `${client}/sync?timeout=20000&since=${since.get(at)}`;
            const answer = await call<{ next_batch: string; rooms?: { join?: object } }>(
              ...([place(at).baseUrl, 'GET', path, users[at + 1]?.token] as const),
            );
            since.set(at, answer.next_batch);
            if (answer.rooms?.join === undefined) continue;
            times.push(performance.now() - sentAtMs);
            return;
          }
        }),
      );
    for (let at = 0; at < readers; at++) {
      const path = `${client}/sync`;
      const answer = await call<{ next_batch: string }>(writer.baseUrl, 'GET', path, users[at + 1]?.token);
      since.set(at, answer.next_batch);
    }
    await bus.counted();
    for (let n = 0; n < messages; n++) {
      const waiting = waits();
      await sleep(150);
      sentAtMs = performance.now();
      await send(any(n));
      await waiting;
    }
    const { published, marks } = await bus.counted();
    return { times, published: published / messages, marks: marks / messages };
  };
  const spread = await heardBy(count);
  const { p50, p95 } = percentiles(spread.times);
  rows.readers.push([count, p50, p95]);
  const few = count > 2 ? await heardBy(2) : undefined;
  rows.bus.push([
    count,
    ...[spread.published - spread.marks, spread.marks],
    ...(few === undefined ? ['', ''] : [few.published - few.marks, few.marks]),
  ]);

  await sleep(3_000);
  const before = cpu();
  const transactions = await database.transactions();
  await bus.counted();
  await sleep(idleMs);
  const share = ((cpu() - before) / (idleMs / 1000) / count) * 100;
  const silent = await bus.counted();
  const each = (total: number): number => total / count / (idleMs / 1000);
  rows.idle.push([
    ...[count, `${share.toFixed(2)} %`, fresh, memoryOf(servers), silent.published, each(silent.commands)],
    each((await database.transactions()) - transactions),
  ]);
  await database.close();

  bus.close();
  for (const server of servers.toReversed()) await server.stop();
  await redis.stop();
  await postgres.remove();
}

/** Memory of the largest process, MiB: all that is resident, and its share of what several processes have in common. */
function memoryOf(servers: readonly BenchServer[]): string {
  const shares = servers.map(({ pid }) => {
    const [, kib] = /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')) ?? [];
    return Number(kib) / 1024;
  });
  const largest = Math.max(...servers.map((one) => one.residentMib()));
  return `${Math.round(largest)}, ${Math.round(Math.max(...shares))}`;
}

/** CPU of PostgreSQL by its processes that there are, and how many transactions it has ended in the database. */
async function askDatabase(
  url: string,
): Promise<{ cpuMs(): Promise<number>; transactions(): Promise<number>; close(): Promise<void> }> {
  const asker = new pg.Client({ connectionString: url });
  await asker.connect();
  return {
    async cpuMs() {
      const { rows } = await asker.query<{ pid: number }>(
        'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()',
      );
      const ticks = rows.map(({ pid }) => {
        // One that has just ended counts no more.
        if (!existsSync(`/proc/${pid}/stat`)) return 0;
        const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
        return Number(fields[11]) + Number(fields[12]);
      });
      return ticks.reduce((sum, one) => sum + one, 0) * 10;
    },
    async transactions() {
      const { rows } = await asker.query<{ count: string }>(
        'SELECT xact_commit + xact_rollback AS count FROM pg_stat_database WHERE datname = current_database()',
      );
      return Number(rows[0]?.count);
    },
    close: () => asker.end(),
  };
}

/** What has gone over the bus since it was asked last: by the count of Redis itself, and how much of it were marks. */
interface OnBus {
  readonly published: number;
  /** By which a process finds out that it has heard everything: its messages to itself. */
  readonly marks: number;
  /** All that Redis was asked to do, but for these counts. */
  readonly commands: number;
}

async function listenTo(redis: TestRedis): Promise<{ counted(): Promise<OnBus>; close(): void }> {
  const socket = { host: '127.0.0.1', port: redis.port };
  const [listener, asker] = [createClient({ socket }), createClient({ socket })];
  for (const each of [listener, asker]) {
    each.on('error', () => {});
    await each.connect();
  }
  let marks = 0;
  await listener.pSubscribe('rookery:*', (_message: string, channel: string) => {
    if (channel !== 'rookery:bench.test') marks++;
  });
  const total = async (): Promise<{ published: number; commands: number }> => {
    const lines = (await asker.info('commandstats')).matchAll(/^cmdstat_([\w|-]+):calls=(\d+)/gm);
    let [published, commands] = [0, 0];
    for (const [, name, calls] of lines) {
      if (name === 'publish') published += Number(calls);
      if (name !== 'info') commands += Number(calls);
    }
    return { published, commands };
  };
  let before = await total();
  return {
    async counted() {
      const now = await total();
      const counts = { published: now.published - before.published, marks, commands: now.commands - before.commands };
      before = now;
      marks = 0;
      return counts;
    },
    close: () => {
      listener.destroy();
      asker.destroy();
    },
  };
}

const busyBefore = loadavg()[0] ?? 0;
for (const count of counts) await measure(count);
console.log(`\nLoad of the machine before: ${busyBefore.toFixed(1)}, now: ${(loadavg()[0] ?? 0).toFixed(1)}`);
table('CPU of all processes, ms each, requests at any process', [
  ['processes', 'send', 'join', 'sync', 'inbound event'],
  ...rows.cpu,
]);
table(
  `A send by way of a process that passes it on: CPU ms of all processes, ${lanes} at a time and one after the other`,
  [
    [
      ...['processes', 'direct', 'passed on', 'more', 'PostgreSQL, direct', 'passed on'],
      ...['alone, direct', 'passed on', 'more', 'p50 ms direct', 'passed on', 'more'],
    ],
    ...rows.way,
  ],
);
table(`From a send to each of ${readers} readers, ms`, [['processes', 'p50', 'p95'], ...rows.readers]);
table('On the bus for each event, by the count of Redis: readers at each process, and all of them at two', [
  ['processes', 'announcements', 'marks', 'announcements', 'marks'],
  ...rows.bus,
]);
table(`Nothing to do, for ${idleMs / 1000} s`, [
  [
    'processes',
    'CPU of a core, each',
    'MiB of the largest, all and its share: new',
    'used',
    'messages on the bus',
    'commands of each to Redis, a second',
    'transactions of each, a second',
  ],
  ...rows.idle,
]);
other.close();
await rm(folder, { recursive: true, force: true });
process.exit(0);
