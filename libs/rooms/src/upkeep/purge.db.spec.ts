import { databaseMigrations, type DataStores, type Tx } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { roomsMigrations } from '../migrations/index.js';
import type { EventPersister } from '../pipeline/event-persister.js';
import type { StateGroups } from '../state/state-groups-cache.js';
import type { RoomIds } from '../store/room-ids.js';
import { GroupRemoval } from './group-removal.js';
import {
  deleteEvents,
  deleteSomeGroups,
  deleteSomeState,
  type PurgeBefore,
  selectPurgeable,
  selectPurgePlace,
  setAside,
} from './purge.query.js';

const roomId = '!large:a.test';
const limit = 40;

eachDatabase('the state of a room that is deleted', (open) => {
  let test: TestDatabase;

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
  });
  afterAll(() => test.close());

  const count = async (table: string, of = roomId): Promise<number> => {
    const row = await test.database.get<{ count: number }>(`SELECT COUNT(*) AS count FROM ${table} WHERE room_id = ?`, [
      of,
    ]);
    return Number(row?.count);
  };
  /** Rows before each step and after the last, by table. */
  const stepsOf = async (tables: readonly string[], step: (tx: Tx) => Promise<boolean>): Promise<number[][]> => {
    const counts: number[][] = [await Promise.all(tables.map((table) => count(table)))];
    for (let isAnyLeft = true; isAnyLeft;) {
      isAnyLeft = await test.database.write((tx) => step(tx));
      counts.push(await Promise.all(tables.map((table) => count(table))));
    }
    return counts;
  };
  const most = (counts: readonly number[][], column: number): number =>
    Math.max(...counts.slice(1).map((row, step) => counts[step]![column]! - row[column]!));

  it('goes a few rows at a time, however many one group has', async () => {
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'state_groups',
        ['id', 'room_id', 'event_id'],
        [...[1, 2, 3, 4].map((id) => [id, roomId, '$e']), [5, '!other:a.test', '$e']],
      );
      const rows = (group: number, room: string, size: number): (string | number)[][] =>
        Array.from({ length: size }, (_, n) => [group, room, n % 2 ? 'm.room.member' : 'a', `${n}`, `$${group}-${n}`]);
      const columns = ['state_group', 'room_id', 'type', 'state_key', 'event_id'];
      await tx.insertMany('state_groups_state', columns, rows(1, roomId, 3));
      await tx.insertMany('state_groups_state', columns, rows(2, roomId, 205));
      await tx.insertMany('state_groups_state', columns, rows(3, roomId, 1));
      await tx.insertMany('state_groups_state', columns, rows(5, '!other:a.test', 60));
    });
    const counts = await stepsOf(['state_groups_state', 'state_groups'], (tx) =>
      deleteSomeGroups(tx, roomId, 4, limit),
    );
    expect(counts[0]).toEqual([209, 4]);
    expect(counts.at(-1)).toEqual([0, 0]);
    expect(most(counts, 0)).toBe(limit);
    expect([await count('state_groups_state', '!other:a.test'), await count('state_groups', '!other:a.test')]).toEqual([
      60, 1,
    ]);
  });

  it('is looked for a part at a time where some of it is in use, the newest first', async () => {
    const room = '!used:a.test';
    const ids = Array.from({ length: 1_000 }, (_, n) => 10_000 + n);
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'state_groups',
        ['id', 'room_id', 'event_id'],
        ids.map((id) => [id, room, '$e']),
      );
      // The upper half is of no use, and rests on what lies before it, each on one of the lower half.
      await tx.insertMany(
        'state_group_edges',
        ['state_group', 'prev_state_group'],
        ids.slice(500).map((id) => [id, id - 500]),
      );
      await tx.insertMany(
        'event_to_state_groups',
        ['event_id', 'state_group'],
        ids.slice(0, 400).map((id) => [`$in-use-${id}`, id]),
      );
    });
    const query = jest.spyOn(test.database, 'query');
    const stores = { main: test.database, state: test.database, isSplit: false };
    const persister = { exclusively: (_: string, work: () => Promise<unknown>) => work() };
    const removal = new GroupRemoval(
      stores as unknown as DataStores,
      persister as unknown as EventPersister,
      { forget: () => undefined } as unknown as StateGroups,
      {} as RoomIds,
    );
    expect(await removal.collect(room)).toBe(600);
    const looks = query.mock.calls.filter(([sql]) => sql.includes('AS size')).map(([, params]) => params?.[0]);
    query.mockRestore();
    expect(Math.max(...looks.map((groups) => (Array.isArray(groups) ? groups.length : Infinity)))).toBeLessThan(201);
    expect(await count('state_groups', room)).toBe(400);
  });

  it('goes from what counts now and from how it came to be so', async () => {
    await test.database.write(async (tx) => {
      const entries = Array.from({ length: 130 }, (_, n) => [roomId, n % 2 ? 'm.room.member' : 'a', `${n}`, `$${n}`]);
      const columns = ['room_id', 'type', 'state_key', 'event_id'];
      await tx.insertMany('current_state_events', columns, entries);
      await tx.insertMany('current_state_events', columns, [['!other:a.test', 'a', '', '$other']]);
      await tx.insertMany(
        'current_state_delta_stream',
        [...columns, 'stream_id'],
        // Many of one position, as where a room was joined that has them.
        entries.map((entry, n) => [...entry, n > 20 && n < 125 ? 20 : n]),
      );
      await tx.insertMany(
        'current_state_delta_stream',
        [...columns, 'stream_id'],
        [['!other:a.test', 'a', '', '$o', 200]],
      );
    });
    const counts = await stepsOf(['current_state_events', 'current_state_delta_stream'], (tx) =>
      deleteSomeState(tx, roomId, limit),
    );
    expect(counts[0]).toEqual([130, 130]);
    expect(counts.at(-1)).toEqual([0, 0]);
    expect([most(counts, 0), most(counts, 1)]).toEqual([limit, limit]);
    expect(await count('current_state_events', '!other:a.test')).toBe(1);
    expect(await count('current_state_delta_stream', '!other:a.test')).toBe(1);
  });
});

