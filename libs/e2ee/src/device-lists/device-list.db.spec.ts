import type { SqlValue } from '@rookery/database';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { buildE2ee, type E2eeFixture, fixtureMigrations } from '../e2ee.fixture.js';
import { lastOfNextChanges } from './device-list.query.js';
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

  it('are counted without looking at others', async () => {
    expect(await scansOf(test.database, (db) => lastOfNextChanges(db, 0, 5_000, 10))).toEqual([]);
    expect(await lastOfNextChanges(test.database, 999, 5_000, 10)).toBe(1_027);
    expect(await lastOfNextChanges(test.database, 999, 1_020, 10)).toBeUndefined();
  });
});
