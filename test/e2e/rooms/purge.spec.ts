import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Database as SqlDatabase } from '@rookery/database';
import Database from 'better-sqlite3';
import pg from 'pg';
import { PurgeService, RoomTasks } from '@rookery/rooms';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases, join, leave, ok, outcome, say, setState, type WireEvent } from './rooms-client.js';
import { startAndReach } from './reach.js';

/** What a database takes on disk, and whether a text is anywhere in it. */
interface Disk {
  usedBytes(): Promise<number>;
  holds(text: string): Promise<boolean>;
}

function sqliteDisk(path: string, sql: SqlDatabase): Disk {
  const inside = <T>(fn: (database: Database.Database) => T): T => {
    const database = new Database(path);
    try {
      return fn(database);
    } finally {
      database.close();
    }
  };
  return {
    usedBytes: async () => {
      // What the server does by itself every hour: until then the index for search holds, in parts whose size is a matter of chance, the words
      // of what was taken out of it.
      await sql.write((tx) => tx.run("INSERT INTO event_search (event_search) VALUES ('optimize')"));
      return inside((database) => {
        const read = (name: string): number => Number(database.pragma(name, { simple: true }));
        return (read('page_count') - read('freelist_count')) * read('page_size');
      });
    },
    holds: async (text) => {
      // What the server does by itself every ten minutes.
      while ((await sql.reclaim()) > 0);
      for (const file of [path, `${path}-wal`]) if ((await readFile(file)).includes(text)) return true;
      return false;
    },
  };
}

function postgresDisk(name: string): Disk {
  const inside = async <T extends pg.QueryResultRow>(...statements: string[]): Promise<T[]> => {
    const url = new URL(process.env['ROOKERY_TEST_POSTGRES'] ?? '');
    url.pathname = `/${name}`;
    const client = new pg.Client({ connectionString: url.href });
    await client.connect();
    try {
      let rows: T[] = [];
      for (const statement of statements) ({ rows } = await client.query<T>(statement));
      return rows;
    } finally {
      await client.end();
    }
  };
  const tables = `SELECT c.oid, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind = 'r'`;
  return {
    usedBytes: async () => {
      // What a vacuum, which the database does on its own sooner or later, gives back. Its own tables, which everything
      // needs all the time, stay out of it.
      const names = (await inside<{ relname: string }>(tables)).map((row) => row.relname);
      const [row] = await inside<{ bytes: string }>(
        `VACUUM FULL ${names.join(', ')}`,
        `SELECT SUM(pg_total_relation_size(oid)) AS bytes FROM (${tables}) AS t`,
      );
      return Number(row?.bytes);
    },
    holds: async (text) => {
      const names = (await inside<{ relname: string }>(tables)).map((row) => row.relname);
      const found = names.map((table) => `SELECT 1 AS found FROM ${table} t WHERE t::text LIKE '%${text}%'`);
      return (await inside(found.join(' UNION ALL '))).length > 0;
    },
  };
}

const secret = 'xyzzy-must-not-stay-anywhere';

describe.each(databases)('what is purged leaves the disk (%s)', (database) => {
  let homeserver: TestHomeserver;
  let purge: PurgeService;
  let disk: Disk;
  let alice: TestUser;
  let bob: TestUser;

  beforeAll(async () => {
    ({ homeserver, instance: purge } = await startAndReach(PurgeService, () => createTestHomeserver({ database })));
    const sql = (purge as unknown as { readonly database: SqlDatabase }).database;
    disk =
      database === 'sqlite'
        ? sqliteDisk((await sql.query<{ file: string }>('PRAGMA database_list'))[0]?.file ?? '', sql)
        : postgresDisk((await sql.query<{ name: string }>('SELECT current_database() AS name'))[0]?.name ?? '');
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  /**
   * What is used once it is at most `limitBytes`, or after ten seconds: a vacuum keeps rows that a transaction may still see
   * which began before they were deleted.
   */
  const usedOnceBelow = async (limitBytes: number): Promise<number> => {
    for (let tries = 0; ; tries++) {
      const used = await disk.usedBytes();
      if (used <= limitBytes || tries === 40) return used;
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
  };
  const tasks = (): RoomTasks => (purge as unknown as { readonly tasks: RoomTasks }).tasks;
  /** A room with much in it, all of it told of twice: by messages, and by state. */
  const fullRoom = async (): Promise<{ roomId: string; last: string }> => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    let last = '';
    for (let n = 0; n < 150; n++) {
      last = await say(n % 2 === 0 ? alice : bob, roomId, `${secret} ${n} ${randomBytes(2_250).toString('base64url')}`);
      if (n % 10 === 0) await setState(alice, roomId, 'm.room.topic', { topic: `topic ${n}` });
    }
    return { roomId, last };
  };

  it('history before an event, and the room goes on', async () => {
    const { roomId } = await fullRoom();
    const before = await disk.usedBytes();
    expect(await disk.holds(secret)).toBe(true);
    const kept = await say(alice, roomId, 'from here on');
    await purge.purgeHistory(roomId, { eventId: kept }, true);
    await tasks().settled();
    const after = await usedOnceBelow(before - 150 * 3_000 - 1);
    // 150 messages of 3 KB; what stays is the room itself.
    expect(before - after).toBeGreaterThan(150 * 3_000);
    const { chunk } = await ok<{ chunk: WireEvent[] }>(bob, 'GET', `/rooms/${roomId}/messages?dir=b&limit=500`);
    expect(chunk.flatMap((event) => (event.type === 'm.room.message' ? [event.event_id] : []))).toEqual([kept]);
    const answer = await say(bob, roomId, 'still here');
    expect(outcome(await alice.request('GET', `/rooms/${roomId}/event/${answer}`))).toBe('200');
    expect((await ok<{ topic: string }>(bob, 'GET', `/rooms/${roomId}/state/m.room.topic`)).topic).toBe('topic 140');
    expect((await bob.request('GET', '/sync')).status).toBe(200);
  });

  it('a whole room, with everything that hung on it', async () => {
    const empty = await disk.usedBytes();
    const { roomId, last } = await fullRoom();
    const full = await disk.usedBytes();
    await leave(bob, roomId);
    await leave(alice, roomId);
    await purge.purgeRoom(roomId);
    const after = await usedOnceBelow(empty + (full - empty) * 0.1 - 1);
    expect(full - empty).toBeGreaterThan(150 * 3_000);
    // Pages that are shared with other tables may stay, half empty.
    expect(after - empty).toBeLessThan((full - empty) * 0.1);
    expect(outcome(await alice.request('GET', `/rooms/${roomId}/event/${last}`))).toBe('404 M_NOT_FOUND');
    expect(outcome(await alice.request('GET', `/rooms/${roomId}/state`))).toBe('403 M_FORBIDDEN');
    expect((await ok<{ joined_rooms: string[] }>(alice, 'GET', '/joined_rooms')).joined_rooms).not.toContain(roomId);
    expect((await alice.request('GET', '/sync')).status).toBe(200);
    expect(await disk.holds(secret)).toBe(false);
  });
});
