import { type Database, databaseMigrations, type Db, type SqlValue, type Tx } from '@rookery/database';
import { stateKeyOf } from '@rookery/state-res';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { roomsMigrations } from '../migrations/index.js';
import { selectCurrentState, selectStateDeltas, type StateRow } from './room-state.query.js';
import type { StateFilter } from './state-filter.js';
import { selectStates } from './state-groups.query.js';
import { currentPages, readCurrentEntries, readCurrentState, readStateDeltas, readStates } from './state-pages.js';

const room = '!large:a';
const count = 9_000;
/** Members stand in the middle of other types. */
const types = ['a.type', 'm.room.member', 'z.type'];
const keyOf = (n: number): string => `@u${String(n % 3_000).padStart(5, '0')}:a`;
const typeOf = (n: number): string => types[Math.floor(n / 3_000)]!;

/** A database that notes how many rows are read in a turn of the event loop, and does something before a query. */
class WatchedDb implements Db {
  readonly rowsPerTurn: number[] = [];
  readonly dialect;
  #turn = 0;
  #seenTurn = -1;

  constructor(
    private readonly database: Database,
    private readonly before: (query: number) => Promise<void> = async () => undefined,
  ) {
    this.dialect = database.dialect;
    const count = (): void => {
      this.#turn++;
      this.#timer = setImmediate(count);
    };
    this.#timer = setImmediate(count);
  }
  #timer: NodeJS.Immediate;
  #queries = 0;

