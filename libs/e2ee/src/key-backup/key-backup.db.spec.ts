import type { SqlValue, Tx } from '@rookery/database';
import { eachDatabase, FakeClock, holdUp, type TestDatabase } from '@rookery/testing';
import { plansOf } from '@rookery/testing/internal';
import { DeactivationService } from '@rookery/users';
import { buildE2ee, type E2eeFixture, fixtureMigrations } from '../e2ee.fixture.js';
import { type BackedUpSession, existingSessions } from './backup.query.js';
import { KeyBackupService } from './key-backup.service.js';

const algorithm = 'm.megolm_backup.v1.curve25519-aes-sha2';
let serial = 0;

eachDatabase('key backups', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: E2eeFixture;
  let backups: KeyBackupService;
  let alice: string;

  const session = (roomId: string, sessionId: string, more: Partial<BackedUpSession> = {}): BackedUpSession => ({
    ...{ roomId, sessionId, firstMessageIndex: 5, forwardedCount: 5, isVerified: false, sessionData: '{"x":1}' },
    ...more,
  });
  const create = () => backups.create(alice, algorithm, { public_key: 'abc' });
  const pagesOf = async (userId: string, version: string, roomId?: string): Promise<(readonly BackedUpSession[])[]> => {
    const pages: (readonly BackedUpSession[])[] = [];
    for await (const page of await backups.pages(userId, version, roomId)) pages.push(page);
    return pages;
  };
  const sessions = async (version: string, roomId?: string): Promise<BackedUpSession[]> =>
    (await pagesOf(alice, version, roomId)).flat();

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildE2ee({ database: test.database, clock });
    backups = fixture.get(KeyBackupService);
  });
  beforeEach(async () => {
    alice = await fixture.user(`alice${++serial}`, 'PHONE');
  });
  afterEach(() => jest.restoreAllMocks());
  afterAll(() => fixture.close());

  it('has versions, of which the newest is current', async () => {
    await expect(backups.find(alice, undefined)).rejects.toMatchObject({ status: 404, errcode: 'M_NOT_FOUND' });
    expect(await create()).toBe('1');
    expect(await create()).toBe('2');
    expect(await backups.find(alice, undefined)).toMatchObject({ version: 2, algorithm, etag: 0, count: 0 });
    expect(await backups.find(alice, '1')).toMatchObject({ version: 1 });
    for (const version of ['3', '0', 'x', '', '1.0', '01'])
      await expect(backups.find(alice, version)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    await backups.delete(alice, '2');
    expect(await backups.find(alice, undefined)).toMatchObject({ version: 1 });
    await expect(backups.find(alice, '2')).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    // Deleting again is fine, and its number is not given twice.
    await backups.delete(alice, '2');
    await expect(backups.delete(alice, '9')).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    expect(await create()).toBe('3');
  });

  it('gives every version of many at once a number of its own', async () => {
    const made = await Promise.all(Array.from({ length: 20 }, () => create()));
    expect(made.map(Number).toSorted((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
  });

  it.each(['it is deleted', 'its account is closed'])('keeps nothing that is being stored while %s', async (end) => {
    const version = await create();
    const isDeleted = end === 'it is deleted';
    const reached = holdUp(test.database, 'key_backup_store', isDeleted ? 'key_backup_delete' : 'deactivate');
    const storing = backups.store(alice, version, [session('!a', 's1')]);
    await reached;
    if (isDeleted) await backups.delete(alice, version);
    else await fixture.get(DeactivationService).deactivate(alice, false, false, {});
    await storing;
    expect(await test.database.query('SELECT session_id FROM e2e_room_keys WHERE user_id = ?', [alice])).toEqual([]);
  });

  it('changes the auth data and never the algorithm', async () => {
    const version = await create();
    await backups.setAuthData(alice, version, algorithm, { public_key: 'def' });
    expect((await backups.find(alice, version)).authData).toBe('{"public_key":"def"}');
    await expect(backups.setAuthData(alice, version, 'other', {})).rejects.toMatchObject({
      errcode: 'M_INVALID_PARAM',
    });
    await expect(backups.setAuthData(alice, '7', algorithm, {})).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
  });

  it('keeps the better session, and changes the etag only then', async () => {
    const version = await create();
    expect(
      await backups.store(alice, version, [session('!a', 's1'), session('!a', 's2'), session('!b', 's1')]),
    ).toEqual({
      etag: '1',
      count: 3,
    });
    const worse = session('!a', 's1', { firstMessageIndex: 6, sessionData: '{"worse":1}' });
    expect(await backups.store(alice, version, [worse])).toEqual({ etag: '1', count: 3 });
    const better = session('!a', 's1', { firstMessageIndex: 9, isVerified: true, sessionData: '{"better":1}' });
    expect(await backups.store(alice, version, [better, session('!c', 's9')])).toEqual({ etag: '2', count: 4 });
    expect(await sessions(version, '!a')).toEqual([better, session('!a', 's2')]);
    expect(await backups.session(alice, version, '!a', 's2')).toEqual(session('!a', 's2'));
    expect(await backups.session(alice, version, '!a', 's9')).toBeUndefined();
    expect(await sessions(version, '!z')).toEqual([]);
    expect(await sessions(version)).toHaveLength(4);
  });

  it('counts right when many clients store at once', async () => {
    const version = await create();
    await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        backups.store(alice, version, [session('!a', 'shared'), session('!a', `own${index}`)]),
      ),
    );
    expect(await backups.find(alice, version)).toMatchObject({ count: 11, etag: 10 });
    expect(await sessions(version)).toHaveLength(11);
  });

  it('stores into the current backup only', async () => {
    await expect(backups.store(alice, '1', [])).rejects.toMatchObject({ status: 404, errcode: 'M_NOT_FOUND' });
    const old = await create();
    await backups.store(alice, old, [session('!a', 's')]);
    const current = await create();
    await expect(backups.store(alice, old, [session('!a', 's')])).rejects.toMatchObject({
      status: 403,
      errcode: 'M_WRONG_ROOM_KEYS_VERSION',
      extra: { current_version: current },
    });
    await expect(backups.store(alice, '17', [])).rejects.toMatchObject({ status: 404 });
    // An older one can be read still.
    expect(await sessions(old)).toHaveLength(1);
  });

  it('deletes one session, a room, everything', async () => {
    const version = await create();
    await backups.store(alice, version, [
      session('!a', 's1'),
      session('!a', 's2'),
      session('!b', 's3'),
      session('!c', 's4'),
    ]);
    expect(await backups.deleteSessions(alice, version, { roomId: '!a', sessionId: 's1' })).toEqual({
      etag: '2',
      count: 3,
    });
    expect(await backups.deleteSessions(alice, version, { roomId: '!a', sessionId: 's1' })).toEqual({
      etag: '2',
      count: 3,
    });
    expect(await backups.deleteSessions(alice, version, { roomId: '!b' })).toEqual({ etag: '3', count: 2 });
    expect(await backups.deleteSessions(alice, version, {})).toEqual({ etag: '4', count: 0 });
    await expect(backups.deleteSessions(alice, '5', {})).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
  });

  it('is read and deleted some sessions at a time, however many there are', async () => {
    const version = await create();
    const many = ['!a', '!b', '!c'].flatMap((roomId) =>
      Array.from({ length: 900 }, (_, index) => session(roomId, `s${String(index).padStart(3, '0')}`)),
    );
    await backups.store(alice, version, many);
    const pages = await pagesOf(alice, version);
    expect(Math.max(...pages.map((page) => page.length))).toBe(50);
    expect(pages.flat()).toEqual(many);
    expect(await sessions(version, '!b')).toEqual(many.slice(900, 1_800));
    expect(await backups.deleteSessions(alice, version, { roomId: '!b' })).toEqual({ etag: '2', count: 1_800 });
    // Each transaction is a change of its own.
    expect(await backups.deleteSessions(alice, version, {})).toEqual({ etag: '4', count: 0 });
    await backups.store(alice, version, many);
    await backups.delete(alice, version);
    expect(await test.database.query('SELECT 1 AS x FROM e2e_room_keys WHERE user_id = ?', [alice])).toEqual([]);
    await expect(backups.find(alice, version)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
  });

  it('is gone from the first moment of its deletion, and loses the rest of its keys when that is asked for again', async () => {
    const before = await create();
    const version = await create();
    await backups.store(
      alice,
      version,
      Array.from({ length: 1_500 }, (_, index) => session('!a', `s${index}`)),
    );
    const { database } = test;
    const { write } = database;
    const left = (): Promise<unknown[]> =>
      database.query('SELECT 1 AS x FROM e2e_room_keys WHERE user_id = ?', [alice]);
    let deletions = 0;
    database.write = <T>(work: (tx: Tx) => Promise<T>, options?: Parameters<typeof write>[1]): Promise<T> =>
      options?.name === 'key_backup_delete_sessions' && ++deletions === 2
        ? Promise.reject(new Error('The server ends'))
        : (write.call(database, work, options) as Promise<T>);
    try {
      await expect(backups.delete(alice, version)).rejects.toThrow('The server ends');
    } finally {
      database.write = write;
    }
    expect(await left()).toHaveLength(500);
    expect(await backups.find(alice, undefined)).toMatchObject({ version: Number(before) });
    await expect(sessions(version)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    await backups.delete(alice, version);
    expect(await left()).toEqual([]);
  });

  it('goes with the account some sessions at a time, also where that was interrupted', async () => {
    const versions = [await create(), await create()];
    const many = Array.from({ length: 1_200 }, (_, n) => session('!a', `s${n}`));
    await backups.store(alice, versions[1]!, many);
    const { database } = test;
    const left = async (): Promise<number> =>
      (await database.query('SELECT 1 AS x FROM e2e_room_keys WHERE user_id = ?', [alice])).length;
    const deleted: number[] = [];
    const write = database.write.bind(database);
    let breaks = true;
    const writing = jest.spyOn(database, 'write').mockImplementation(async (fn, options) => {
      if (options?.name !== 'key_backup_delete_closed') return write(fn, options);
      if (deleted.length === 1 && breaks) throw new Error('The database is away');
      const count = await write(fn, options);
      deleted.push(count as number);
      return count;
    });
    const deactivation = fixture.get(DeactivationService);
    await deactivation.deactivate(alice, false, false, {});
    expect([deleted, await left()]).toEqual([[500], 700]);
    // Nobody can read what is left, and it goes when the server starts again.
    await expect(backups.pages(alice, versions[1]!)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    await expect(backups.find(alice, undefined)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    breaks = false;
    await deactivation.resume();
    writing.mockRestore();
    expect([deleted, await left()]).toEqual([[500, 500, 200], 0]);
    expect(await database.query('SELECT 1 AS x FROM e2e_room_keys_versions WHERE user_id = ?', [alice])).toEqual([]);
  });

  it('is stored some sessions at a time, each looked for by room and id together', async () => {
    const version = await create();
    // As many rooms as sessions, and the ids of one room are those of others, too.
    const many = Array.from({ length: 1_100 }, (_, n) => session(`!${n}`, `s${n % 100}`));
    const other = many.map(({ roomId }, n) => session(roomId, `s${(n + 1) % 100}`));
    const asked: number[] = [];
    const write = test.database.write.bind(test.database);
    const writing = jest.spyOn(test.database, 'write').mockImplementation((fn, options) =>
      write((tx) => {
        const query = tx.query.bind(tx);
        tx.query = <Row>(sql: string, params: readonly SqlValue[] = []): Promise<Row[]> => {
          if (sql.includes('e2e_room_keys k')) asked.push((JSON.parse(params[0] as string) as unknown[]).length);
          return query<Row>(sql, params);
        };
        return fn(tx);
      }, options),
    );
    expect(await backups.store(alice, version, many)).toEqual({ etag: '1', count: 1_100 });
    writing.mockRestore();
    expect(asked).toEqual([500, 500, 100]);
    expect(await backups.store(alice, version, [...many, ...other])).toEqual({ etag: '2', count: 2_200 });
    expect(await backups.store(alice, version, [...many, ...other])).toEqual({ etag: '2', count: 2_200 });
    const found = await existingSessions(test.database, alice, Number(version), [...many, session('!1', 's7')]);
    expect(found.map(({ roomId, sessionId }) => `${roomId} ${sessionId}`).toSorted()).toEqual(
      many.map(({ roomId, sessionId }) => `${roomId} ${sessionId}`).toSorted(),
    );
    const plans = await plansOf(test.database, (db) => existingSessions(db, alice, Number(version), many));
    expect(plans.flat().filter((step) => step.includes('LIST SUBQUERY'))).toEqual([]);
  });

  it("is one user's alone, and goes with the account", async () => {
    const version = await create();
    await backups.store(alice, version, [session('!a', 's1')]);
    const bob = await fixture.user(`bob${serial}`);
    await expect(backups.pages(bob, version)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    await fixture.get(DeactivationService).deactivate(alice, false, false, {});
    expect(await test.database.query('SELECT 1 AS x FROM e2e_room_keys WHERE user_id = ?', [alice])).toEqual([]);
  });
});
