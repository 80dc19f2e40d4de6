import type { SqlValue } from '@rookery/database';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { buildE2ee, type E2eeFixture, fixtureMigrations } from '../e2ee.fixture.js';
import { deleteFormerChanges, lastOfNextChanges, localUsersSharing, usersSignedBy } from './device-list.query.js';
import { DeviceListService } from './device-list.service.js';

const changes = 3_500;

eachDatabase('changes of devices', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: E2eeFixture;
  let alice: string;
  let roomId: string;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    const making = await buildE2ee({ database: test.database, clock });
    alice = await making.user('alice', 'PHONE');
    roomId = await making.room(alice);
    // Every tenth of those whose devices changed is in the room.
    const users = Array.from({ length: changes }, (_, n) => `@u${n}:far.test`);
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'device_lists_stream',
        ['stream_id', 'user_id', 'device_id'],
        users.map((userId, n) => [1_000 + 3 * n, userId, 'D']),
      );
      await tx.insertMany(
        'current_state_events',
        ['event_id', 'room_id', 'type', 'state_key', 'membership'],
        users.filter((_, n) => n % 10 === 0).map((userId) => [`$${userId}`, roomId, 'm.room.member', userId, 'join']),
      );
    });
    // With nothing in memory.
    fixture = await buildE2ee({ database: test.database, clock });
  });
  afterAll(() => fixture.close());

  it('are told to a client that was away for long, of some of them at a time', async () => {
    const { database } = test;
    const asked: (readonly SqlValue[])[] = [];
    const query = database.query.bind(database);
    database.query = <Row>(sql: string, params: readonly SqlValue[] = []): Promise<Row[]> => {
      if (sql.includes('FROM device_lists_stream s')) asked.push(params);
      return query<Row>(sql, params);
    };
    const lists = fixture.get(DeviceListService);
    const joinedRooms = new Set([roomId]);
    const upTo = { deviceLists: 999 + 3 * changes, events: 0 };
    const news = await lists.changes({ userId: alice, joinedRooms, after: { deviceLists: 999, events: 0 }, upTo });
    database.query = query;
    const expected = Array.from({ length: changes / 10 }, (_, n) => `@u${10 * n}:far.test`);
    expect(news.changed.toSorted()).toEqual(expected.toSorted());
    expect(asked).toHaveLength(4);
    for (const [after, last] of asked) expect((Number(last) - Number(after)) / 3).toBeLessThanOrEqual(1_001);
    const late = { deviceLists: upTo.deviceLists - 900, events: 0 };
    const { changed } = await lists.changes({ userId: alice, joinedRooms, after: late, upTo });
    expect(changed).toHaveLength(30);
  });

  it('are forgotten where another device of their user changed later', async () => {
    const lists = fixture.get(DeviceListService);
    const base = 100_000;
    const rows = Array.from({ length: 2_500 }, (_, n) => [
      base + n,
      n < 2_000 ? '@many:far.test' : `@m${n}:far.test`,
      `D${n}`,
    ]);
    // Of whom the later change is not settled yet.
    rows.push([base + 3_000, '@few:far.test', 'A'], [base + 3_002, '@few:far.test', 'B']);
    await test.database.write((tx) =>
      tx.insertMany('device_lists_stream', ['stream_id', 'user_id', 'device_id'], rows),
    );
    const upTo = base + 3_001;
    let steps = 0;
    for (let after = 0; after < upTo; steps++) after = await lists.forgetFormer(after, upTo);
    expect(steps).toBeGreaterThan(5);
    const left = await test.database.query<{ user_id: string; device_id: string }>(
      'SELECT user_id, device_id FROM device_lists_stream WHERE stream_id >= ? ORDER BY stream_id',
      [base],
    );
    expect(left).toHaveLength(1 + 500 + 2);
    expect(left[0]).toEqual({ user_id: '@many:far.test', device_id: 'D1999' });
    expect(left.slice(-2).map(({ device_id: deviceId }) => deviceId)).toEqual(['A', 'B']);
    const all = await test.database.get<{ count: number }>(
      'SELECT COUNT(*) AS count FROM device_lists_stream WHERE stream_id < ?',
      [base],
    );
    expect(Number(all?.count)).toBeGreaterThanOrEqual(changes);
    // What lies between the positions is gone through, and nothing else.
    const scans = await scansOf(test.database, (tx) => deleteFormerChanges(tx, 0, 1));
    expect(scans.filter((scan) => scan !== 'SCAN n')).toEqual([]);
  });

  it('concern those in any room of their users, which are read some at a time', async () => {
    const { database } = test;
    const local = (n: number): string => `@local${String(n).padStart(4, '0')}:example.org`;
    const movers = Array.from({ length: 120 }, (_, n) => `@mover${n}:far.test`);
    // Each mover is in four small rooms and in a large one; of each small room others are members, and somebody has left it.
    const small = movers.flatMap((mover, n) =>
      [0, 1, 2, 3].map((at): [room: string, mover: string] => [`!r${4 * n + at}:far.test`, mover]),
    );
    const large = '!large:far.test';
    await database.write(async (tx) => {
      await tx.insertMany(
        'current_state_events',
        ['event_id', 'room_id', 'type', 'state_key', 'membership'],
        [...small, ...movers.map((mover) => [large, mover] as const)].map(([room, mover]) => [
          ...[`$${room}${mover}`, room, 'm.room.member', mover, 'join'],
        ]),
      );
      const members = small.flatMap(([room], n) => [
        ...Array.from({ length: 6 }, (_, at) => [room, local(5 * n + at), 'join'] as const),
        [room, `@gone${n}:example.org`, 'leave'] as const,
      ]);
      for (let n = 0; n < 2_300; n++) members.push([large, local(n + 3_000), 'join']);
      await tx.insertMany(
        'local_current_membership',
        ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering'],
        members.map(([room, userId, membership]) => [room, userId, `$${room}${userId}`, membership, 1]),
      );
      await tx.insertMany(
        'room_stats_current',
        ['room_id', 'local_users_in_room'],
        [...small.map(([room]) => [room, 6]), [large, 2_300]],
      );
    });
    const read: number[] = [];
    const query = database.query.bind(database);
    database.query = async <Row>(sql: string, params: readonly SqlValue[] = []): Promise<Row[]> => {
      const rows = await query<Row>(sql, params);
      read.push(rows.length);
      return rows;
    };
    const lists = fixture.get(DeviceListService);
    const all = await lists.audience(database, movers);
    const asked = read.splice(0);
    const [one] = movers;
    const few = await lists.audience(database, [one!]);
    const none = await lists.audience(database, ['@nobody:far.test']);
    database.query = query;
    const inLarge = Array.from({ length: 2_300 }, (_, n) => local(n + 3_000));
    const everybody = [...Array.from({ length: 2_401 }, (_, n) => local(n)), ...inLarge, ...movers];
    expect([...all].toSorted()).toEqual(everybody.toSorted());
    expect(Math.max(...asked)).toBeLessThanOrEqual(1_000);
    expect(asked.length).toBeLessThanOrEqual(15);
    const near = Array.from({ length: 21 }, (_, n) => local(n));
    expect([...few].toSorted()).toEqual([...inLarge, ...near, one!].toSorted());
    expect(none).toEqual(new Set(['@nobody:far.test']));
    const scans = await scansOf(database, (db) => localUsersSharing(db, movers));
    expect(scans).toEqual([]);
  });

  it('of signatures are one for each user whose keys were signed', async () => {
    const lists = fixture.get(DeviceListService);
    const sign = (...users: string[]): Promise<number> =>
      test.database.write((tx) => lists.signed(tx, '@signer:far.test', users), { name: 'test' });
    for (let n = 0; n < 5; n++) await sign('@signer:far.test');
    await sign('@b:far.test');
    const since = await sign('@a:far.test');
    const last = await sign('@b:far.test', '@a:far.test');
    await sign('@c:far.test');
    const rows = (): Promise<{ stream_id: number; user_ids: string }[]> =>
      test.database.query(
        'SELECT stream_id, user_ids FROM user_signature_stream WHERE from_user_id = ? ORDER BY stream_id',
        ['@signer:far.test'],
      );
    expect((await rows()).map((row) => row.user_ids)).toEqual([
      '["@signer:far.test"]',
      '["@a:far.test","@b:far.test"]',
      '["@c:far.test"]',
    ]);
    expect(await usersSignedBy(test.database, '@signer:far.test', since, last)).toEqual(['@a:far.test', '@b:far.test']);
  });

  it('are counted without looking at others', async () => {
    expect(await scansOf(test.database, (db) => lastOfNextChanges(db, 0, 5_000, 10))).toEqual([]);
    expect(await lastOfNextChanges(test.database, 999, 5_000, 10)).toBe(1_027);
    expect(await lastOfNextChanges(test.database, 999, 1_020, 10)).toBeUndefined();
  });
});
