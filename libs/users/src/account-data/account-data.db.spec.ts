import { databaseMigrations } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Notifier } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import type { Origin } from '../common/account-modules.js';
import { type AccountDataChangedEvent, UserHooks } from '../hooks.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import type { AccountDataRow } from './account-data.query.js';
import { AccountDataService } from './account-data.service.js';
import { FilterStore } from './filter-store.js';

const requester = { isGuest: false, isAdmin: false, shadowBanned: false, suspended: false, locked: false };

const outcome = async (promise: Promise<unknown>): Promise<unknown> => {
  try {
    return await promise;
  } catch (error) {
    if (!MatrixError.is(error)) throw error;
    return { status: error.status, errcode: error.errcode };
  }
};

eachDatabase('account data', (open) => {
  const clock = new FakeClock();
  const alice = '@alice:example.org';
  const room = '!room:example.org';
  let test: TestDatabase;
  let users: UsersFixture;
  let data: AccountDataService;
  const told: AccountDataChangedEvent[] = [];

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await buildUsers({ database: test.database, clock });
    data = users.get(AccountDataService);
    users.get(UserHooks).accountDataChanged.subscribe({ afterCommit: async (event) => void told.push(event) });
  });
  afterAll(() => users.close());
  beforeEach(() => void told.splice(0));

  it('keeps what clients put there, apart by user, room and type', async () => {
    await data.setByClient(alice, undefined, 'org.example.a', { x: [1, { y: '\0' }] }, {});
    await data.setByClient(alice, room, 'org.example.a', { room: true }, {});
    expect(await data.find(alice, undefined, 'org.example.a')).toEqual({ x: [1, { y: '\0' }] });
    expect(await data.find(alice, room, 'org.example.a')).toEqual({ room: true });
    expect(await data.find('@bob:example.org', undefined, 'org.example.a')).toBeUndefined();
    expect(told.map(({ type, roomId }) => [type, roomId])).toEqual([
      ['org.example.a', undefined],
      ['org.example.a', room],
    ]);
  });

  it('changes a piece by what it is: of several at a time none undoes another', async () => {
    const type = 'org.example.list';
    const add = (n: number): Promise<void> => data.change(alice, type, (before) => ({ ...before, [n]: true }), {});
    await Promise.all(Array.from({ length: 10 }, (_, n) => add(n)));
    expect(Object.keys((await data.find(alice, undefined, type)) ?? {})).toHaveLength(10);
    expect(told).toHaveLength(10);
    await data.change(alice, type, (before) => before, {});
    expect(told).toHaveLength(10);
    const large = { large: 'x'.repeat(1_100_000) };
    expect(await outcome(data.change(alice, type, () => large, {}))).toMatchObject({ status: 413 });
  });

  it('numbers changes, says who has news without a query, and wakes whoever waits', async () => {
    const before = data.stream.current();
    expect([data.hasChanged(alice, before), data.hasChanged('@bob:example.org', before)]).toEqual([false, false]);
    const waiting = users.get(Notifier).wait(alice, { timeoutMs: 60_000 });
    await data.setByClient(alice, undefined, 'org.example.news', { n: 1 }, {});
    await data.setByClient(alice, undefined, 'org.example.news', { n: 2 }, {});
    await data.setByClient(alice, room, 'org.example.news', { n: 3 }, {});
    expect(await waiting).toBe('news');
    const now = data.stream.current();
    expect([
      data.hasChanged(alice, before),
      data.hasChanged(alice, now),
      data.hasChanged('@bob:example.org', before),
    ]).toEqual([true, false, false]);
    expect(await data.changes(alice, before, now)).toEqual([
      { type: 'org.example.news', content: '{"n":2}', bytes: 7, streamId: before + 2 },
    ]);
    expect(await data.roomChanges(alice, before, now)).toEqual([
      { roomId: room, type: 'org.example.news', content: '{"n":3}', bytes: 7, streamId: before + 3 },
    ]);
    expect((await data.forRooms(alice, [room, '!other:x'])).map((row) => row.type)).toEqual([
      'org.example.a',
      'org.example.news',
    ]);
  });

  it('goes on behind the last position after a restart', async () => {
    const last = data.stream.current();
    await users.close();
    users = await buildUsers({ database: await test.reopen(), clock });
    data = users.get(AccountDataService);
    users.get(UserHooks).accountDataChanged.subscribe({ afterCommit: async (event) => void told.push(event) });
    expect(data.stream.current()).toBeGreaterThanOrEqual(last);
    await data.setByClient(alice, undefined, 'org.example.later', {}, {});
    expect(told[0]!.streamId).toBeGreaterThan(last);
  });

  it('loses no tag when several are set at once', async () => {
    const tags = Array.from({ length: 12 }, (_, i) => `u.tag${i}`);
    await Promise.all(tags.map((tag, i) => data.setTag(alice, room, tag, { order: i / 12 }, {})));
    expect(Object.keys(await data.tags(alice, room)).sort()).toEqual([...tags].sort());
    await Promise.all(tags.map((tag) => data.setTag(alice, room, tag, undefined, {})));
    expect(await data.tags(alice, room)).toEqual({});
    await data.setTag(alice, room, '__proto__', { order: 1 }, {});
    expect(Object.keys(await data.tags(alice, room))).toEqual(['__proto__']);
  });

  it('content and types that are too long are refused', async () => {
    expect(await outcome(data.setByClient(alice, undefined, 'x', { big: 'x'.repeat(1_100_000) }, {}))).toMatchObject({
      status: 413,
    });
    expect(await outcome(data.setByClient(alice, undefined, 'x'.repeat(256), {}, {}))).toMatchObject({
      errcode: 'M_INVALID_PARAM',
    });
    expect(await outcome(data.setByClient(alice, undefined, 'nul\0', {}, {}))).toMatchObject({
      errcode: 'M_INVALID_PARAM',
    });
    expect(await outcome(data.find(alice, undefined, 'nul\0'))).toMatchObject({ errcode: 'M_INVALID_PARAM' });
    expect(await outcome(data.setTag(alice, room, 'big', { x: 'y'.repeat(5000) }, {}))).toMatchObject({ status: 413 });
    for (const type of ['m.fully_read', 'm.push_rules'])
      expect(await outcome(data.setByClient(alice, room, type, {}, {}))).toEqual({
        status: 405,
        errcode: 'M_BAD_JSON',
      });
    await test.database.write((tx) =>
      tx.insertMany(
        'account_data',
        ['user_id', 'account_data_type', 'stream_id', 'content'],
        Array.from({ length: 2000 }, (_, i) => ['@hoarder:example.org', `t${i}`, 1, '{}']),
      ),
    );
    expect(await outcome(data.setByClient('@hoarder:example.org', undefined, 'one more', {}, {}))).toMatchObject({
      status: 413,
    });
    await data.setByClient('@hoarder:example.org', undefined, 't7', { changed: true }, {});
  });

  it('knows who ignores whom', async () => {
    const ignored = Object.fromEntries(['@troll:else.org', '@spam:else.org', 'rubbish', alice].map((id) => [id, {}]));
    await data.setByClient(alice, undefined, 'm.ignored_user_list', { ignored_users: ignored }, {});
    expect((await data.ignoredBy(alice)).sort()).toEqual(['@spam:else.org', '@troll:else.org']);
    expect(await data.ignorersOf('@troll:else.org', [alice, '@bob:example.org'])).toEqual([alice]);
    await data.setByClient(alice, undefined, 'm.ignored_user_list', { ignored_users: ['wrong shape'] } as never, {});
    expect(await data.ignoredBy(alice)).toEqual([]);
  });

  it('serves types that another lib keeps', async () => {
    data.serve('m.push_rules', async (userId) => ({ of: userId }));
    expect(await data.find(alice, undefined, 'm.push_rules')).toEqual({ of: alice });
    expect(await data.find(alice, room, 'm.push_rules')).toBeUndefined();
  });

  describe('filters', () => {
    it('gives the same filter one id, and gives it back', async () => {
      const filters = users.get(FilterStore);
      const ids = await Promise.all(
        Array.from({ length: 6 }, (_, i) => filters.create(alice, { room: { timeline: { limit: i % 2 } } })),
      );
      expect(new Set(ids).size).toBe(2);
      expect(await filters.get(alice, ids[0]!)).toEqual({ room: { timeline: { limit: 0 } } });
      expect(await filters.create('@bob:example.org', {})).toBe('0');
    });

    it.each(['999', '-1', 'abc', '', '1e3', '99999999999'])('knows no filter %j', async (id) => {
      expect(await outcome(users.get(FilterStore).get(alice, id))).toEqual({ status: 404, errcode: 'M_NOT_FOUND' });
    });

    it('refuses what is no filter', async () => {
      const filters = users.get(FilterStore);
      expect(await outcome(filters.create(alice, { room: { timeline: { types: 'm.room.message' } } }))).toMatchObject({
        status: 400,
        errcode: 'M_BAD_JSON',
      });
      expect(await outcome(filters.create(alice, { room: { rooms: ['x'.repeat(70_000)] } }))).toMatchObject({
        status: 413,
      });
    });
  });
});

