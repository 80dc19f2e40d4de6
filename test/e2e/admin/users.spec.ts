import type { TestHomeserver, TestUser } from '@rookery/testing';
import { ExternalIds } from '@rookery/users';
import { type AdminRequest, asUser, type Json, registerAdmin, startAdminWorld } from './support.js';

interface List {
  users: Json[];
  total: number;
  next_token?: string;
}

describe.each(['sqlite', 'postgres'] as const)('the admin API of users (%s)', (database) => {
  let homeserver: TestHomeserver;
  let admin: AdminRequest;
  let root: TestUser;
  let alice: TestUser;

  const id = (name: string): string => `@${name}:rookery.test`;
  const names = (list: List): unknown[] => list.users.map((user) => user['name']);
  const login = (user: string, password: string) =>
    homeserver.request<Json>('POST', '/login', {
      type: 'm.login.password',
      identifier: { type: 'm.id.user', user },
      password,
    });

  beforeAll(async () => {
    ({ homeserver, admin, root } = await startAdminWorld({
      database,
      settings: {
        allow_guest_access: true,
        user_types: { extra_user_types: ['kiosk'] },
        password_config: { policy: { enabled: true, minimum_length: 8 } },
      },
    }));
    alice = await homeserver.registerUser('alice');
  });
  afterAll(() => homeserver?.stop());

  describe('lists of users', () => {
    const prefix = 'lister';
    const list = async (query: string, version = 'v2'): Promise<List> => {
      const answer = await admin<List>('GET', `${version}/users?name=${prefix}&${query}`);
      expect(answer.status).toBe(200);
      return answer.body;
    };

    beforeAll(async () => {
      const make = (name: string, body: Json) => admin('PUT', `v2/users/${id(prefix + name)}`, body);
      await make('-a', { displayname: 'Zoe', password: 'the password' });
      await make('-b', { displayname: 'Adam', user_type: 'bot' });
      await make('-c', { displayname: 'Mia', user_type: 'kiosk', admin: true });
      await make('-d', {});
      await make('-e', {});
      await make('-f_%', {}).then(({ status }) => expect(status).toBe(400));
      await admin('PUT', `v2/users/${id(`${prefix}-d`)}`, { deactivated: true });
      await admin('PUT', `v2/users/${id(`${prefix}-e`)}`, { locked: true });
    });

    it('leave out deactivated and locked accounts unless they are asked for', async () => {
      expect(names(await list(''))).toEqual(['a', 'b', 'c'].map((one) => id(`${prefix}-${one}`)));
      expect(names(await list('deactivated=true'))).toEqual(['a', 'b', 'c', 'd'].map((one) => id(`${prefix}-${one}`)));
      expect(names(await list('locked=true'))).toEqual(['a', 'b', 'c', 'e'].map((one) => id(`${prefix}-${one}`)));
    });

    it('of the third version take deactivated as a filter', async () => {
      expect(names(await list('', 'v3'))).toContain(id(`${prefix}-d`));
      expect(names(await list('deactivated=true', 'v3'))).toEqual([id(`${prefix}-d`)]);
      expect(names(await list('deactivated=false', 'v3'))).not.toContain(id(`${prefix}-d`));
    });

    it('tell all about an account', async () => {
      const [user] = (await list('order_by=displayname&dir=b')).users;
      expect(user).toEqual({
        name: id(`${prefix}-a`),
        user_type: null,
        is_guest: false,
        admin: false,
        deactivated: false,
        shadow_banned: false,
        displayname: 'Zoe',
        avatar_url: null,
        creation_ts: expect.any(Number),
        erased: false,
        last_seen_ts: null,
        locked: false,
      });
      expect(user?.['creation_ts']).toBeGreaterThan(1e12);
    });

    it('are cut into pages, and name the next one', async () => {
      const first = await list('limit=2');
      expect(first).toMatchObject({ total: 3, next_token: '2' });
      expect(first.users).toHaveLength(2);
      const second = await list('limit=2&from=2');
      expect(names(second)).toEqual([id(`${prefix}-c`)]);
      expect(second).not.toHaveProperty('next_token');
    });

    it('are ordered as one likes', async () => {
      expect(names(await list('order_by=displayname'))).toEqual(['b', 'c', 'a'].map((one) => id(`${prefix}-${one}`)));
      expect(names(await list('dir=b'))).toEqual(['c', 'b', 'a'].map((one) => id(`${prefix}-${one}`)));
      // What has no value goes last, as in the list of rooms.
      expect(names(await list('order_by=user_type'))).toEqual(['b', 'c', 'a'].map((one) => id(`${prefix}-${one}`)));
      expect(names(await list('order_by=user_type&dir=b'))).toEqual(
        ['a', 'c', 'b'].map((one) => id(`${prefix}-${one}`)),
      );
      for (const order of [
        'is_guest',
        'admin',
        'deactivated',
        'avatar_url',
        'shadow_banned',
        'creation_ts',
        'last_seen_ts',
        'locked',
      ])
        expect((await list(`order_by=${order}`)).total).toBe(3);
    });

    it('may be narrowed to administrators and by type', async () => {
      expect(names(await list('admins=true'))).toEqual([id(`${prefix}-c`)]);
      expect(names(await list('admins=false'))).not.toContain(id(`${prefix}-c`));
      expect(names(await list('not_user_type=bot'))).toEqual(['a', 'c'].map((one) => id(`${prefix}-${one}`)));
      expect(names(await list('not_user_type='))).toEqual(['b', 'c'].map((one) => id(`${prefix}-${one}`)));
      expect(names(await list('not_user_type=&not_user_type=kiosk'))).toEqual([id(`${prefix}-b`)]);
    });

    it('find parts of ids and display names', async () => {
      const found = async (query: string) => names((await admin<List>('GET', `v2/users?${query}`)).body);
      expect(await found('name=ADAM')).toEqual([id(`${prefix}-b`)]);
      expect(await found(`user_id=${prefix.toUpperCase()}-B`)).toEqual([id(`${prefix}-b`)]);
      expect(await found('user_id=rookery.test')).toContain(id('alice'));
      expect(await found('name=rookery.test')).toEqual([]);
      expect(await found('name=%25')).toEqual([]);
      expect(await found('name=_')).toEqual([]);
      await admin('PUT', `v2/users/${id('umlaut')}`, { displayname: 'ÄNNE' });
      expect(await found(`name=${encodeURIComponent('ÄNNE')}`)).toEqual([id('umlaut')]);
    });

    it('leave guests out on demand', async () => {
      const guest = await homeserver.request<Json>('POST', '/register?kind=guest', {});
      const all = await admin<List>('GET', 'v2/users');
      expect(names(all.body)).toContain(guest.body['user_id']);
      const people = await admin<List>('GET', 'v2/users?guests=false');
      expect(names(people.body)).not.toContain(guest.body['user_id']);
    });

    it.each(['limit=-1', 'from=x', 'dir=up', 'order_by=age', 'guests=yes', 'admins=1', 'deactivated=no', 'locked=2'])(
      'refuse %s',
      async (query) =>
        expect(await admin('GET', `v2/users?${query}`)).toMatchObject({
          status: 400,
          body: { errcode: 'M_INVALID_PARAM' },
        }),
    );
  });

  describe('one user', () => {
    it('is shown with everything', async () => {
      const { status, body } = await admin('GET', `v2/users/${alice.userId}`);
      expect(status).toBe(200);
      expect(body).toEqual({
        name: alice.userId,
        displayname: 'alice',
        avatar_url: null,
        admin: false,
        deactivated: false,
        erased: false,
        locked: false,
        suspended: false,
        shadow_banned: false,
        is_guest: false,
        user_type: null,
        appservice_id: null,
        creation_ts: expect.any(Number),
        last_seen_ts: null,
        consent_version: null,
        consent_ts: null,
        consent_server_notice_sent: null,
        threepids: [],
        external_ids: [],
      });
      expect(body['creation_ts']).toBeLessThan(1e11);
      await alice.request('GET', '/account/whoami');
      const seen = await admin('GET', `v2/users/${alice.userId}`);
      expect(seen.body['last_seen_ts']).toBeGreaterThan(1e12);
    });

    it.each([
      ['nobody', 404, 'M_NOT_FOUND'],
      ['@alice:elsewhere.test', 400, 'M_UNKNOWN'],
      ['@nobody:rookery.test', 404, 'M_NOT_FOUND'],
    ])('%s is not found', async (userId, status, errcode) => {
      const expected =
        userId === 'nobody' ? { status: 400, body: { errcode: 'M_INVALID_PARAM' } } : { status, body: { errcode } };
      expect(await admin('GET', `v2/users/${userId}`)).toMatchObject(expected);
    });

    it('is made with all that is said', async () => {
      const made = await admin('PUT', `v2/users/${id('made')}`, {
        password: 'secret',
        displayname: 'Made',
        avatar_url: 'mxc://rookery.test/abc',
        admin: true,
        user_type: 'support',
        threepids: [{ medium: 'email', address: 'Made@Example.org' }],
        external_ids: [{ auth_provider: 'oidc-x', external_id: '17' }],
      });
      expect(made).toMatchObject({
        status: 201,
        body: {
          name: id('made'),
          displayname: 'Made',
          avatar_url: 'mxc://rookery.test/abc',
          admin: true,
          user_type: 'support',
          threepids: [{ medium: 'email', address: 'made@example.org' }],
          external_ids: [{ auth_provider: 'oidc-x', external_id: '17' }],
        },
      });
      // Administrators are not held to the policy of passwords.
      const session = await login('made', 'secret');
      expect(session.status).toBe(200);
      const token = String(session.body['access_token']);
      expect((await homeserver.request('GET', '/_synapse/admin/v2/users', undefined, token)).status).toBe(200);
      expect(await admin('PUT', `v2/users/${id('made')}`, {})).toMatchObject({
        status: 200,
        body: { displayname: 'Made' },
      });
    });

    it('gets the localpart as display name where none is said', async () => {
      const made = await admin('PUT', `v2/users/${id('plain')}`, {});
      expect(made).toMatchObject({ status: 201, body: { displayname: 'plain', admin: false } });
      expect((await login('plain', 'anything')).status).toBe(403);
    });

    it('is changed in single points', async () => {
      const path = `v2/users/${id('changed')}`;
      await admin('PUT', path, {
        displayname: 'Before',
        password: 'password 1',
        threepids: [{ medium: 'email', address: 'c@example.org' }],
      });
      expect(await admin('PUT', path, { displayname: '', avatar_url: 'mxc://rookery.test/x' })).toMatchObject({
        status: 200,
        body: { displayname: null, avatar_url: 'mxc://rookery.test/x' },
      });
      await admin('PUT', path, { displayname: 'Between' });
      expect(await admin('PUT', path, { displayname: null })).toMatchObject({
        status: 200,
        body: { displayname: null },
      });
      expect((await admin('PUT', path, { avatar_url: '', user_type: 'kiosk' })).body).toMatchObject({
        avatar_url: null,
        user_type: 'kiosk',
      });
      expect((await admin('PUT', path, { user_type: null, admin: true })).body).toMatchObject({
        user_type: null,
        admin: true,
      });
      expect((await admin('PUT', path, { admin: false })).body).toMatchObject({ admin: false });
      const threepids = [
        { medium: 'msisdn', address: '447700900000' },
        { medium: 'email', address: 'd@example.org' },
      ];
      const { body } = await admin<{ threepids: Json[] }>('PUT', path, { threepids });
      expect(body.threepids.map((one) => one['address']).sort()).toEqual(['447700900000', 'd@example.org']);
      // Tools send whole records, with null for what they do not know.
      const unknown = { password: null, threepids: null, external_ids: null, creation_ts: 1, is_guest: false };
      expect(await admin<{ threepids: Json[] }>('PUT', path, unknown)).toMatchObject({ status: 200, body });
      expect((await admin('PUT', path, { threepids: { a: 1 } })).status).toBe(400);
      // Scripts write that for nothing; some put a slash at the end, too.
      const nothing = { threepids: {}, external_ids: {} };
      expect((await admin('PUT', `${path}/`, nothing)).body).toMatchObject({ threepids: [], external_ids: [] });
      expect((await admin('PUT', path, { threepids })).body).toMatchObject({ threepids: [{}, {}] });
      expect((await admin('PUT', path, { threepids: [] })).body).toMatchObject({ threepids: [] });
      expect(
        (await admin('PUT', path, { external_ids: [{ auth_provider: 'p', external_id: 'changed' }] })).status,
      ).toBe(200);
      expect((await admin('PUT', path, { external_ids: [] })).body).toMatchObject({ external_ids: [] });
    });

    it('loses the sessions with the password, unless that is not wanted', async () => {
      const user = await homeserver.registerUser('forgetful');
      const path = `v2/users/${user.userId}`;
      expect((await admin('PUT', path, { password: 'password 2', logout_devices: false })).status).toBe(200);
      expect((await user.request('GET', '/account/whoami')).status).toBe(200);
      expect((await admin('PUT', path, { password: 'password 3' })).status).toBe(200);
      expect((await user.request('GET', '/account/whoami')).status).toBe(401);
      expect((await login('forgetful', 'password 3')).status).toBe(200);
    });

    it('is closed and opened again', async () => {
      const user = await homeserver.registerUser('closing');
      const path = `v2/users/${user.userId}`;
      expect((await admin('PUT', path, { deactivated: true })).body).toMatchObject({
        deactivated: true,
        erased: false,
      });
      expect((await user.request('GET', '/account/whoami')).status).toBe(401);
      expect((await login('closing', 'password of closing')).status).toBe(403);
      expect((await admin('PUT', path, { deactivated: false, password: 'password 4' })).body).toMatchObject({
        deactivated: false,
      });
      expect((await login('closing', 'password 4')).status).toBe(200);
    });

    it('is locked and unlocked', async () => {
      const user = await homeserver.registerUser('lockable');
      const path = `v2/users/${user.userId}`;
      expect((await admin('PUT', path, { locked: true })).body).toMatchObject({ locked: true });
      expect(await user.request('GET', '/account/whoami')).toMatchObject({
        status: 401,
        body: { errcode: 'M_USER_LOCKED' },
      });
      expect((await admin('PUT', path, { locked: false })).body).toMatchObject({ locked: false });
      expect((await user.request('GET', '/account/whoami')).status).toBe(200);
    });

    it('is locked, whatever becomes of the rest of the request', async () => {
      const user = await homeserver.registerUser('half-changed');
      const change = { locked: true, external_ids: [{ auth_provider: 'broken', external_id: 'x' }] };
      const broken = jest.spyOn(homeserver.server.service(ExternalIds), 'replace');
      for (const name of ['half-changed', 'half-made']) {
        broken.mockRejectedValueOnce(new Error('the database is away'));
        expect((await admin('PUT', `v2/users/${id(name)}`, change)).status).toBe(500);
        expect((await admin('GET', `v2/users/${id(name)}`)).body).toMatchObject({ locked: true });
      }
      broken.mockRejectedValueOnce(new Error('the database is away'));
      const opened = await admin('PUT', `v2/users/${user.userId}`, { ...change, locked: false });
      broken.mockRestore();
      expect(opened.status).toBe(500);
      expect((await user.request('GET', '/account/whoami')).status).toBe(401);
    });

    it.each([
      ['an unknown type', { user_type: 'cat' }, 400, 'M_UNKNOWN'],
      ['admin that is no boolean', { admin: 'yes' }, 400, 'M_BAD_JSON'],
      ['deactivated that is no boolean', { deactivated: 'yes' }, 400, 'M_BAD_JSON'],
      ['both deactivated and locked', { deactivated: true, locked: true }, 400, 'M_UNKNOWN'],
      ['a password that is too long', { password: 'x'.repeat(513) }, 400, 'M_INVALID_PARAM'],
      ['a password that is no text', { password: 17 }, 400, 'M_BAD_JSON'],
      ["an id that is another's", { external_ids: [{ auth_provider: 'taken', external_id: 'x' }] }, 409, 'M_UNKNOWN'],
      [
        "an address that is another's",
        { threepids: [{ medium: 'email', address: 'taken@example.org' }] },
        400,
        'M_THREEPID_IN_USE',
      ],
      ['an address that is none', { threepids: [{ medium: 'email', address: 'no' }] }, 400, 'M_INVALID_PARAM'],
      ['an address without medium', { threepids: [{ address: 'a@example.org' }] }, 400, 'M_BAD_JSON'],
      ['a picture that is none', { avatar_url: 'x'.repeat(1001) }, 400, 'M_INVALID_PARAM'],
    ])('is not changed by %s, and nothing of the request is done', async (_what, body, status, errcode) => {
      await admin('PUT', `v2/users/${id('owner')}`, {
        threepids: [{ medium: 'email', address: 'taken@example.org' }],
        external_ids: [{ auth_provider: 'taken', external_id: 'x' }],
      });
      for (const user of ['alice', 'never-made']) {
        const refused = await admin('PUT', `v2/users/${id(user)}`, { displayname: 'Half done', ...body });
        expect(refused).toMatchObject({ status, body: { errcode } });
      }
      expect((await admin('GET', `v2/users/${alice.userId}`)).body['displayname']).toBe('alice');
      expect((await admin('GET', `v2/users/${id('never-made')}`)).status).toBe(404);
    });

    it('is not made with a name that no user may have', async () => {
      for (const name of ['Upper', '12345', 'a b'])
        expect(await admin('PUT', `v2/users/${encodeURIComponent(id(name))}`, {})).toMatchObject({
          status: 400,
          body: { errcode: 'M_INVALID_USERNAME' },
        });
      expect((await admin('PUT', 'v2/users/@x:elsewhere.test', {})).body['errcode']).toBe('M_UNKNOWN');
    });

    it('may not take the own rights away', async () => {
      expect(await admin('PUT', `v2/users/${root.userId}`, { admin: false })).toMatchObject({
        status: 400,
        body: { errcode: 'M_UNKNOWN' },
      });
      expect(await admin('PUT', `v1/users/${root.userId}/admin`, { admin: false })).toMatchObject({
        status: 400,
        body: { errcode: 'M_UNKNOWN' },
      });
    });
  });

  describe('deactivation', () => {
    it('ends an account and leaves its rooms', async () => {
      const user = await homeserver.registerUser('leaver');
      const room = await user.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
      await alice.request('POST', `/join/${room.body.room_id}`, {});
      expect(await admin('POST', `v1/deactivate/${user.userId}`)).toMatchObject({
        status: 200,
        body: { id_server_unbind_result: 'success' },
      });
      expect((await user.request('GET', '/account/whoami')).status).toBe(401);
      const members = await alice.request<{ joined: object }>('GET', `/rooms/${room.body.room_id}/joined_members`);
      expect(Object.keys(members.body.joined)).toEqual([alice.userId]);
      expect((await admin('GET', `v2/users/${user.userId}`)).body).toMatchObject({
        deactivated: true,
        erased: false,
        displayname: 'leaver',
      });
    });

    it('can erase the user', async () => {
      const user = await homeserver.registerUser('erased');
      expect((await admin('POST', `v1/deactivate/${user.userId}`, { erase: true })).status).toBe(200);
      expect((await admin('GET', `v2/users/${user.userId}`)).body).toMatchObject({ erased: true, displayname: null });
    });

    it.each([
      ['@alice:rookery.test', { erase: 'yes' }, 400, 'M_BAD_JSON'],
      ['@nobody:rookery.test', {}, 404, 'M_NOT_FOUND'],
      ['@alice:elsewhere.test', {}, 400, 'M_UNKNOWN'],
    ])('of %s with %j is refused', async (userId, body, status, errcode) =>
      expect(await admin('POST', `v1/deactivate/${userId}`, body)).toMatchObject({ status, body: { errcode } }),
    );
  });

  describe('suspension', () => {
    it('keeps a user from acting on others', async () => {
      const user = await homeserver.registerUser('suspended');
      const room = await user.request<{ room_id: string }>('POST', '/createRoom', {});
      const send = (n: number) =>
        user.request('PUT', `/rooms/${room.body.room_id}/send/m.room.message/${n}`, { msgtype: 'm.text', body: 'x' });
      expect(await admin('PUT', `v1/suspend/${user.userId}`, { suspend: true })).toEqual(
        expect.objectContaining({ status: 200, body: { [`user_${user.userId}_suspended`]: true } }),
      );
      expect(await send(1)).toMatchObject({ status: 403, body: { errcode: 'M_USER_SUSPENDED' } });
      expect((await admin('GET', `v2/users/${user.userId}`)).body['suspended']).toBe(true);
      expect((await admin('PUT', `v1/suspend/${user.userId}`, { suspend: false })).body).toEqual({
        [`user_${user.userId}_suspended`]: false,
      });
      expect((await send(2)).status).toBe(200);
    });

    it.each([
      ['@alice:rookery.test', {}, 400, 'M_MISSING_PARAM'],
      ['@alice:rookery.test', { suspend: 'true' }, 400, 'M_BAD_JSON'],
      ['@nobody:rookery.test', { suspend: true }, 404, 'M_NOT_FOUND'],
      ['@alice:elsewhere.test', { suspend: true }, 400, 'M_UNKNOWN'],
    ])('of %s with %j is refused', async (userId, body, status, errcode) =>
      expect(await admin('PUT', `v1/suspend/${userId}`, body)).toMatchObject({ status, body: { errcode } }),
    );
  });

  describe('a new password', () => {
    it('ends the sessions unless that is not wanted', async () => {
      const user = await homeserver.registerUser('resetting');
      const path = `v1/reset_password/${user.userId}`;
      expect(await admin('POST', path, { new_password: 'pw 5', logout_devices: false })).toMatchObject({
        status: 200,
        body: {},
      });
      expect((await user.request('GET', '/account/whoami')).status).toBe(200);
      expect((await admin('POST', path, { new_password: 'pw 6' })).status).toBe(200);
      expect((await user.request('GET', '/account/whoami')).status).toBe(401);
      expect((await login('resetting', 'pw 6')).status).toBe(200);
    });

    it.each([
      ['@nobody:rookery.test', { new_password: 'x' }, 404, 'M_NOT_FOUND'],
      ['@alice:rookery.test', {}, 400, 'M_MISSING_PARAM'],
      ['@alice:rookery.test', { new_password: 1 }, 400, 'M_BAD_JSON'],
    ])('of %s with %j is refused', async (userId, body, status, errcode) =>
      expect(await admin('POST', `v1/reset_password/${userId}`, body)).toMatchObject({ status, body: { errcode } }),
    );
  });

  it("an administrator's rights are given and taken", async () => {
    const user = await homeserver.registerUser('promoted');
    const path = `v1/users/${user.userId}/admin`;
    expect((await admin('GET', path)).body).toEqual({ admin: false });
    expect(await admin('PUT', path, { admin: true })).toMatchObject({ status: 200, body: {} });
    expect((await admin('GET', path)).body).toEqual({ admin: true });
    expect((await asUser(user)('GET', 'v2/users')).status).toBe(200);
    expect((await admin('PUT', path, { admin: false })).status).toBe(200);
    expect((await asUser(user)('GET', 'v2/users')).status).toBe(403);
    expect((await admin('PUT', path, {})).body['errcode']).toBe('M_MISSING_PARAM');
    expect((await admin('PUT', path, { admin: 1 })).body['errcode']).toBe('M_BAD_JSON');
    expect((await admin('GET', 'v1/users/@x:elsewhere.test/admin')).status).toBe(400);
  });

  describe('a login as somebody', () => {
    const whoami = (token: string) => homeserver.request<Json>('GET', '/account/whoami', undefined, token);

    it('acts as them without a device, and outlives their sessions', async () => {
      const user = await homeserver.registerUser('puppet');
      const { status, body } = await admin<{ access_token: string }>('POST', `v1/users/${user.userId}/login`, {});
      expect(status).toBe(200);
      const me = await whoami(body.access_token);
      expect(me.body).toMatchObject({ user_id: user.userId });
      expect(me.body).not.toHaveProperty('device_id');
      expect((await user.request<{ devices: Json[] }>('GET', '/devices')).body.devices).toHaveLength(1);
      await user.request('POST', '/logout/all', {});
      expect((await user.request('GET', '/account/whoami')).status).toBe(401);
      expect((await whoami(body.access_token)).status).toBe(200);
    });

    it("ends with all of the administrator's sessions, and alone", async () => {
      const other = await registerAdmin(homeserver, 'root2');
      const user = await homeserver.registerUser('puppet2');
      const open = async () =>
        (await asUser(other)<{ access_token: string }>('POST', `v1/users/${user.userId}/login`)).body.access_token;
      const [first, second] = [await open(), await open()];
      await homeserver.request('POST', '/logout', {}, first);
      expect((await whoami(first)).status).toBe(401);
      expect((await whoami(second)).status).toBe(200);
      await other.request('POST', '/logout/all', {});
      expect((await whoami(second)).status).toBe(401);
      expect((await user.request('GET', '/account/whoami')).status).toBe(200);
    });

    it('ends when it is said to', async () => {
      const path = `v1/users/${alice.userId}/login`;
      const past = await admin<{ access_token: string }>('POST', path, { valid_until_ms: 1 });
      expect((await whoami(past.body.access_token)).status).toBe(401);
      const future = await admin<{ access_token: string }>('POST', path, { valid_until_ms: 4_102_444_800_000 });
      expect((await whoami(future.body.access_token)).status).toBe(200);
      const endless = await admin<{ access_token: string }>('POST', path, { valid_until_ms: null });
      expect(endless.status).toBe(200);
      expect((await whoami(endless.body.access_token)).status).toBe(200);
    });

    it('an administrator cannot log in as themselves', async () => {
      expect(await admin('POST', `v1/users/${root.userId}/login`)).toMatchObject({
        status: 400,
        body: { errcode: 'M_UNKNOWN' },
      });
      expect(await admin('POST', `v1/users/${alice.userId}/login`, { valid_until_ms: 'soon' })).toMatchObject({
        status: 400,
      });
      expect((await admin('POST', 'v1/users/@nobody:rookery.test/login')).status).toBe(404);
      expect((await admin('POST', 'v1/users/@x:elsewhere.test/login')).status).toBe(400);
    });
  });

  it('who is shadow-banned speaks to nobody', async () => {
    const user = await homeserver.registerUser('shadow');
    const room = await user.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    await alice.request('POST', `/join/${room.body.room_id}`, {});
    const invite = () => user.request('POST', `/rooms/${room.body.room_id}/invite`, { user_id: root.userId });
    const isInvited = async (): Promise<boolean> => {
      const members = await alice.request<{ chunk: { state_key: string }[] }>(
        'GET',
        `/rooms/${room.body.room_id}/members`,
      );
      return members.body.chunk.some((event) => event.state_key === root.userId);
    };
    const path = `v1/users/${user.userId}/shadow_ban`;
    expect(await admin('POST', path)).toMatchObject({ status: 200, body: {} });
    expect((await invite()).status).toBe(200);
    expect(await isInvited()).toBe(false);
    expect((await admin('GET', `v2/users/${user.userId}`)).body['shadow_banned']).toBe(true);
    expect(await admin('DELETE', path)).toMatchObject({ status: 200, body: {} });
    expect((await invite()).status).toBe(200);
    expect(await isInvited()).toBe(true);
    expect((await admin('POST', 'v1/users/@x:elsewhere.test/shadow_ban')).status).toBe(400);
    expect((await admin('DELETE', 'v1/users/@nobody:rookery.test/shadow_ban')).status).toBe(404);
  });
});
