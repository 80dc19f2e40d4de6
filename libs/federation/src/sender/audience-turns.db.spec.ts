import { databaseMigrations, type SqlValue } from '@rookery/database';
import { type FederationClient, federationClientMigrations } from '@rookery/federation-client';
import { Config } from '@rookery/platform';
import { type EventStore, MembershipReader, RoomHooks, roomsMigrations } from '@rookery/rooms';
import { eachDatabase } from '@rookery/testing';
import { insertRoomStats } from '@rookery/testing/internal';
import { federationMigrations } from '../migrations/index.js';
import { RemoteAudience } from './remote-audience.js';

eachDatabase('the servers of many users', (open) => {
  it('are found for some users, and some rooms, in a turn of the event loop', async () => {
    const test = await open();
    const { database } = test;
    await test.migrate([
      ...databaseMigrations,
      ...roomsMigrations,
      ...federationClientMigrations,
      ...federationMigrations,
    ]);
    const users = Array.from({ length: 120 }, (_, n) => `@u${n}:here.test`);
    const rooms = Array.from({ length: 12 }, (_, n) => `!r${n}:here.test`);
    const large = new Set(rooms.slice(0, 9));
    const roomsOf = (n: number): string[] => rooms.filter((_, index) => (n + index) % 3 === 0);
    const serverOf = (roomId: string): string => `s${rooms.indexOf(roomId) % 5}.test`;
    await database.write(async (tx) => {
      await tx.insertMany(
        'local_current_membership',
        ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering'],
        users.flatMap((userId, n) => roomsOf(n).map((roomId) => [roomId, userId, `$${roomId}${userId}`, 'join', 1])),
      );
      await tx.insertMany(
        'current_state_events',
        ['event_id', 'room_id', 'type', 'state_key', 'membership'],
        rooms.flatMap((roomId) => [
          [`$far${roomId}`, roomId, 'm.room.member', `@far:${serverOf(roomId)}`, 'join'],
          [`$here${roomId}`, roomId, 'm.room.member', '@u0:here.test', 'join'],
        ]),
      );
      await tx.insertMany('destinations', ['destination'], [['s0.test']]);
      // Said to be large, so that no two are read together, but for the last ones.
      await insertRoomStats(tx, new Map(rooms.map((roomId) => [roomId, large.has(roomId) ? 6_000 : 2])));
    });
    let turn = 0;
    let timer = setImmediate(function next() {
      turn++;
      timer = setImmediate(next);
    });
    const asked: { readonly turn: number; readonly of: string; readonly ids: readonly string[] }[] = [];
    const query = database.query.bind(database);
    database.query = <Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> => {
      const of = /DISTINCT room_id/.test(sql) ? 'servers' : /SELECT user_id, room_id/.test(sql) ? 'rooms' : '';
      if (of !== '') asked.push({ turn, of, ids: params?.[0] as readonly string[] });
      return query<Row>(sql, params);
    };
    const audience = new RemoteAudience(
      ...([database, Config.fromObject({ server_name: 'here.test' })] as const),
      ...([{ allows: () => true } as unknown as FederationClient, {} as EventStore, new RoomHooks()] as const),
      new MembershipReader(database),
    );
    await audience.onModuleInit();
    const found = await audience.ofUsers(users, new Set([rooms[0]!]));
    clearImmediate(timer);
    for (const [n, userId] of users.entries()) {
      const expected = new Set(roomsOf(n).flatMap((roomId) => (roomId === rooms[0] ? [] : [serverOf(roomId)])));
      expect([userId, found.get(userId)]).toEqual([userId, expected]);
    }
    const lists = (what: string): (readonly string[])[] => asked.filter(({ of }) => of === what).map(({ ids }) => ids);
    expect(lists('rooms').map((ids) => ids.length)).toEqual([50, 50, 20]);
    expect(lists('servers').flat().sort()).toEqual(rooms.slice(1).sort());
    for (const ids of lists('servers')) expect(ids.filter((id) => large.has(id)).length).toBeLessThanOrEqual(1);
    expect(new Set(asked.map((each) => each.turn)).size).toBeGreaterThanOrEqual(10);
    await test.close();
  });
});
