import { type Database, databaseMigrations, migrate, openDatabase } from '@rookery/database';
import { RequestAuthenticator } from '@rookery/http';
import { SystemClock } from '@rookery/platform';
import { FakeClock, makeTestDatabasePlace, PostgresLine, type TestDatabasePlace } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { ExperimentalFeatures } from '../experimental/experimental-features.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { SessionService } from './session.service.js';

describe('changes of accounts whose commit PostgreSQL does not answer', () => {
  let place: TestDatabasePlace;
  let line: PostgresLine;
  let db: Database;
  let users: UsersFixture;
  let userId: string;
  let token: string;
  let deviceId: string;
  let serial = 0;

  beforeAll(async () => {
    place = await makeTestDatabasePlace('postgres');
    line = await PostgresLine.open();
    const { options } = place;
    if (options.name === 'sqlite3') throw new Error('not PostgreSQL');
    const args = { ...options.args, host: '127.0.0.1', port: line.port, cp_max: 4 };
    db = await openDatabase({ ...options, args }, new SystemClock());
    await migrate(db, [...databaseMigrations, ...usersMigrations]);
    // Nothing is written by itself.
    users = await buildUsers({ database: db, clock: new FakeClock() });
  });
  beforeEach(async () => {
    userId = await users.get(AccountService).register({ localpart: `user${++serial}`, origin: {} });
    const session = await users.get(SessionService).open({ userId });
    ({ accessToken: token, deviceId } = session as typeof session & { deviceId: string });
    await whoIs();
  });
  afterAll(async () => {
    await users.close();
    await db.close();
    line.close();
    await place.remove();
  });

  const whoIs = (): Promise<unknown> =>
    users
      .get(RequestAuthenticator)
      .authenticate(users.request('GET', '/x', undefined, { token }), { auth: 'required' });
  /** The change is made, and its answer lost. */
  const unanswered = async (change: () => Promise<unknown>): Promise<void> => {
    line.breakAt('COMMIT', 'cut behind');
    await expect(change()).rejects.toThrow(/Connection terminated|ECONNRESET/);
  };

  it.each<[string, () => Promise<unknown>]>([
    ['one device', () => users.get(SessionService).closeDevices(userId, [deviceId])],
    ['all sessions', () => users.get(SessionService).closeAll(userId)],
    ['a session by its token', () => users.get(SessionService).closeByToken(token)],
    ['all sessions with a new password', () => users.get(AccountService).setPassword(userId, 'another one', true)],
    ['the account', () => users.get(DeactivationService).deactivate(userId, false, false, {})],
  ])('leave no token behind that works when they end %s', async (_, change) => {
    await expect(whoIs()).resolves.toMatchObject({ userId });
    await unanswered(change);
    await expect(whoIs()).rejects.toMatchObject({ errcode: 'M_UNKNOWN_TOKEN' });
  });

  it('are seen at once', async () => {
    await unanswered(() => users.get(AccountService).setFlags(userId, { locked: true }));
    await expect(whoIs()).rejects.toMatchObject({ errcode: 'M_USER_LOCKED' });
    const features = users.get(ExperimentalFeatures);
    expect(await features.chosenFor(userId)).toEqual(new Map());
    await unanswered(() => features.choose(userId, new Map([['msc3881', true]])));
    expect(await features.chosenFor(userId)).toEqual(new Map([['msc3881', true]]));
  });
});
