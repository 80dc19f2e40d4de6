import { createHmac } from 'node:crypto';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createClient } from 'matrix-js-sdk';
import { validatedFetch } from '../../support/openapi.js';
import { registerClient } from '../../support/sdk-client.js';
import { asJson, challengeOf, type Json, quiet } from './support.js';

const dummy = { auth: { type: 'm.login.dummy' } };

describe.each(['sqlite', 'postgres'] as const)('registration (%s)', (database) => {
  const running: TestHomeserver[] = [];
  const start = async (settings: Json = {}, more: object = {}): Promise<TestHomeserver> => {
    const server = await createTestHomeserver({ database, fetch: validatedFetch, settings, ...more });
    running.push(server);
    return server;
  };
  let homeserver: TestHomeserver;
  let admin: TestUser;

  const register = async (body: Json, server = homeserver): Promise<Json> =>
    asJson(await server.request('POST', '/register', body));

  /** Registers with the secret that the operator's tools share with the server. */
  const bySecret = async (body: Json, more: { nonce?: string; secret?: string } = {}): Promise<Json> => {
    const nonce = more.nonce ?? String((await homeserver.request('GET', '/_synapse/admin/v1/register')).body['nonce']);
    const parts = [nonce, body['username'], body['password'], body['admin'] === true ? 'admin' : 'notadmin'];
    if (typeof body['user_type'] === 'string') parts.push(body['user_type']);
    const mac = createHmac('sha1', more.secret ?? 'shared')
      .update(parts.join('\0'))
      .digest('hex');
    return asJson(await homeserver.request('POST', '/_synapse/admin/v1/register', { nonce, mac, ...body }));
  };

  beforeAll(async () => {
    homeserver = await start({ allow_guest_access: true, refreshable_access_token_lifetime: '5m' });
    const { access_token: accessToken } = await bySecret({ username: 'root', password: 'root pw', admin: true });
    admin = {
      userId: '@root:rookery.test',
      deviceId: '',
      accessToken: String(accessToken),
      request: (method, path, body) => homeserver.request(method, path, body, String(accessToken)),
    };
  });
  afterAll(async () => {
    for (const server of running) await server.stop();
  });

  it('goes by the flows that GET and a first request list alike', async () => {
    const flows = [{ stages: ['m.login.dummy'] }];
    expect((await homeserver.request('GET', '/register')).body).toEqual({ flows });
    const challenge = await challengeOf(homeserver.request('POST', '/register', { username: 'ann', password: 'pw' }));
    expect(challenge).toEqual({ session: expect.any(String), flows, params: {} });
    const { session } = challenge;
    const body = { username: 'ann', password: 'pw', auth: { type: 'm.login.dummy', session } };
    expect(await register(body)).toMatchObject({ status: 200, user_id: '@ann:rookery.test' });
    // The session is used up.
    expect(await register({ ...body, username: 'ann2' })).toMatchObject({ status: 401 });
    expect((await homeserver.request('GET', '/profile/@ann:rookery.test')).body).toEqual({ displayname: 'ann' });
  });

  it('works with the SDK that most clients use', async () => {
    const { client, userId } = await registerClient(homeserver.baseUrl, 'sdk');
    expect(await client.whoami()).toMatchObject({ user_id: userId });
    const anonymous = createClient({ baseUrl: homeserver.baseUrl, fetchFn: validatedFetch, logger: quiet });
    expect(await anonymous.isUsernameAvailable('sdk2')).toBe(true);
    expect(await anonymous.isUsernameAvailable('sdk')).toBe(false);
    expect((await anonymous.loginFlows()).flows.map((flow) => flow.type)).toContain('m.login.password');
    const login = await anonymous.loginWithPassword('sdk', 'password of sdk');
    expect(login.user_id).toBe(userId);
    await client.logout(true);
    await expect(client.whoami()).rejects.toMatchObject({ errcode: 'M_UNKNOWN_TOKEN' });
  });

  it.each([
    ['', 'M_INVALID_USERNAME'],
    ['Ann Smith', 'M_INVALID_USERNAME'],
    ['_hidden', 'M_INVALID_USERNAME'],
    ['änn', 'M_INVALID_USERNAME'],
    // Looks like `ann`: the first letter is Cyrillic.
    ['\u0430nn', 'M_INVALID_USERNAME'],
    ['ann\u200d', 'M_INVALID_USERNAME'],
    ['ann\0', 'M_INVALID_USERNAME'],
    ['12345', 'M_INVALID_USERNAME'],
    ['x'.repeat(256), 'M_INVALID_USERNAME'],
    ['ann', 'M_USER_IN_USE'],
    ['ANN', 'M_USER_IN_USE'],
    ['＠ann', 'M_INVALID_USERNAME'],
  ])('refuses the name %j', async (username, errcode) => {
    expect(await register({ username, password: 'pw', ...dummy })).toMatchObject({ status: 400, errcode });
    const query = new URLSearchParams({ username }).toString();
    expect(asJson(await homeserver.request('GET', `/register/available?${query}`))).toMatchObject({
      status: 400,
      // NUL has no business in a query at all, and an empty parameter is an absent one.
      errcode: username.includes('\0') ? 'M_INVALID_PARAM' : username === '' ? 'M_MISSING_PARAM' : errcode,
    });
  });

  it('refuses the name as the old property', async () => {
    expect(await register({ user: 'bob', password: 'pw', ...dummy })).toMatchObject({
      status: 400,
      errcode: 'M_INVALID_PARAM',
    });
    expect(asJson(await homeserver.request('GET', '/register/available?username=bob'))).toEqual({
      status: 200,
      available: true,
    });
  });

  it('opens no session where none is wanted, and a refreshable one where it is', async () => {
    const without = await register({ username: 'inhibited', password: 'pw', inhibit_login: true, ...dummy });
    expect(without).toMatchObject({ status: 200, user_id: '@inhibited:rookery.test' });
    expect(without).not.toHaveProperty('access_token');
    expect(without).not.toHaveProperty('device_id');
    const device = { device_id: 'MINE', initial_device_display_name: 'My phone' };
    const refreshable = await register({ username: 'fresh', password: 'pw', refresh_token: true, ...device, ...dummy });
    expect(refreshable).toMatchObject({ device_id: 'MINE', expires_in_ms: 300_000, refresh_token: expect.any(String) });
    const { body } = await homeserver.request('GET', '/devices', undefined, String(refreshable['access_token']));
    expect(body).toMatchObject({ devices: [{ device_id: 'MINE', display_name: 'My phone' }] });
  });

  it('makes guests, who may do little', async () => {
    const { status, body } = await homeserver.request('POST', '/register?kind=guest', {});
    expect(status).toBe(200);
    const token = String(body['access_token']);
    expect((await homeserver.request('GET', '/account/whoami', undefined, token)).body).toMatchObject({
      is_guest: true,
    });
    for (const [method, path, content] of [
      ['POST', '/account/password', { new_password: 'x' }],
      ['GET', '/account/3pid', undefined],
      ['POST', '/user_directory/search', { search_term: 'a' }],
    ] as const) {
      const answer = await homeserver.request(method, path, content, token);
      if (answer.status !== 404)
        expect(asJson(answer)).toMatchObject({ status: 403, errcode: 'M_GUEST_ACCESS_FORBIDDEN' });
    }
    expect(asJson(await homeserver.request('POST', '/register?kind=robot', {}))).toMatchObject({ status: 400 });
  });

  it('makes accounts with the shared secret: of every type, with a nonce that is good once', async () => {
    expect(await bySecret({ username: 'helper', password: 'pw', user_type: 'bot', displayname: 'Help' })).toMatchObject(
      {
        status: 200,
        user_id: '@helper:rookery.test',
      },
    );
    expect((await homeserver.request('GET', '/profile/@helper:rookery.test')).body).toEqual({ displayname: 'Help' });
    expect(await bySecret({ username: 'odd', password: 'pw', user_type: 'robot' })).toMatchObject({ status: 400 });
    expect(await bySecret({ username: 'wrong', password: 'pw' }, { secret: 'guess' })).toMatchObject({
      status: 403,
      errcode: 'M_FORBIDDEN',
    });
    const nonce = String((await homeserver.request('GET', '/_synapse/admin/v1/register')).body['nonce']);
    expect(await bySecret({ username: 'once', password: 'pw' }, { nonce })).toMatchObject({ status: 200 });
    // A replay, and the same signature for another name.
    expect(await bySecret({ username: 'once', password: 'pw' }, { nonce })).toMatchObject({ status: 400 });
    expect(await bySecret({ username: 'twice', password: 'pw' }, { nonce })).toMatchObject({ status: 400 });
    expect(await bySecret({ username: 'made-up', password: 'pw' }, { nonce: 'a'.repeat(128) })).toMatchObject({
      status: 400,
    });
    expect((await admin.request('GET', '/account/whoami')).status).toBe(200);
  });

  it('lets nobody in where it is disabled', async () => {
    const closed = await start({ enable_registration: false });
    for (const answer of [
      closed.request('GET', '/register'),
      closed.request('POST', '/register', { username: 'ann', password: 'pw', ...dummy }),
      closed.request('POST', '/register?kind=guest', {}),
      closed.request('GET', '/register/available?username=ann'),
      closed.request('POST', '/register/email/requestToken', {
        client_secret: 's',
        email: 'a@example.org',
        send_attempt: 1,
      }),
    ])
      expect(asJson(await answer)).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
  });
});
