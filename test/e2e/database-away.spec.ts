import { Database } from '@rookery/database';
import {
  createTestHomeserver,
  eventually,
  makeTestDatabasePlace,
  PostgresLine,
  type TestDatabasePlace,
  type TestHomeserver,
  type TestResponse,
  testPostgresUrl,
  type TestUser,
} from '@rookery/testing';
import { createRoom, databases, outcome } from './rooms/rooms-client.js';

describe('a server whose PostgreSQL is away', () => {
  let place: TestDatabasePlace;
  let line: PostgresLine;
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let roomId: string;
  beforeAll(async () => {
    line = await PostgresLine.open();
    place = await makeTestDatabasePlace('postgres');
    const { options } = place;
    if (options.name === 'sqlite3') throw new Error('not PostgreSQL');
    const { username: user, password } = new URL(testPostgresUrl());
    const args = { ...{ user, password }, ...options.args, host: '127.0.0.1', port: line.port };
    homeserver = await createTestHomeserver({ settings: { database: { name: 'psycopg2', args } } });
    alice = await homeserver.registerUser('alice');
    roomId = await createRoom(alice);
  });
  afterEach(() => line.comeBack());
  afterAll(async () => {
    await homeserver?.stop();
    line?.close();
    await place?.remove();
  });

  const health = async (): Promise<unknown[]> => {
    const { status, body } = await homeserver.request('GET', '/health');
    return [status, body];
  };
  let count = 0;
  const requests: readonly (readonly [string, () => Promise<TestResponse<Record<string, unknown>>>])[] = [
    [
      'login',
      () =>
        homeserver.request('POST', '/login', {
          type: 'm.login.password',
          identifier: { type: 'm.id.user', user: 'alice' },
          password: 'x',
        }),
    ],
    [
      'send',
      () => alice.request('PUT', `/rooms/${roomId}/send/m.room.message/t${count++}`, { msgtype: 'm.text', body: 'x' }),
    ],
    ['account data', () => alice.request('PUT', `/user/${alice.userId}/account_data/org.x${count++}`, { a: 1 })],
    ['an unknown token', () => homeserver.request('GET', '/account/whoami', undefined, 'unknown')],
    ['search', () => alice.request('POST', '/user_directory/search', { search_term: `a${count++}` })],
  ];

  it.each(['silent', 'refusing'] as const)(
    'says so with 503 while it is %s, and works again once it is back',
    async (how) => {
      expect(await health()).toEqual([200, 'OK']);
      line.goDown(how);
      await eventually(async () => (await health())[0] === 503);
      expect(await health()).toEqual([503, 'The database is away']);
      for (const [name, send] of requests) {
        const answer = await send();
        expect([name, answer.status, answer.body['errcode']]).toEqual([name, 503, 'M_UNKNOWN']);
        expect([name, answer.headers.get('retry-after')]).toEqual([name, '5']);
      }
      line.comeBack();
      await eventually(async () => (await health())[0] === 200);
      for (const [name, send] of requests) {
        const { status } = await send();
        expect([name, status]).toEqual([name, name === 'login' ? 403 : name === 'an unknown token' ? 401 : 200]);
      }
    },
  );
});

describe.each(databases)('a server whose disk is full (%s)', (kind) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database: kind });
    alice = await homeserver.registerUser('alice');
  });
  afterAll(() => homeserver?.stop());

  /** Leaves no room for much, as long as `work` takes. */
  const whileFull = async (work: () => Promise<unknown>): Promise<void> => {
    const database = homeserver.server.service(Database);
    const run = (...statements: string[]): Promise<void> =>
      database.write(async (tx) => {
        for (const statement of statements) await tx.exec(statement);
      });
    // As many as there can be.
    let after = 'PRAGMA max_page_count = 4294967294';
    if (kind === 'sqlite') {
      await database.write(async (tx) => {
        const pages = await tx.get<{ page_count: number }>('PRAGMA page_count');
        await tx.query(`PRAGMA max_page_count = ${(pages?.page_count ?? 0) + 2}`);
      });
    } else {
      after = 'DROP TRIGGER full_disk ON account_data';
      await run(
        `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN RAISE EXCEPTION ''could not extend file'' USING ERRCODE = ''53100''; END'`,
        'CREATE TRIGGER full_disk BEFORE INSERT ON account_data FOR EACH ROW EXECUTE FUNCTION full_disk()',
      );
    }
    try {
      await work();
    } finally {
      if (kind === 'sqlite') await database.write((tx) => tx.query(after));
      else await run(after);
    }
  };
  const put = async (type: string, chars: number): Promise<TestResponse<Record<string, unknown>>> =>
    alice.request('PUT', `/user/${alice.userId}/account_data/${type}`, { text: 'x'.repeat(chars) });

  it('says so with 507, and goes on once there is room', async () => {
    await whileFull(async () => {
      let answer = await put('org.example.0', 60_000);
      // What was deleted before may leave room for some.
      for (let i = 1; i < 100 && answer.status === 200; i++) answer = await put(`org.example.${i}`, 60_000);
      expect(outcome(answer)).toBe('507 M_UNKNOWN');
      expect(answer.body['error']).toBe('The server has no room left to store anything');
    });
    expect(outcome(await put('org.example.small', 10))).toBe('200');
    const kept = await alice.request('GET', `/user/${alice.userId}/account_data/org.example.small`);
    expect(kept).toMatchObject({ status: 200, body: { text: 'x'.repeat(10) } });
  });
});
