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
import { createRoom } from './rooms/rooms-client.js';

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
