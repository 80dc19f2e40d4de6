import { databaseMigrations, type Db, type Tx } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms } from '../rooms.fixture.js';
import { TimelineGaps } from '../store/timeline-gaps.js';
import { RoomFactsReader } from './room-facts.js';
import { TimelineReader } from './timeline-reader.js';
import { type PageRange, selectFilteredPlaces, selectLastPlaces, selectPage } from './timeline.query.js';

const roomId = '!large:a.test';
const count = 25_000;
const rare = 2_500;

/** Two events at each depth. @param after the position behind which they arrived */
function insertEvents(tx: Tx, id: string, length: number, after: number, typeOf: (n: number) => string): Promise<void> {
  const columns = ['event_id', 'room_id', 'type', 'sender', 'topological_ordering', 'depth', 'stream_ordering'];
  return tx.insertMany(
    'events',
    [...columns, 'origin_server_ts', 'received_ts'],
    Array.from({ length }, (_, index) => {
      const [n, place] = [index + 1, index + 1 + after];
      const depth = Math.ceil(n / 2);
      return [`$${place}`, id, typeOf(n), '@a:a.test', depth, depth, place, n, n];
    }),
  );
}

eachDatabase('pages of a large room', (open) => {
  let test: TestDatabase;

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    await test.database.write((tx) => tx.insertMany('rooms', ['room_id', 'room_version'], [[roomId, '12']]));
    await test.database.write((tx) => insertEvents(tx, roomId, count, 0, (n) => (n % rare === 0 ? 'rare' : 'usual')));
  });
  afterAll(() => test.close());

  const rangeOf = (direction: 'f' | 'b', limit: number): PageRange => ({
    ...{ direction, limit, arrivedFrom: undefined, arrivedTo: undefined, withSoftFailed: false, stop: undefined },
    start: direction === 'b' ? { topological: count, stream: count } : { topological: 0, stream: 0 },
    filter: { types: ['rare'] },
  });
  /** The events of all pages from a place on, and how many each page has. */
  const walk = async (first: PageRange): Promise<{ found: number[]; sizes: number[] }> => {
    const found: number[] = [];
    const sizes: number[] = [];
    for (let range = first; ;) {
      const { places, lookedUpTo } = await selectPage(test.database, roomId, range);
      found.push(...places.map(({ eventId }) => Number(eventId.slice(1))));
      sizes.push(places.length);
      const last = places.at(-1);
      const isFull = places.length === range.limit;
      if (!isFull && lookedUpTo === undefined) return { found, sizes };
      const step = range.direction === 'b' ? 1 : 0;
      const start = isFull ? { topological: last!.topological, stream: last!.stream - step } : lookedUpTo!;
      range = { ...range, start };
    }
  };
  const all = Array.from({ length: count / rare }, (_, index) => (index + 1) * rare);

  it.each([1, 3, 100])('hold each event once, %i at a time', async (limit) => {
    expect((await walk(rangeOf('b', limit))).found).toEqual(all.toReversed());
    expect((await walk(rangeOf('f', limit))).found).toEqual(all);
  });

  it('end where they have looked at ten thousand events', async () => {
    expect((await walk(rangeOf('b', 100))).sizes).toEqual([4, 4, 2]);
    expect((await walk(rangeOf('f', 100))).sizes).toEqual([4, 4, 2]);
    const none = await selectPage(test.database, roomId, { ...rangeOf('b', 5), filter: { types: ['none'] } });
    expect(none).toEqual({ places: [], lookedUpTo: { topological: 7_500, stream: 15_000 } });
  });

  it('end at the place that is given, and look no further', async () => {
    const stop = { topological: 10_000, stream: 20_000 };
    expect(await walk({ ...rangeOf('b', 100), stop })).toEqual({ found: [25_000, 22_500], sizes: [2] });
    expect(await walk({ ...rangeOf('f', 100), stop })).toEqual({ found: all.slice(0, 8), sizes: [4, 4, 0] });
    const scans = await scansOf(test.database, (db) => selectPage(db, roomId, { ...rangeOf('b', 100), stop }));
    expect(scans).toEqual([]);
  });

  const endOf = async (
    limit: number,
    { after = 0, upTo = count, type = 'rare' } = {},
  ): Promise<{ found: number[]; lookedDownTo: number | undefined }> => {
    const range = { after, upTo, filter: { types: [type] } };
    const { places, lookedDownTo } = await selectFilteredPlaces(test.database, [roomId], range, limit);
    const found = (places.get(roomId) ?? []).map(({ stream }) => stream);
    return { found, lookedDownTo: lookedDownTo.get(roomId) };
  };

  it('have ends of which no more than ten thousand events are looked at for a filter', async () => {
    // One more than was asked for says that there is more.
    expect(await endOf(1)).toEqual({ found: [22_500, 25_000], lookedDownTo: 15_000 });
    expect(await endOf(10)).toEqual({ found: [17_500, 20_000, 22_500, 25_000], lookedDownTo: 15_000 });
    expect(await endOf(10, { type: 'none' })).toEqual({ found: [], lookedDownTo: 15_000 });
    expect(await endOf(10, { upTo: 12_000 })).toEqual({ found: [2_500, 5_000, 7_500, 10_000], lookedDownTo: 2_000 });
    expect(await endOf(2, { after: 22_000 })).toEqual({ found: [22_500, 25_000], lookedDownTo: undefined });
    expect(await endOf(10, { after: 18_000 })).toEqual({ found: [20_000, 22_500, 25_000], lookedDownTo: undefined });
    const scans = await scansOf(test.database, (db) =>
      selectFilteredPlaces(db, [roomId], { after: 0, upTo: count, filter: { types: ['rare'] } }, 3),
    );
    // Of the rooms themselves, of which it is asked.
    expect(scans.filter((scan) => scan !== 'SCAN l')).toEqual([]);
  });

  it('have ends of which fewer are looked at where each is held against many patterns', async () => {
    const patterns = Array.from({ length: 1_000 }, (_, index) => `*${index}*x*y`);
    const filter = { types: [...patterns.slice(1), 'ra*'], notTypes: patterns };
    const range = { after: 0, upTo: count, filter };
    const { places, lookedDownTo } = await selectFilteredPlaces(test.database, [roomId], range, 10);
    expect(places.get(roomId)?.map(({ stream }) => stream)).toEqual([count]);
    expect(lookedDownTo.get(roomId)).toBe(count - 100);
    const page = await selectPage(test.database, roomId, { ...rangeOf('b', 5), filter });
    expect(page.places).toHaveLength(1);
    expect(page.lookedUpTo).toEqual({ topological: 12_450, stream: 24_900 });
  });

  it('have ends that are looked for once, also by a pattern that nothing fits', async () => {
    const startedMs = performance.now();
    expect(await endOf(10, { type: '*none*' })).toEqual({ found: [], lookedDownTo: 15_000 });
    expect(performance.now() - startedMs).toBeLessThan(5_000);
  });

  it('have ends of which a part is read, however much lies before it', async () => {
    const startedMs = performance.now();
    const places = await selectLastPlaces(test.database, [roomId], { after: 0, upTo: count }, 1_000);
    expect(performance.now() - startedMs).toBeLessThan(3_000);
    expect(places.get(roomId)?.map(({ stream }) => stream)).toEqual(
      Array.from({ length: 1_001 }, (_, index) => count - 1_000 + index),
    );
  });

  it('have ends that are looked for in so many rooms at a time as a statement may look at events', async () => {
    const others = Array.from({ length: 1_000 }, (_, index) => `!other${index}:a.test`);
    await test.database.write((tx) =>
      tx.insertMany(
        'rooms',
        ['room_id', 'room_version'],
        others.map((id) => [id, '12']),
      ),
    );
    const asked: number[] = [];
    const db: Db = {
      dialect: test.database.dialect,
      get: (sql, params) => test.database.get(sql, params),
      query: (sql, params) => {
        asked.push(Math.max(...(params ?? []).map((param) => (Array.isArray(param) ? param.length : 0))));
        return test.database.query(sql, params);
      },
    };
    const range = { after: 0, upTo: count, filter: { types: ['rare'] } };
    const { places } = await selectFilteredPlaces(db, [...others, roomId], range, 3);
    expect(places.get(roomId)).toHaveLength(4);
    expect(asked).toEqual([200, 200, 200, 200, 200, 1, 1, 1]);
  });

  it('have ends of which the last hundred events are enough where much of them passes', async () => {
    expect(await endOf(5, { type: 'usual' })).toEqual({
      found: [24_994, 24_995, 24_996, 24_997, 24_998, 24_999],
      lookedDownTo: 24_900,
    });
  });

  it('are said to have more where nobody looked any further for a filter, or where something is missing before that', async () => {
    const rooms = await buildRooms({ database: test.database, clock: new FakeClock() });
    try {
      const endWith = async (type: string, limit: number): Promise<unknown> => {
        const range = { upTo: count, limit, filter: { types: [type] } };
        return (await rooms.get(TimelineReader).latest([roomId], range)).get(roomId);
      };
      const from = (stream: number): object => ({
        events: [],
        limited: true,
        start: { topological: undefined, stream },
      });
      expect(await endWith('none', 10)).toEqual(from(15_000));
      expect(await endWith('rare', 10)).toEqual(from(15_000));
      // There is one before these, too.
      expect(await endWith('rare', 2)).toEqual(from(22_499));
      const gaps = rooms.get(TimelineGaps);
      gaps.note(roomId, [5]);
      expect(await endWith('none', 10)).toEqual(from(15_000));
      gaps.note(roomId, [20_001]);
      expect(await endWith('none', 10)).toEqual(from(20_000));
      expect(await endWith('rare', 10)).toEqual(from(22_499));
    } finally {
      await rooms.close();
    }
  });

  it('are read again by whoever comes after one look for what is missing that failed', async () => {
    const { database } = test;
    const query = database.query.bind(database);
    const rooms = await buildRooms({ database, clock: new FakeClock() });
    try {
      const newest = async (): Promise<unknown> =>
        (await rooms.get(TimelineReader).latest([roomId], { upTo: count, limit: 1 })).get(roomId)?.start?.stream;
      database.query = (sql, params) =>
        sql.includes('timeline_gaps') ? Promise.reject(new Error('away')) : query(sql, params);
      await expect(newest()).rejects.toThrow('away');
      await expect(newest()).rejects.toThrow('away');
      database.query = query;
      expect(await newest()).toBe(count - 1);
    } finally {
      database.query = query;
      await rooms.close();
    }
  });

  it('are looked through for activity as far as that is likely', async () => {
    const rooms = await buildRooms({ database: test.database, clock: new FakeClock() });
    try {
      const activity = async (id = roomId): Promise<number | undefined> =>
        (await rooms.get(RoomFactsReader).of([id])).get(id)?.lastActivity;
      const quiet = '!quiet:a.test';
      await test.database.write(async (tx) => {
        await tx.insertMany('rooms', ['room_id', 'room_version'], [[quiet, '12']]);
        await insertEvents(tx, quiet, 30, count, () => 'usual');
      });
      expect(await activity(quiet)).toBeUndefined();
      const setType = (n: number): Promise<number> =>
        test.database.write((tx) => tx.run("UPDATE events SET type = 'm.room.message' WHERE stream_ordering = ?", [n]));
      await setType(10);
      expect(await activity()).toBe(count - 999);
      await setType(count - 900);
      expect(await activity()).toBe(count - 900);
      await setType(count - 5);
      expect(await activity()).toBe(count - 5);
    } finally {
      await rooms.close();
    }
  });
});