eachDatabase('the history of a room that is purged', (open) => {
  let test: TestDatabase;

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
  });
  afterAll(() => test.close());

  const columns = ['event_id', 'room_id', 'type', 'sender', 'state_key', 'topological_ordering', 'depth', 'outlier'];
  /** One event at each position, with its id. */
  const store = (
    room: string,
    positions: readonly number[],
    of: (position: number) => { key?: string; sender?: string; outlier?: boolean; ts?: number },
  ): Promise<void> =>
    test.database.write((tx) =>
      tx.insertMany(
        'events',
        [...columns, 'stream_ordering', 'origin_server_ts', 'received_ts'],
        positions.map((position) => {
          const { key = null, sender = '@u:far.test', outlier = false, ts = position } = of(position);
          const depth = Math.abs(position);
          return [...[`$${room}${position}`, room, 't', sender, key], ...[depth, depth, outlier, position, ts, ts]];
        }),
      ),
    );
  const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1);

  it('is taken out of a thread once, whoever else takes it out at the same time', async () => {
    const room = '!threads:a.test';
    const positions = upTo(3).map((n) => 100_000 + n);
    await store(room, positions, () => ({}));
    const [first, ...others] = positions.map((position) => `$${room}${position}`);
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'event_relations',
        ['event_id', 'relates_to_id', 'relation_type', 'topological_ordering', 'stream_ordering'],
        positions.map((position) => [`$${room}${position}`, '$root', 'm.thread', position, position]),
      );
      const place = ['room_id', 'thread_id', 'latest_event_id', 'topological_ordering', 'stream_ordering'];
      const last = [room, '$root', others.at(-1)!, 100_003, 100_003];
      await tx.insertMany('threads', place, [last]);
      await tx.insertMany('thread_repliers', [...place, 'user_id', 'replies'], [[...last, '@u:far.test', 3]]);
    });
    const begun = Promise.withResolvers<void>();
    const one = test.database.write(async (tx) => {
      await setAside(tx, room, [first!]);
      begun.resolve();
      if (tx.dialect.name === 'sqlite') return;
      const waiting = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`;
      while ((await test.database.query(waiting)).length === 0);
    });
    await begun.promise;
    await test.database.write((tx) => deleteEvents(tx, room, [first!]));
    await one;
    const repliers = 'SELECT replies FROM thread_repliers WHERE room_id = ?';
    expect(await test.database.query(repliers, [room])).toEqual([{ replies: 2 }]);
  });

  it('looks at each event once, whatever of it stays', async () => {
    const room = '!mixed:a.test';
    await store(room, upTo(100), (n) => ({
      ...(n % 2 === 0 && { key: `${n}` }),
      ...(n % 5 === 0 && { sender: '@u:a.test' }),
      outlier: n === 5,
    }));
    await test.database.write((tx) =>
      tx.insertMany('event_forward_extremities', ['room_id', 'event_id'], [[room, `$${room}7`]]),
    );
    for (const before of [{ stream: 91 }, { topological: 91, stream: 91 }]) {
      const point = { roomId: room, before, includeLocal: false, serverName: 'a.test' };
      const found = { deleted: [] as string[], setAside: [] as string[] };
      const places: number[] = [];
      for (let behind: PurgeBefore | undefined; ;) {
        const part = await selectPurgeable(test.database, point, behind, 40);
        if (!part) break;
        found.deleted.push(...part.deleted);
        found.setAside.push(...part.setAside);
        places.push((behind = part.last).stream);
      }
      expect(places).toEqual([40, 80, 90]);
      const odd = upTo(90).filter((n) => n % 2 === 1 && n !== 7);
      expect(found.deleted).toEqual(odd.filter((n) => n % 5 !== 0).map((n) => `$${room}${n}`));
      expect(found.setAside).toEqual(odd.filter((n) => n % 5 === 0 && n !== 5).map((n) => `$${room}${n}`));
      const all = await selectPurgeable(test.database, { ...point, includeLocal: true }, undefined, 1_000);
      expect(all).toMatchObject({ deleted: odd.map((n) => `$${room}${n}`), setAside: [] });
    }
  });

  it('ends at the newest event that was there at a time', async () => {
    const room = '!old:a.test';
    // News from 1000 on, with state of a room that was joined among it, and history that was fetched later.
    await store(
      room,
      upTo(300).map((n) => 1_000 + 3 * n),
      (n) => ({ ts: 1_000 + Math.floor((n - 1_000) / 9), outlier: n > 1_300 && n < 1_400 }),
    );
    await store(room, [-1, -2, -3], (n) => ({ ts: 2_000 - n }));
    const at = (ts: number): Promise<PurgeBefore | undefined> => selectPurgePlace(test.database, room, ts);
    expect(await at(999)).toBeUndefined();
    expect(await at(1_000)).toEqual({ stream: 1_007 });
    expect(await at(1_020)).toEqual({ stream: 1_187 });
    expect(await at(1_040)).toEqual({ stream: 1_301 });
    expect(await at(5_000)).toEqual({ stream: 1_901 });
    // Far more that is younger than is looked at first.
    const busy = '!busy:a.test';
    await store(
      busy,
      upTo(4_000).map((n) => 10_000 + 2 * n),
      () => ({}),
    );
    for (const ts of [10_002, 10_003, 11_234, 15_998, 16_001, 16_002, 18_000])
      expect(await selectPurgePlace(test.database, busy, ts)).toEqual({ stream: ts - (ts % 2) + 1 });
    expect(await selectPurgePlace(test.database, busy, 10_001)).toBeUndefined();
    const fetched = '!fetched:a.test';
    await store(fetched, [-10, -11], (n) => ({ ts: 2_000 - n }));
    expect(await selectPurgePlace(test.database, fetched, 2_005)).toBeUndefined();
    expect(await selectPurgePlace(test.database, fetched, 2_010)).toEqual({ stream: -9 });
    expect(await selectPurgePlace(test.database, '!none:a.test', 5_000)).toBeUndefined();
  });

  it('is deleted by what lies there, however much there is of other rooms', async () => {
    const scans = await scansOf(test.database, async (db) => {
      await deleteEvents(db, '!a:b', ['$a']);
      await setAside(db, '!a:b', ['$a']);
      const point = { roomId: '!a:b', before: { stream: 5 }, includeLocal: false, serverName: 'a.test' };
      await selectPurgeable(db, point, { stream: 1 }, 10);
      await selectPurgeable(db, { ...point, before: { topological: 5, stream: 5 } }, { topological: 1, stream: 1 }, 10);
      await selectPurgePlace(db, '!a:b', 5);
    });
    // The end of the room itself.
    expect(scans.filter((scan) => scan !== 'SCAN newest')).toEqual([]);
  });
});
