import { databaseMigrations, type Tx } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { roomsMigrations } from '../migrations/index.js';
import { deleteSomeGroups, deleteSomeState } from './purge.query.js';

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
