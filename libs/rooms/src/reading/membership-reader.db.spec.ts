import { databaseMigrations, type SqlValue } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, type RoomsFixture } from '../rooms.fixture.js';
import { MembershipReader } from './membership-reader.js';

const me = '@me:example.org';
const small = Array.from({ length: 40 }, (_, n) => `!small${n}:far.test`);
const large = '!large:far.test';
const members = Array.from({ length: 2_500 }, (_, n) => `@u${String(n).padStart(4, '0')}:far.test`);

eachDatabase('who is in which room', (open) => {
  let test: TestDatabase;
  let rooms: RoomsFixture;
  let reader: MembershipReader;
  const asked: { readonly sql: string; readonly params: readonly SqlValue[]; readonly rows: number }[] = [];

  beforeAll(async () => {
    const clock = new FakeClock();
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    // In the large room two of three are joined, one has left. The small ones have three of these, one of them invited, and the user.
    const inLarge = members.map((userId, n) => [large, userId, n % 3 === 2 ? 'leave' : 'join'] as const);
    const inSmall = small.flatMap((roomId, n) => [
      [roomId, me, 'join'] as const,
      ...members.slice(3 * n, 3 * n + 3).map((userId, at) => [roomId, userId, at === 0 ? 'invite' : 'join'] as const),
    ]);
    await test.database.write(async (tx) => {
      await tx.insertMany(
        'current_state_events',
        ['event_id', 'room_id', 'type', 'state_key', 'membership'],
        [...inLarge, ...inSmall].map(([roomId, userId, membership]) => [
          `$${roomId}${userId}`,
          roomId,
          'm.room.member',
          userId,
          membership,
        ]),
      );
      await tx.insertMany(
        'room_stats_current',
        ['room_id', 'current_state_events'],
        [[large, members.length], ...small.slice(1).map((roomId) => [roomId, 4])],
      );
    });
    rooms = await buildRooms({ database: test.database, clock });
    reader = rooms.get(MembershipReader);
    const { database } = test;
    const query = database.query.bind(database);
    database.query = async <Row>(sql: string, params: readonly SqlValue[] = []): Promise<Row[]> => {
      const rows = await query<Row>(sql, params);
      asked.push({ sql, params, rows: rows.length });
      return rows;
    };
  });
  afterAll(() => rooms.close());
  beforeEach(() => asked.splice(0));

  it('is read of a large room in parts, and of small ones together', async () => {
    const found = await reader.userIdsIn([...small, large, '!none:far.test'], ['join', 'invite']);
    expect([...found.get(large)!]).toEqual(members.filter((_, n) => n % 3 !== 2));
    for (const [n, roomId] of small.entries())
      expect([...found.get(roomId)!].toSorted()).toEqual([me, ...members.slice(3 * n, 3 * n + 3)].toSorted());
    expect(found.get('!none:far.test')).toEqual(new Set());
    expect(Math.max(...asked.map(({ rows }) => rows))).toBeLessThanOrEqual(1_000);
    expect(asked.length).toBeLessThanOrEqual(8);
    expect((await reader.joinedUserIds([small[0]!])).get(small[0]!)).toEqual(new Set([me, ...members.slice(1, 3)]));
  });

  it('is asked of some users at a time, each in the rooms that it is in', async () => {
    const near = members.slice(0, 3 * small.length);
    const gone = Array.from({ length: 40 }, (_, n) => `@gone${n}:far.test`);
    expect([...(await reader.inSightOf(me, [...members, ...gone]))].toSorted()).toEqual(near);
    expect([...(await reader.sharing(me, members))].toSorted()).toEqual(near.filter((_, n) => n % 3 !== 0));
    expect(await reader.sharing(me, [])).toEqual(new Set());
    for (const { params } of asked) expect((params[0] as readonly string[]).length).toBeLessThanOrEqual(200);
    if (test.database.dialect.name !== 'sqlite') return;
    for (const { sql, params } of asked.splice(0)) {
      const plan = await test.database.query<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`, params);
      const steps = plan.map(({ detail }) => detail).filter((detail) => /^SEARCH [mo] /.test(detail));
      expect(steps).toEqual([
        expect.stringMatching(/^SEARCH o USING INDEX current_state_events_member \(state_key=\?\)/),
        expect.stringMatching(/^SEARCH m USING PRIMARY KEY \(room_id=\? AND type=\? AND state_key=\?\)/),
      ]);
    }
  });
});
