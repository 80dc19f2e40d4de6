import { databaseMigrations } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { AccountService } from '../accounts/account.service.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { type ProfileChangedEvent, UserHooks } from '../hooks.js';
import { usersMigrations } from '../migrations/users-01.migration.js';
import { buildUsers, type UsersFixture } from '../users.fixture.js';
import { ProfileService } from './profile.service.js';
import { UserPorts } from '../ports.js';

const requester = (userId: string, more: Partial<Requester> = {}): Requester => ({
  userId,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  ...more,
});

eachDatabase('profiles', (open) => {
  const clock = new FakeClock();
  const alice = requester('@alice:example.org');
  let test: TestDatabase;
  let users: UsersFixture;
  let profiles: ProfileService;
  const changes: ProfileChangedEvent[] = [];

  const set = (field: string, value: unknown, who = alice, target = alice.userId) =>
    profiles.setField(who, target, field, value);
  const errcode = async (promise: Promise<unknown>): Promise<string> => {
    const error = await promise.then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    return MatrixError.is(error) ? error.errcode : String(error);
  };

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...usersMigrations]);
    users = await buildUsers({ database: test.database, clock });
    profiles = users.get(ProfileService);
    await users.get(AccountService).register({ localpart: 'alice', origin: {} });
    users.get(UserHooks).profileChanged.subscribe({ afterCommit: async (event) => void changes.push(event) });
  });
  afterAll(() => users.close());
  beforeEach(() => void changes.splice(0));

  it('begins with the localpart as name', async () => {
    expect(await profiles.get(alice.userId)).toEqual({ displayname: 'alice' });
    expect([...(await profiles.getMany([alice.userId, '@nobody:example.org']))]).toEqual([
      [alice.userId, { displayname: 'alice' }],
    ]);
  });

  it('keeps any JSON in fields of their own, and tells what changed', async () => {
    await set('displayname', 'Alice ✨');
    await set('avatar_url', 'mxc://example.org/abc_-1');
    await set('org.example.card', { nested: [1, null, 'x'] });
    await set('org.example.nothing', null);
    expect(await profiles.lookUp(undefined, alice.userId)).toEqual({
      displayname: 'Alice ✨',
      avatar_url: 'mxc://example.org/abc_-1',
      'org.example.card': { nested: [1, null, 'x'] },
      'org.example.nothing': null,
    });
    expect(changes.map((one) => one.fields)).toEqual([
      ['displayname'],
      ['avatar_url'],
      ['org.example.card'],
      ['org.example.nothing'],
    ]);
    expect(changes[0]).toMatchObject({
      before: { displayname: 'alice' },
      after: { displayname: 'Alice ✨' },
      propagate: true,
      byAdmin: false,
    });
    expect(await profiles.lookUp(undefined, alice.userId, 'org.example.card')).toEqual({
      'org.example.card': { nested: [1, null, 'x'] },
    });
  });

  it('says nothing when nothing changes', async () => {
    await set('displayname', 'Alice ✨');
    await set('org.example.missing', undefined);
    expect(changes).toEqual([]);
  });

  it('keeps avatars that are not of the media repository', async () => {
    for (const url of ['https://example.org/a.png', 'mxc://example.org/'])
      expect(await set('avatar_url', url).then(() => profiles.lookUp(undefined, alice.userId, 'avatar_url'))).toEqual({
        avatar_url: url,
      });
    await set('avatar_url', 'mxc://example.org/abc_-1');
    changes.length = 0;
  });

  it('a field that is set to nothing is gone', async () => {
    await set('org.example.card', undefined);
    await set('avatar_url', '');
    expect(await errcode(profiles.lookUp(undefined, alice.userId, 'org.example.card'))).toBe('M_NOT_FOUND');
    // Clients expect an empty answer for the two fields that everybody has.
    expect(await profiles.lookUp(undefined, alice.userId, 'avatar_url')).toEqual({});
    expect(await errcode(profiles.lookUp(undefined, '@nobody:example.org', 'displayname'))).toBe('M_NOT_FOUND');
  });

  it.each([
    ['displayname', 'x'.repeat(257), 'M_INVALID_PARAM'],
    ['displayname', 7, 'M_INVALID_PARAM'],
    ['displayname', 'nul\0', 'M_INVALID_PARAM'],
    ['displayname', '\ud800', 'M_INVALID_PARAM'],
    ['avatar_url', 7, 'M_INVALID_PARAM'],
    ['avatar_url', `mxc://example.org/${'a'.repeat(1000)}`, 'M_INVALID_PARAM'],
    ['m.tz', 7, 'M_INVALID_PARAM'],
    ['Upper', 'x', 'M_INVALID_PARAM'],
    ['__proto__', 'x', 'M_INVALID_PARAM'],
    ['', 'x', 'M_INVALID_PARAM'],
    [`a${'b'.repeat(255)}`, 'x', 'M_KEY_TOO_LARGE'],
    ['org.example.big', 'x'.repeat(66_000), 'M_PROFILE_TOO_LARGE'],
  ])('refuses %s = %j', async (field, value, expected) => {
    expect(await errcode(set(field, value))).toBe(expected);
  });

  it('counts the whole profile against the limit, also under parallel changes', async () => {
    const results = await Promise.all(
      Array.from({ length: 6 }, (_, i) => errcode(set(`org.example.part${i}`, 'y'.repeat(15_000)))),
    );
    expect(results.filter((one) => one === 'M_PROFILE_TOO_LARGE').length).toBeGreaterThanOrEqual(1);
    expect(Buffer.byteLength(JSON.stringify(await profiles.get(alice.userId)))).toBeLessThanOrEqual(65_536);
    for (let i = 0; i < 6; i++) await set(`org.example.part${i}`, undefined);
  });

  it('loses no field when several are set at once', async () => {
    const names = Array.from({ length: 10 }, (_, i) => `org.example.p${i}`);
    await Promise.all(names.map((name) => set(name, name)));
    expect(Object.keys((await profiles.get(alice.userId))!)).toEqual(expect.arrayContaining(names));
  });

  it('lets nobody but the user and administrators change a profile', async () => {
    expect(await errcode(set('displayname', 'Mallory', requester('@mallory:example.org')))).toBe('M_FORBIDDEN');
    await set('displayname', 'By admin', requester('@root:example.org', { isAdmin: true }));
    expect(changes).toMatchObject([{ byAdmin: true, after: { displayname: 'By admin' } }]);
    expect(
      await errcode(set('displayname', 'x', requester('@root:example.org', { isAdmin: true }), '@ghost:example.org')),
    ).toBe('M_NOT_FOUND');
    expect(await errcode(set('displayname', 'x', requester('@a:else.org'), '@a:else.org'))).toBe('M_INVALID_PARAM');
  });

  it('gives a closed account a profile again only where an administrator means to', async () => {
    const userId = await users.get(AccountService).register({ localpart: 'closed', origin: {} });
    await users.get(DeactivationService).deactivate(userId, true, true, {});
    const update = (more: object) => profiles.update(userId, { displayname: 'Back' }, { origin: {}, ...more });
    expect(await errcode(update({}))).toBe('M_USER_DEACTIVATED');
    expect(await errcode(update({ byAdmin: true, onlyWhileOpen: true }))).toBe('M_USER_DEACTIVATED');
    expect(await profiles.get(userId)).toEqual({});
    await update({ byAdmin: true });
    expect(await profiles.get(userId)).toEqual({ displayname: 'Back' });
  });

  it('follows the settings', async () => {
    const strict = await buildUsers({
      database: test.database,
      clock,
      settings: { enable_set_displayname: false, require_auth_for_profile_requests: true },
    });
    const service = strict.get(ProfileService);
    expect(await errcode(service.setField(alice, alice.userId, 'displayname', 'New'))).toBe('M_FORBIDDEN');
    await service.setField({ ...alice, isAdmin: true }, alice.userId, 'displayname', 'New');
    expect(await errcode(service.lookUp(undefined, alice.userId))).toBe('M_MISSING_TOKEN');
    expect(await service.lookUp(alice, alice.userId)).toMatchObject({ displayname: 'New' });
    await strict.close();
  });

  it('asks the other server for its users, and the hooks before anybody sees a profile', async () => {
    expect(await errcode(profiles.lookUp(alice, '@bob:else.org'))).toBe('M_NOT_FOUND');
    users
      .get(UserPorts)
      .remoteProfiles.replace(async (userId, field) =>
        userId === '@bob:else.org' ? { displayname: `Bob ${field ?? ''}` } : undefined,
      );
    expect(await profiles.lookUp(alice, '@bob:else.org', 'displayname')).toEqual({ displayname: 'Bob displayname' });
    users.get(UserHooks).profileLookUp.subscribe({
      prepare: async (event) => {
        if (event.requesterId === '@stranger:example.org') throw MatrixError.forbidden('You share no room');
      },
    });
    expect(await errcode(profiles.lookUp(requester('@stranger:example.org'), alice.userId))).toBe('M_FORBIDDEN');
  });

  it('undoes the change when a hook objects within the transaction', async () => {
    const before = await profiles.get(alice.userId);
    users.get(UserHooks).profileChanged.subscribe({
      inTransaction: async (_tx, event) => {
        if (event.after['org.example.veto'] !== undefined) throw MatrixError.forbidden('No');
      },
    });
    expect(await errcode(set('org.example.veto', true))).toBe('M_FORBIDDEN');
    expect(await profiles.get(alice.userId)).toEqual(before);
  });
});