eachDatabase('the size of account data', (open) => {
  const full = '@full:example.org';
  const room = '!room:example.org';
  const client: Origin = { requester: { ...requester, userId: full } };
  let test: TestDatabase;
  let users: UsersFixture;
  let data: AccountDataService;

  beforeAll(async () => {
    test = await open();
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    const settings = { max_account_data_size: '100K' };
    users = await buildUsers({ database: test.database, clock: new FakeClock(), settings });
    data = users.get(AccountDataService);
  });
  afterAll(() => users.close());

  const tooLarge = { status: 413, errcode: 'M_TOO_LARGE' };
  const set = (type: string, length: number, roomId?: string): Promise<unknown> =>
    outcome(data.setByClient(full, roomId, type, { text: 'x'.repeat(length) }, client));
  const all = async (): Promise<unknown[]> => [
    ...(await data.changes(full, 0, data.stream.current())),
    ...(await data.roomChanges(full, 0, data.stream.current())),
  ];

  it('has a limit, of the account and of all rooms together, below which everything goes', async () => {
    for (let n = 0; n < 4; n++) expect(await set(`large${n}`, 22_000, n % 2 === 0 ? undefined : room)).toBeUndefined();
    const before = await all();
    for (const roomId of [undefined, room, '!other:example.org'])
      expect(await set('one.more', 22_000, roomId)).toEqual(tooLarge);
    expect(await set('large1', 40_000, room)).toEqual(tooLarge);
    const large = { large: 'x'.repeat(20_000) };
    expect(await outcome(data.change(full, 'm.direct', () => large, client))).toEqual(tooLarge);
    expect(await outcome(data.changeInRoom(full, room, 'm.x', async () => large, client))).toEqual(tooLarge);
    expect(await all()).toEqual(before);
    // What does not grow always goes, as does what the server itself notes.
    expect(await set('large0', 22_000)).toBeUndefined();
    await data.change(full, 'm.direct', () => large, {});
    expect(await set('tiny', 1)).toEqual(tooLarge);
    const tag = (value: object): Promise<unknown> => outcome(data.setTag(full, room, 'u.x', { ...value }, client));
    expect(await tag({ order: 1 })).toEqual(tooLarge);
    expect(await set('large1', 1, room)).toBeUndefined();
    expect(await set('tiny', 1)).toBeUndefined();
    expect(await tag({ order: 1 })).toBeUndefined();
    expect(await set('large1', 22_000, room)).toEqual(tooLarge);
  });

  it('counts small pieces as more than they are, so that there is an end to them', async () => {
    const many = '@many:example.org';
    const put = (n: number): Promise<unknown> =>
      outcome(data.setByClient(many, `!r${n}:example.org`, 'x', {}, { requester: { ...requester, userId: many } }));
    let count = 0;
    while (count < 1_000 && (await put(count)) === undefined) count++;
    expect(count).toBeGreaterThan(150);
    expect(count).toBeLessThan(200);
  });

  it('makes no difference to who reads it', async () => {
    const reader = '@reader:example.org';
    const content = (length: number, n: number): object => ({ n, text: 'ü'.repeat(length) });
    const lengths = [10, 9_000, 8_200, 5, 12_000];
    for (const [n, length] of lengths.entries()) {
      await data.set(reader, undefined, `org.t${n}`, { ...content(length, n) }, {});
      await data.set(reader, n < 3 ? room : '!other:example.org', `org.t${n}`, { ...content(length, n) }, {});
    }
    const read = (rows: readonly AccountDataRow[]): unknown[] =>
      rows.map((row) => [row.type, JSON.parse(row.content), row.bytes - Buffer.byteLength(row.content)]);
    const expected = (...which: number[]): unknown[] => which.map((n) => [`org.t${n}`, content(lengths[n]!, n), 0]);
    const now = data.stream.current();
    expect(read(await data.changes(reader, 0, now))).toEqual(expected(0, 1, 2, 3, 4));
    expect(read(await data.roomChanges(reader, 0, now))).toEqual(expected(0, 1, 2, 3, 4));
    expect(read(await data.forRooms(reader, [room]))).toEqual(expected(0, 1, 2));
    // Only what is wanted is read.
    const some = ['org.t1', 'org.t3', 'org.none'];
    for (const wanted of [some, (type: string) => some.includes(type)]) {
      expect(read(await data.changes(reader, 0, now, wanted))).toEqual(expected(1, 3));
      expect(read(await data.roomChanges(reader, 0, now, wanted))).toEqual(expected(1, 3));
      expect(read(await data.forRooms(reader, [room], wanted))).toEqual(expected(1));
    }
    for (const wanted of [[], () => false]) expect(await data.changes(reader, 0, now, wanted)).toEqual([]);
    const wrong = await data.roomChanges(reader, 0, now, () => false);
    expect([...wrong, ...(await data.forRooms(reader, [room], []))]).toEqual([]);
  });
});
