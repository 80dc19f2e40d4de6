import type { RoomInfo } from '@rookery/module-api';
import { eventually } from '@rookery/testing';
import { probe, type ProbeServer, startProbe } from './probe-server.js';

describe.each(['sqlite', 'postgres'] as const)('accounts by the module API (%s)', (kind) => {
  let server: ProbeServer;
  beforeAll(async () => {
    server = await startProbe(kind, {
      public_baseurl: 'https://chat.example/',
      sso: { client_whitelist: ['https://trusted.example/'] },
    });
  });
  afterAll(() => server?.stop());
  beforeEach(() => probe.reset());

  const value = async (path: string, ...args: unknown[]): Promise<unknown> => {
    const called = await server.call(path, ...args);
    expect(called).toMatchObject({ status: 200 });
    return called.result;
  };
  /** Where the last call of a callback is said to come from. */
  const sourceOf = (callback: string): unknown => probe.fired.findLast(({ name }) => name === callback)?.context.source;
  const registered = (name: string, ...args: unknown[]): Promise<unknown> => value('registerUser', name, ...args);

  it('says who the server is', () => {
    const api = probe.api!;
    expect(api.moduleName).toBe('probe');
    expect(api.serverName).toBe('rookery.test');
    expect(api.publicBaseurl).toBe('https://chat.example/');
    expect(api.urlOf('/_synapse/client/x', { a: 'b c' })).toBe('https://chat.example/_synapse/client/x?a=b+c');
    expect(api.emailAppName).toBe('Matrix');
    expect(api.workerName).toBeUndefined();
    expect(api.workerApp).toBeUndefined();
    expect(api.shouldRunBackgroundTasks()).toBe(true);
    expect(api.getQualifiedUserId('ann')).toBe('@ann:rookery.test');
    expect(api.getQualifiedUserId('@ann:else.where')).toBe('@ann:else.where');
    expect([api.isMine('@ann:rookery.test'), api.isMine('#a:else.where')]).toEqual([true, false]);
  });

  it('finds accounts by what they are elsewhere, and lists all of them', async () => {
    const { api } = probe;
    await registered('finder', { emails: ['finder@example.org'] });
    await registered('finder2');
    await value('recordUserExternalId', 'oidc-x', 'remote 1', '@finder:rookery.test');
    expect(await api!.getUserByExternalId('oidc-x', 'remote 1')).toBe('@finder:rookery.test');
    expect(await api!.getUserByExternalId('oidc-y', 'remote 1')).toBeUndefined();
    expect(await api!.getUserByThreepid('email', 'Finder@EXAMPLE.org')).toBe('@finder:rookery.test');
    expect(await api!.getUserByThreepid('email', 'nobody@example.org')).toBeUndefined();
    await expect(api!.getUserByThreepid('email', 'no address')).rejects.toMatchObject({ status: 400 });
    const seen = [];
    for await (const info of api!.listUsers()) seen.push(info);
    expect(seen).toContainEqual(await api!.getUserinfoById('@finder2:rookery.test'));
    const ids = seen.map(({ userId }) => userId);
    expect(ids).toEqual(expect.arrayContaining(['@finder:rookery.test', '@finder2:rookery.test']));
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('lists the rooms', async () => {
    await registered('roomer');
    const creates = (name: string): Promise<unknown> =>
      value('createRoom', '@roomer:rookery.test', { name, visibility: name === 'open' ? 'public' : 'private' });
    const [open, closed] = [await creates('open'), await creates('closed')] as { roomId: string }[];
    const list = async (): Promise<RoomInfo[]> => {
      const rooms = [];
      for await (const room of probe.api!.listRooms()) rooms.push(room);
      return rooms;
    };
    expect(new Set((await list()).map(({ roomId }) => roomId))).toEqual(new Set([open!.roomId, closed!.roomId]));
    // Statistics come behind.
    const rooms = await eventually(async () => {
      const found = await list();
      return found.every(({ name, joinedMembers }) => name !== undefined && joinedMembers === 1) && found;
    });
    expect(rooms.find(({ roomId }) => roomId === open!.roomId)).toMatchObject({ name: 'open', isPublic: true });
    expect(rooms.find(({ roomId }) => roomId === closed!.roomId)).toMatchObject({
      ...{ name: 'closed', isPublic: false, joinedLocalMembers: 1 },
    });
  });

  it('tells administrators how modules do, and nobody else', async () => {
    const ann = await server.registerUser('asks_modules');
    expect((await ann.request('GET', '/_synapse/admin/v1/modules')).status).toBe(403);
    await value('setUserAdmin', ann.userId, true);
    const { status, body } = await ann.request<{ modules: object[] }>('GET', '/_synapse/admin/v1/modules');
    expect(status).toBe(200);
    expect(body.modules).toEqual([
      expect.objectContaining({
        ...{ name: 'probe', shadow: false, thread: null, shadow_refusals: [], on_error: 'deny' },
        callbacks: expect.arrayContaining([
          expect.objectContaining({ name: 'onNewEvent', suspended: false, last_error: null }),
        ]),
      }),
    ]);
  });

  it('makes an account with addresses, and tells of it', async () => {
    expect(await registered('Ann', { displayName: 'Ann!', emails: ['Ann@Example.org'], admin: true })).toBe(
      '@ann:rookery.test',
    );
    expect(await value('getUserinfoById', '@ann:rookery.test')).toMatchObject({
      userId: '@ann:rookery.test',
      isAdmin: true,
      isGuest: false,
      isDeactivated: false,
      approved: true,
    });
    expect(await value('getUserinfoById', '@nobody:rookery.test')).toBeNull();
    expect(await value('getProfileForUser', 'ann')).toEqual({ displayName: 'Ann!' });
    expect(await value('getThreepidsForUser', '@ann:rookery.test')).toEqual([
      { medium: 'email', address: 'ann@example.org' },
    ]);
    const fired = probe.fired.map(({ name }) => name);
    expect(fired).toEqual(expect.arrayContaining(['onUserRegistration', 'onAddUserThirdPartyIdentifier']));
    expect(fired).not.toContain('is3pidAllowed');
    expect([sourceOf('onUserRegistration'), sourceOf('onAddUserThirdPartyIdentifier')]).toEqual(['module', 'module']);
    expect(await server.call('registerUser', 'ann')).toMatchObject({ status: 400, error: 'M_USER_IN_USE' });
    expect(await server.call('registerUser', 'ben', { emails: ['ann@example.org'] })).toMatchObject({
      status: 400,
      error: 'M_THREEPID_IN_USE',
    });
    expect(await value('checkUserExists', '@ben:rookery.test')).toBeNull();
    expect(await value('checkUserExists', '@ANN:rookery.test')).toBe('@ann:rookery.test');
    expect(await value('checkUserExists', '@ann:else.where')).toBeNull();
  });

  it('says whether a name can be taken', async () => {
    expect(await value('checkUsername', 'free')).toBeNull();
    expect(await server.call('checkUsername', 'ann')).toMatchObject({ error: 'M_USER_IN_USE' });
    expect(await server.call('checkUsername', 'no spaces')).toMatchObject({ error: 'M_INVALID_USERNAME' });
  });

  it('makes and unmakes administrators', async () => {
    await registered('carl');
    await value('setUserAdmin', '@carl:rookery.test', true);
    expect(await value('isUserAdmin', '@carl:rookery.test')).toBe(true);
    await value('setUserAdmin', '@carl:rookery.test', false);
    expect(await value('isUserAdmin', '@carl:rookery.test')).toBe(false);
    expect(await server.call('setUserAdmin', '@none:rookery.test', true)).toMatchObject({ status: 404 });
    expect(await server.call('setUserAdmin', '@carl:else.where', true)).toMatchObject({ status: 400 });
  });

  it('changes a display name as an administrator would', async () => {
    await value('setDisplayname', '@carl:rookery.test', 'Carl the Great');
    expect(await value('getProfileForUser', 'carl')).toEqual({ displayName: 'Carl the Great' });
    expect(probe.fired.find(({ name }) => name === 'onProfileUpdate')?.args).toEqual([
      '@carl:rookery.test',
      { displayName: 'Carl the Great', avatarUrl: undefined },
      true,
      false,
    ]);
    expect(sourceOf('onProfileUpdate')).toBe('module');
    expect(await server.call('setDisplayname', '@carl:rookery.test', 'x'.repeat(257))).toMatchObject({ status: 400 });
  });

  it('makes no account with a name that could not be set', async () => {
    for (const displayName of ['x'.repeat(257), 'a\0b', 'a\ud800', 7]) {
      expect(await server.call('registerUser', 'odd', { displayName })).toMatchObject({ error: 'M_INVALID_PARAM' });
      expect(await value('checkUserExists', '@odd:rookery.test')).toBeNull();
    }
    await registered('odd', { displayName: '' });
    expect(await value('getProfileForUser', 'odd')).toEqual({ displayName: 'odd' });
  });

  it('opens a session and ends it', async () => {
    const device = (await value('registerDevice', '@carl:rookery.test', 'PHONE', 'a phone')) as {
      deviceId: string;
      accessToken: string;
    };
    expect(device.deviceId).toBe('PHONE');
    const whoami = await server.request('GET', '/_synapse/client/probe/whoami', undefined, device.accessToken);
    expect(whoami.body).toMatchObject({ userId: '@carl:rookery.test', deviceId: 'PHONE', isGuest: false });
    await value('invalidateAccessToken', device.accessToken);
    expect(probe.fired.find(({ name }) => name === 'onLoggedOut')?.args).toEqual([
      '@carl:rookery.test',
      'PHONE',
      device.accessToken,
    ]);
    expect((await server.request('GET', '/account/whoami', undefined, device.accessToken)).status).toBe(401);
    await value('invalidateAccessToken', 'never was one');
    expect(await server.call('registerDevice', '@none:rookery.test')).toMatchObject({ status: 404 });
  });

  it('refuses requests without a good token', async () => {
    const path = '/_synapse/client/probe/whoami';
    expect(await server.request('GET', path)).toMatchObject({ status: 401, body: { errcode: 'M_MISSING_TOKEN' } });
    expect(await server.request('GET', path, undefined, 'rubbish')).toMatchObject({
      status: 401,
      body: { errcode: 'M_UNKNOWN_TOKEN' },
    });
  });

  it('makes tokens with which a user logs in once', async () => {
    const token = await value('createLoginToken', '@carl:rookery.test', 60_000, 'oidc-acme', 'session 1');
    const login = (): Promise<{ status: number; body: Record<string, unknown> }> =>
      server.request('POST', '/login', { type: 'm.login.token', token });
    expect(await login()).toMatchObject({ status: 200, body: { user_id: '@carl:rookery.test' } });
    expect(probe.fired.find(({ name }) => name === 'onUserLogin')?.args).toEqual([
      '@carl:rookery.test',
      'm.login.token',
      'oidc-acme',
    ]);
    expect((await login()).status).toBe(403);
    expect(await server.call('createLoginToken', '@carl:rookery.test', 0)).toMatchObject({ error: 'RangeError' });
  });

  it.each([
    ['completeSsoLoginAsync', ''],
    ['completeSsoLogin', '&deprecated'],
  ])('%s ends a single sign-on: at once for a trusted client, after a question for others', async (_, more) => {
    const path = (to: string): string =>
      `/_synapse/client/probe/sso/%40carl%3Arookery.test?to=${encodeURIComponent(to)}${more}`;
    const trusted = await fetch(server.baseUrl + path('https://trusted.example/app?x=1'), { redirect: 'manual' });
    expect(trusted.status).toBe(302);
    const target = new URL(trusted.headers.get('location') ?? '');
    expect(target.origin + target.pathname).toBe('https://trusted.example/app');
    expect(target.searchParams.get('x')).toBe('1');
    const token = target.searchParams.get('loginToken');
    expect((await server.request('POST', '/login', { type: 'm.login.token', token })).status).toBe(200);
    const other = await fetch(server.baseUrl + path('https://other.example/app?secret=1'), { redirect: 'manual' });
    expect(other.status).toBe(200);
    expect(other.headers.get('content-type')).toContain('text/html');
    const html = await other.text();
    expect(html).toContain('https://other.example/app');
    expect(html).toContain('loginToken=');
    const evil = await fetch(server.baseUrl + path('javascript:alert(1)'), { redirect: 'manual' });
    expect(evil.status).toBe(400);
  });

  it('notes external ids and bound addresses', async () => {
    await value('recordUserExternalId', 'oidc-acme', 'subject-1', '@carl:rookery.test');
    await value('recordUserExternalId', 'oidc-acme', 'subject-1', '@carl:rookery.test');
    expect(await server.call('recordUserExternalId', 'oidc-acme', 'subject-1', '@ann:rookery.test')).toMatchObject({
      status: 409,
    });
    // Nobody takes away another one's; what is taken away is free.
    await value('forgetUserExternalId', 'oidc-acme', 'subject-1', '@ann:rookery.test');
    expect(await server.call('recordUserExternalId', 'oidc-acme', 'subject-1', '@ann:rookery.test')).toMatchObject({
      status: 409,
    });
    await value('forgetUserExternalId', 'oidc-acme', 'subject-1', '@carl:rookery.test');
    await value('recordUserExternalId', 'oidc-acme', 'subject-1', '@ann:rookery.test');
    await value('storeRemote3pidAssociation', '@carl:rookery.test', 'email', 'carl@example.org', 'vector.im');
  });

  it('knows from where somebody was seen, and who was active', async () => {
    const dora = await server.registerUser('dora');
    await dora.request('GET', '/account/whoami');
    const seen = (await value('getUserIpAndAgents', dora.userId)) as { ip: string; lastSeenMs: number }[];
    expect(seen.map(({ ip }) => ip)).toEqual(['127.0.0.1']);
    expect(await value('getUserIpAndAgents', dora.userId, (seen[0]?.lastSeenMs ?? 0) + 1)).toEqual([]);
    const active = (await value('getMonthlyActiveUsersByService')) as [string, string][];
    expect(active).toContainEqual(['native', dora.userId]);
    expect(active.map(([, userId]) => userId)).not.toContain('@ann:rookery.test');
    expect(await value('getMonthlyActiveUsersByService', 0, 1)).toEqual([]);
  });

  it('reads and writes account data of local users', async () => {
    const dora = '@dora:rookery.test';
    expect(await value('accountDataManager.getGlobal', dora, 'org.example.x')).toBeNull();
    await value('accountDataManager.putGlobal', dora, 'org.example.x', { a: [1] });
    expect(await value('accountDataManager.getGlobal', dora, 'org.example.x')).toEqual({ a: [1] });
    const data = await probe.api!.accountDataManager.getGlobal(dora, 'org.example.x');
    expect(Object.isFrozen(data)).toBe(true);
    expect(probe.fired.find(({ name }) => name === 'onAccountDataUpdated')?.args).toEqual([
      dora,
      undefined,
      'org.example.x',
      { a: [1] },
    ]);
    expect(sourceOf('onAccountDataUpdated')).toBe('module');
    expect(await server.call('accountDataManager.getGlobal', '@x:else.where', 'a')).toMatchObject({ status: 400 });
    expect(await server.call('accountDataManager.putGlobal', '@none:rookery.test', 'a', {})).toMatchObject({
      status: 404,
    });
    expect(await server.call('accountDataManager.putGlobal', dora, 'a', 'text')).toMatchObject({ status: 400 });
  });

  it('closes an account for good', async () => {
    const emma = await server.registerUser('emma');
    await value('deactivateUser', emma.userId, { erase: true });
    expect((await emma.request('GET', '/account/whoami')).status).toBe(401);
    expect(await value('getUserinfoById', emma.userId)).toMatchObject({ isDeactivated: true });
    for (const name of ['checkCanDeactivateUser', 'onUserDeactivationStatusChanged', 'onLoggedOut'])
      expect([name, sourceOf(name)]).toEqual([name, 'module']);
    expect(await server.call('registerDevice', emma.userId)).toMatchObject({ error: 'M_USER_DEACTIVATED' });
    expect(await server.call('accountDataManager.putGlobal', emma.userId, 'a', {})).toMatchObject({
      ...{ status: 403, error: 'M_USER_DEACTIVATED' },
    });
    expect(await server.call('deactivateUser', '@none:rookery.test')).toMatchObject({ status: 404 });
  });
});
