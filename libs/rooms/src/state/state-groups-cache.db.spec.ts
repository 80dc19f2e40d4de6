import { databaseMigrations } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { splitStateKey } from '@rookery/state-res';
import { eachDatabase, FakeClock, SeededIds, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, type RoomsFixture, stateApart } from '../rooms.fixture.js';
import { StateGroups } from './state-groups-cache.js';
import { selectStates } from './state-groups.query.js';

const roomId = '!groups:example.org';

eachDatabase(
  'states of groups',
  (open) => {
    const clock = new FakeClock();
    let test: TestDatabase;
    let rooms: RoomsFixture;
    beforeAll(async () => {
      test = await open(clock);
      await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
      rooms = await buildRooms({ database: test.database, state: test.state, clock });
    });
    afterAll(() => rooms.close());

    interface Written {
      readonly group: number;
      readonly prev: number | undefined;
      readonly position: number;
      readonly rows: ReadonlyMap<string, string>;
    }
    const write = (groups: readonly Written[]): Promise<void> =>
      test.state.write(async (tx) => {
        await tx.insertMany(
          'state_groups',
          ['id', 'room_id', 'event_id', 'chain_position'],
          groups.map(({ group, position }) => [group, roomId, '', position]),
        );
        await tx.insertMany(
          'state_group_edges',
          ['state_group', 'prev_state_group'],
          groups.flatMap(({ group, prev }) => (prev === undefined ? [] : [[group, prev]])),
        );
        await tx.insertMany(
          'state_groups_state',
          ['state_group', 'room_id', 'type', 'state_key', 'event_id'],
          groups.flatMap(({ group, rows }) =>
            [...rows].map(([key, eventId]) => [group, roomId, ...splitStateKey(key), eventId]),
          ),
        );
      });

    it.each([1, 2, 3])('are as they were written, and differ where they do (seed %s)', async (seed) => {
      const random = new SeededIds(seed);
      const first = seed * 10_000;
      const some = (count: number): Map<string, string> =>
        new Map(
          Array.from({ length: count }, () => {
            const key = `${random.integer(2) === 0 ? '3:a.b' : '5:c.d.e'}${random.integer(1_500)}`;
            return [key, `$${seed}-${random.integer(1_000_000)}`];
          }),
        );
      const written: Written[] = [
        // More than is read at once.
        { group: first, prev: undefined, position: 0, rows: some(3_000) },
        { group: first + 1, prev: undefined, position: 0, rows: some(40) },
      ];
      for (let n = 2; n < 60; n++) {
        const below = written[Math.max(0, written.length - 1 - random.integer(10))]!;
        // Now and then one that is held whole itself, far from where its chain begins.
        const position =
          random.integer(8) === 0 ? (Math.floor(below.position / 4_096) + 1) * 4_096 : below.position + 1;
        written.push({ group: first + n, prev: below.group, position, rows: some(1 + random.integer(4)) });
      }
      await write(written);
      const ids = written.map(({ group }) => group);
      const states = await selectStates(test.state, ids, undefined);
      const groups = rooms.get(StateGroups);
      for (let round = 0; round < 40; round++) {
        if (round % 7 === 0) groups.forget(ids.filter(() => random.integer(2) === 0));
        const wanted = Array.from({ length: 1 + random.integer(4) }, () => ids[random.integer(ids.length)]!);
        const found = await groups.all(wanted);
        const layers = wanted.map((group) => found.get(group)!);
        for (const [index, state] of layers.entries()) {
          const expected = states.get(wanted[index]!)!;
          expect(new Map(await state.whole())).toEqual(expected);
          expect(new Map(state.entries())).toEqual(expected);
          expect(state.size).toBe(expected.size);
          const key = [...expected.keys()][random.integer(expected.size)]!;
          expect([state.get(key), state.get('1:x')]).toEqual([expected.get(key), undefined]);
        }
        const apart = await groups.apart(layers);
        const all = new Set(wanted.flatMap((group) => [...states.get(group)!.keys()]));
        const differing = [...all].filter((key) => new Set(wanted.map((id) => states.get(id)!.get(key))).size > 1);
        expect(differing.filter((key) => !apart.has(key))).toEqual([]);
      }
    });

    it('are nothing where a group does not exist', async () => {
      await expect(rooms.get(StateGroups).all([987_654_321])).rejects.toThrow('There is no state group 987654321');
    });
  },
  stateApart,
);
