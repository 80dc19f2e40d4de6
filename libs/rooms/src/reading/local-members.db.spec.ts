import { databaseMigrations, type SqlValue } from '@rookery/database';
import { eachDatabase } from '@rookery/testing';
import { insertRoomStats, scansOf } from '@rookery/testing/internal';
import { roomsMigrations } from '../migrations/index.js';
import { selectLocalUsersIn } from './local-members.query.js';
import { MembershipReader } from './membership-reader.js';

eachDatabase('users of this server in rooms', (open) => {
  it('are read by themselves, some rooms in a turn of the event loop', async () => {
    const test = await open();
    const { database } = test;
    await test.migrate([...databaseMigrations, ...roomsMigrations]);
    const rooms = Array.from({ length: 5 }, (_, n) => `!r${n}`);
    const member = (roomId: string, name: string): string[] => [`$${roomId}${name}`, roomId, name];
    await database.write(async (tx) => {
      await tx.insertMany(
        'local_current_membership',
        ['event_id', 'room_id', 'user_id', 'membership', 'event_stream_ordering'],
        [
          ...rooms.map((roomId, n) => [...member(roomId, `@u${n % 3}:here`), 'join', 1]),
          [...member('!r0', '@gone:here'), 'leave', 1],
          [...member('!other', '@else:here'), 'join', 1],
        ],
      );
      await insertRoomStats(tx, new Map(rooms.map((roomId, n) => [roomId, n < 2 ? 50_000 : 10])));
    });
    const reader = new MembershipReader(database);
    expect([...(await reader.localUserIds(['!r1', '!nowhere']))]).toEqual(['@u1:here']);
    const asked: (readonly string[])[] = [];
    const query = database.query.bind(database);
    database.query = <Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> => {
      // Members of other servers are in the rooms' state.
      expect(sql).not.toMatch(/current_state_events WHERE|room_memberships/);
      if (sql.includes('local_current_membership')) asked.push(params?.[0] as readonly string[]);
      return query<Row>(sql, params);
    };
    expect([...(await reader.localUserIds(rooms))].sort()).toEqual(['@u0:here', '@u1:here', '@u2:here']);
    expect(asked).toEqual([['!r0'], ['!r1'], ['!r2', '!r3', '!r4']]);
    expect(await scansOf(database, (db) => selectLocalUsersIn(db, rooms))).toEqual([]);
    await test.close();
  });
});