  async query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    await this.before(this.#queries++);
    const rows = await this.database.query<Row>(sql, params);
    if (this.#seenTurn === this.#turn) this.rowsPerTurn[this.rowsPerTurn.length - 1]! += rows.length;
    else this.rowsPerTurn.push(rows.length);
    this.#seenTurn = this.#turn;
    return rows;
  }
  get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return this.database.get<Row>(sql, params);
  }
  stop(): void {
    clearImmediate(this.#timer);
  }
}

const textsOf = (rows: readonly object[]): string[] => rows.map((row) => JSON.stringify(row)).sort();

const filters: readonly (readonly [string, StateFilter | undefined])[] = [
  ['all of it', undefined],
  ['no members', { withoutMembers: true }],
  ['some members, and all else', { members: [keyOf(7), keyOf(2_999), '@nobody:a'] }],
  ['one type', { types: [['m.room.member']] }],
  ['all of two types, and an entry', { types: [['a.type'], ['m.room.member'], ['z.type', keyOf(5)]] }],
  ['few entries', { types: [['m.room.member', keyOf(1)]] }],
  ['all of a type, and entries of others', { types: [['a.type'], ['m.room.member', keyOf(5)], ['z.type', keyOf(5)]] }],
  [
    'many entries of two types',
    {
      types: Array.from({ length: 400 }, (_, n) => [n % 2 === 0 ? 'm.room.member' : 'z.type', keyOf(n * 7)] as const),
    },
  ],
  ['some members, of some types', { types: [['a.type', keyOf(1)], ['m.room.member']], members: [keyOf(7)] }],
  ['no members, of some types', { types: [['a.type', keyOf(1)], ['m.room.member']], withoutMembers: true }],
  ['nothing', { types: [] }],
];

eachDatabase('states that are read in pages', (open) => {
  let test: TestDatabase;
  let database: Database;
  let watched: WatchedDb;
  beforeAll(async () => {
    test = await open();
    ({ database } = test);
    await test.migrate([...databaseMigrations, ...roomsMigrations]);
    await database.write(async (tx) => {
      const rows = Array.from({ length: count }, (_, n) => [room, typeOf(n), keyOf(n), `$e${n}`, 'join']);
      const small = [['!small:a', 'a.type', '', '$small', null]];
      const columns = ['room_id', 'type', 'state_key', 'event_id', 'membership'];
      await tx.insertMany('current_state_events', columns, [...rows, ...small]);
      await tx.insertMany(
        'state_groups',
        ['id', 'room_id', 'event_id', 'chain_position'],
        [1, 2, 3].map((id) => [id, room, '$e', id - 1]),
      );
      await tx.insertMany(
        'state_group_edges',
        ['state_group', 'prev_state_group'],
        [
          [2, 1],
          [3, 2],
        ],
      );
      const inGroup = (group: number, n: number, event: string): SqlValue[] => [
        group,
        room,
        typeOf(n),
        keyOf(n),
        event,
      ];
      await tx.insertMany(
        'state_groups_state',
        ['state_group', 'room_id', 'type', 'state_key', 'event_id'],
        [
          ...Array.from({ length: count }, (_, n) => inGroup(1, n, `$e${n}`)),
          ...[1, 3_001, 8_999].map((n) => inGroup(2, n, `$second${n}`)),
          ...[1, 3_002].map((n) => inGroup(3, n, `$third${n}`)),
        ],
      );
    });
  });
  afterAll(() => test.close());
  afterEach(() => watched.stop());

  it('have their changes in pages, too, of which those of one moment stay together', async () => {
    const other = '!changing:a';
    await database.write((tx) =>
      tx.insertMany(
        'current_state_delta_stream',
        ['stream_id', 'room_id', 'type', 'state_key', 'event_id', 'prev_event_id'],
        // Many of a moment, one of a moment, and a moment with more than a page.
        Array.from({ length: 9_000 }, (_, n) => {
          const streamId = n < 5_000 ? Math.floor(n / 50) : n < 5_500 ? n : 5_500;
          return [streamId + 1, other, 'a.type', `key${n}`, n % 7 === 0 ? null : `$e${n}`, null];
        }),
      ),
    );
    watched = new WatchedDb(database);
    for (const [after, upTo] of [
      [0, 10_000],
      [20, 4_000],
      [5_400, 10_000],
      [9_000, 10_000],
    ] as const) {
      const whole = await selectStateDeltas(database, [other, room], after, upTo);
      const read = await readStateDeltas(watched, [other, room], after, upTo);
      expect(read.map(({ streamId }) => streamId)).toEqual(whole.map(({ streamId }) => streamId));
      // Those of one moment have no order.
      expect(textsOf(read)).toEqual(textsOf(whole));
    }
    const many = watched.rowsPerTurn.filter((rows) => rows > 2_000);
    // One moment is one change of the state.
    expect(new Set(many)).toEqual(new Set([3_500]));
  });

  it.each(filters)('are the same as in one piece: %s', async (_what, filter) => {
    watched = new WatchedDb(database);
    const rooms = [room, '!small:a', '!nowhere:a'];
    expect(await readCurrentState(watched, rooms, filter, () => 0)).toEqual(
      await selectCurrentState(database, rooms, filter),
    );
    await nextTurn();
    expect(await readStates(watched, [3, 1, 99], filter)).toEqual(await selectStates(database, [3, 1, 99], filter));
    // Beside entries it is groups that are read, few of them.
    expect(Math.max(...watched.rowsPerTurn)).toBeLessThanOrEqual(4_010);
  });

  it.each(filters.slice(1, -1))('are searched for what is wanted: %s', async (_what, filter) => {
    watched = new WatchedDb(database);
    // What SQLite says it goes by: the whole key, or a part of it that begins with a type.
    if (database.dialect.name !== 'sqlite') return;
    const plans: string[] = [];
    const explaining: Db = {
      dialect: database.dialect,
      get: (sql, params) => database.get(sql, params),
      query: async <Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> => {
        const plan = await database.query<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`, params);
        plans.push(...plan.map(({ detail }) => detail));
        return database.query<Row>(sql, params);
      },
    };
    await selectCurrentState(explaining, [room], filter);
    await selectStates(explaining, [3], filter);
    const found = plans.filter((detail) => /^SEARCH (?:current_state_events|s) /.test(detail));
    expect(found.length).toBeGreaterThanOrEqual(2);
    expect(found.filter((detail) => !/\btype(?:=|<|>)\?/.test(detail))).toEqual([]);
  });

  it('have entries looked up that rooms name, so many in a turn of the event loop', async () => {
    watched = new WatchedDb(database);
    const members = Array.from({ length: 2_500 }, (_, n) => [room, 'm.room.member', keyOf(n)] as const);
    const wanted = [
      ...members,
      ['!small:a', 'a.type', ''],
      [room, 'a.type', 'no key'],
      ['!no:a', 'a.type', ''],
    ] as const;
    const found = await readCurrentEntries(watched, wanted);
    expect([...found.keys()].sort()).toEqual([room, '!small:a']);
    expect(found.get('!small:a')).toEqual(new Map([[stateKeyOf('a.type', ''), '$small']]));
    const all = (await selectCurrentState(database, [room], { types: [['m.room.member']] })).get(room)!;
    expect(found.get(room)).toEqual(new Map([...all].slice(0, 2_500)));
    expect(watched.rowsPerTurn).toEqual([1_000, 1_000, 501]);
    await nextTurn();
    // The same where every room is asked for the same.
    watched.rowsPerTurn.length = 0;
    const types = members.map(([, type, key]) => [type, key] as const);
    expect(await readCurrentState(watched, ['!nowhere:a', room], { types }, () => 0)).toEqual(
      new Map([[room, found.get(room)]]),
    );
    expect(Math.max(...watched.rowsPerTurn)).toBeLessThanOrEqual(1_000);
    expect(await readCurrentEntries(database, [])).toEqual(new Map());
  });

  it('are rows of all of a room', async () => {
    watched = new WatchedDb(database);
    const rows: StateRow[] = [];
    for await (const page of currentPages<StateRow>(watched, room)) rows.push(...page);
    expect(new Set(rows.map(({ event_id: id }) => id)).size).toBe(count);
    expect(rows).toHaveLength(count);
    expect(Math.max(...watched.rowsPerTurn)).toBe(2_000);
  });

  it('are of one moment, whatever is written between two pages', async () => {
    const change = (tx: Tx, n: number, to: string | undefined, at: number): Promise<void> => {
      const [type, key] = [typeOf(n), keyOf(n)];
      return tx
        .run('DELETE FROM current_state_events WHERE room_id = ? AND type = ? AND state_key = ?', [room, type, key])
        .then(async () => {
          const columns = ['room_id', 'type', 'state_key', 'event_id', 'membership'];
          if (to !== undefined) await tx.insertMany('current_state_events', columns, [[room, type, key, to, 'join']]);
          await tx.insertMany(
            'current_state_delta_stream',
            ['stream_id', 'room_id', 'type', 'state_key', 'event_id', 'prev_event_id'],
            [[at, room, type, key, to ?? null, `$e${n}`]],
          );
        });
    };
    // Behind the first page: some of what it told, and some of what others will, is not so any more.
    watched = new WatchedDb(database, async (query) => {
      if (query !== 3) return;
      await database.write(async (tx) => {
        for (const [index, n] of [10, 20, 4_000, 8_500].entries())
          await change(tx, n, n === 20 ? undefined : `$new${n}`, 11 + index);
      });
    });
    const [all, others] = [undefined, { withoutMembers: true }];
    const found = (await readCurrentState(watched, [room], all, () => 10)).get(room)!;
    expect(found).toEqual((await selectCurrentState(database, [room], all)).get(room));
    expect([...found.values()].filter((id) => id.startsWith('$new'))).toHaveLength(3);
    expect(found.size).toBe(count - 1);
    expect(await readCurrentState(database, [room], others, () => 10)).toEqual(
      await selectCurrentState(database, [room], others),
    );
  });

  it('are whole where what they build upon is taken away meanwhile', async () => {
    const before = await selectStates(database, [3], undefined);
    // The second group goes, as unneeded ones do: the third then says what it said.
    watched = new WatchedDb(database, async (query) => {
      if (query !== 3) return;
      await database.write(async (tx) => {
        await tx.run(`INSERT INTO state_groups_state (state_group, room_id, type, state_key, event_id)
          SELECT 3, room_id, type, state_key, event_id FROM state_groups_state s WHERE state_group = 2 AND NOT EXISTS
            (SELECT 1 FROM state_groups_state o WHERE o.state_group = 3 AND o.type = s.type AND o.state_key = s.state_key)`);
        await tx.run('UPDATE state_group_edges SET prev_state_group = 1 WHERE state_group = 3');
        for (const [table, column] of [
          ['state_group_edges', 'state_group'],
          ['state_groups_state', 'state_group'],
          ['state_groups', 'id'],
        ])
          await tx.run(`DELETE FROM ${table} WHERE ${column} = 2`);
      });
    });
    expect(await readStates(watched, [3])).toEqual(before);
    expect(await selectStates(database, [3], undefined)).toEqual(before);
  });
});
