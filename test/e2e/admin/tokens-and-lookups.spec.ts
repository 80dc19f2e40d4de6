import { createHmac } from 'node:crypto';
import type { TestHomeserver } from '@rookery/testing';
import { ForwardClock } from '../accounts/support.js';
import { type AdminRequest, type Json, startAdminWorld } from './support.js';

describe.each(['sqlite', 'postgres'] as const)('the admin API of registration (%s)', (database) => {
  let homeserver: TestHomeserver;
  let admin: AdminRequest;
  const clock = new ForwardClock();

  beforeAll(async () => {
    ({ homeserver, admin } = await startAdminWorld({
      database,
      clock,
      settings: {
        enable_registration: true,
        registration_requires_token: true,
        user_types: { extra_user_types: ['kiosk'] },
      },
    }));
  });
  afterAll(() => homeserver?.stop());

  describe('tokens', () => {
    const tokens = 'v1/registration_tokens';
    const make = (body: Json = {}) => admin('POST', `${tokens}/new`, body);
    const listed = async (query = ''): Promise<unknown[]> =>
      (await admin<{ registration_tokens: Json[] }>('GET', `${tokens}${query}`)).body.registration_tokens.map(
        (one) => one['token'],
      );
    const register = async (username: string, token: string) => {
      const account = { username, password: 'the password' };
      const begun = await homeserver.request<{ session: string }>('POST', '/register', account);
      const { session } = begun.body;
      const stages = [{ type: 'm.login.registration_token', token }, { type: 'm.login.dummy' }];
      for (const stage of stages.slice(0, -1))
        await homeserver.request('POST', '/register', { ...account, auth: { ...stage, session } });
      return homeserver.request('POST', '/register', { ...account, auth: { ...stages.at(-1), session } });
    };

    it('are drawn or chosen', async () => {
      const { status, body } = await make();
      expect(status).toBe(200);
      expect(body).toEqual({
        token: expect.stringMatching(/^[A-Za-z0-9._~-]{16}$/),
        uses_allowed: null,
        pending: 0,
        completed: 0,
        expiry_time: null,
      });
      expect((await make({ length: 64 })).body['token']).toMatch(/^[A-Za-z0-9._~-]{64}$/);
      const expiry = clock.nowMs() + 1000_000;
      const chosen = { token: 'Chosen._~-1', uses_allowed: 3, expiry_time: expiry };
      expect((await make(chosen)).body).toEqual({ ...chosen, pending: 0, completed: 0 });
      expect((await admin('GET', `${tokens}/Chosen._~-1`)).body).toEqual({ ...chosen, pending: 0, completed: 0 });
      expect(await listed()).toContain('Chosen._~-1');
    });

    it('let people register, as often as they may', async () => {
      await make({ token: 'once', uses_allowed: 1 });
      expect((await register('first', 'once')).status).toBe(200);
      expect((await admin('GET', `${tokens}/once`)).body).toMatchObject({ pending: 0, completed: 1 });
      expect((await register('second', 'once')).status).toBe(401);
      expect(await listed('?valid=true')).not.toContain('once');
      expect(await listed('?valid=false')).toContain('once');
    });

    it('are changed and deleted', async () => {
      await make({ token: 'change', uses_allowed: 1 });
      const path = `${tokens}/change`;
      expect((await admin('PUT', path, { uses_allowed: 5 })).body).toMatchObject({
        uses_allowed: 5,
        expiry_time: null,
      });
      const expiry = clock.nowMs() + 60_000;
      expect((await admin('PUT', path, { expiry_time: expiry })).body).toMatchObject({
        uses_allowed: 5,
        expiry_time: expiry,
      });
      expect((await admin('PUT', path, {})).body).toMatchObject({ uses_allowed: 5, expiry_time: expiry });
      expect(await listed('?valid=true')).toContain('change');
      clock.advance(120_000);
      expect(await listed('?valid=true')).not.toContain('change');
      expect((await admin('PUT', path, { uses_allowed: null, expiry_time: null })).body).toMatchObject({
        uses_allowed: null,
        expiry_time: null,
      });
      expect(await admin('DELETE', path)).toMatchObject({ status: 200, body: {} });
      for (const [method, body] of [['GET'], ['PUT', {}], ['DELETE']] as const)
        expect(await admin(method, path, body)).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    });

    it.each<Json>([
      { token: 17 },
      { token: '' },
      { token: 'x'.repeat(65) },
      { token: 'with space' },
      { token: 'duplicate' },
      { length: 0 },
      { length: 65 },
      { length: '8' },
      { length: 1.5 },
      { uses_allowed: -1 },
      { uses_allowed: 'x' },
      { expiry_time: 1 },
      { expiry_time: 'x' },
    ])('are not %j', async (body) => {
      await make({ token: 'duplicate' });
      expect(await make(body)).toMatchObject({ status: 400, body: { errcode: 'M_INVALID_PARAM' } });
      if ('uses_allowed' in body || 'expiry_time' in body)
        expect(await admin('PUT', `${tokens}/duplicate`, body)).toMatchObject({
          status: 400,
          body: { errcode: 'M_INVALID_PARAM' },
        });
    });

    it('are filtered by true and false only', async () => {
      expect((await admin('GET', `${tokens}?valid=yes`)).body['errcode']).toBe('M_INVALID_PARAM');
    });
  });

  describe('with the shared secret', () => {
    const path = '/_synapse/admin/v1/register';
    const nonce = async () => (await homeserver.request<{ nonce: string }>('GET', path)).body.nonce;
    const signed = (body: Record<string, unknown>, ...more: string[]): Json => {
      const { nonce: used, username, password, admin: isAdmin } = body;
      const parts = [used, username, password, isAdmin === true ? 'admin' : 'notadmin', ...more];
      return { ...body, mac: createHmac('sha1', 'shared').update(parts.join('\0')).digest('hex') };
    };
    const post = (body: unknown) => homeserver.request<Json>('POST', path, body);

    it('gives a nonce of 128 digits', async () => {
      expect(await nonce()).toMatch(/^[0-9a-f]{128}$/);
    });

    it('makes an account', async () => {
      const made = await post(
        signed(
          { nonce: await nonce(), username: 'Shared', password: 'pw', displayname: 'S', user_type: 'kiosk' },
          'kiosk',
        ),
      );
      expect(made).toMatchObject({
        status: 200,
        body: {
          user_id: '@shared:rookery.test',
          home_server: 'rookery.test',
          access_token: expect.any(String),
          device_id: expect.any(String),
        },
      });
      expect((await admin('GET', 'v2/users/@shared:rookery.test')).body).toMatchObject({
        displayname: 'S',
        admin: false,
        user_type: 'kiosk',
      });
    });

    it.each(['nonce', 'username', 'password', 'mac'])('needs %s', async (key) => {
      const { [key]: _left, ...body } = signed({ nonce: await nonce(), username: 'x', password: 'y' });
      expect(await post(body)).toMatchObject({ status: 400, body: { errcode: 'M_BAD_JSON' } });
    });

    it('takes each nonce once, and for a minute', async () => {
      const used = await nonce();
      expect(
        (await post({ ...signed({ nonce: used, username: 'n1', password: 'pw' }), mac: '0'.repeat(40) })).status,
      ).toBe(403);
      expect((await post(signed({ nonce: used, username: 'n1', password: 'pw' }))).status).toBe(400);
      const old = await nonce();
      clock.advance(61_000);
      expect((await post(signed({ nonce: old, username: 'n1', password: 'pw' }))).status).toBe(400);
    });

    it.each([
      [{ username: 'x'.repeat(513) }, 400],
      [{ username: 'a\0b' }, 400],
      [{ password: 'x'.repeat(513) }, 400],
      [{ user_type: 'cat' }, 400],
    ])('refuses %j', async (change, status) => {
      const body = { nonce: await nonce(), username: 'x', password: 'y', ...change };
      expect((await post(signed(body, ...('user_type' in change ? [change.user_type] : [])))).status).toBe(status);
    });
  });

  describe('look-ups', () => {
    beforeAll(async () => {
      await admin('PUT', 'v2/users/@known:rookery.test', {
        user_type: 'bot',
        threepids: [{ medium: 'email', address: 'known@example.org' }],
        external_ids: [{ auth_provider: 'oidc-p', external_id: 'a/b c' }],
      });
    });

    it('say whether a name is free, also where nobody may register', async () => {
      const ask = (name: string) => admin('GET', `v1/username_available?username=${encodeURIComponent(name)}`);
      expect(await ask('free')).toMatchObject({ status: 200, body: { available: true } });
      expect(await ask('known')).toMatchObject({ status: 400, body: { errcode: 'M_USER_IN_USE' } });
      expect(await ask('Free')).toMatchObject({ status: 400, body: { errcode: 'M_INVALID_USERNAME' } });
      expect(await ask('no good')).toMatchObject({ status: 400, body: { errcode: 'M_INVALID_USERNAME' } });
      expect(await admin('GET', 'v1/username_available')).toMatchObject({
        status: 400,
        body: { errcode: 'M_MISSING_PARAM' },
      });
    });

    it('find users by their ids at providers', async () => {
      const ask = (provider: string, id: string) =>
        admin('GET', `v1/auth_providers/${provider}/users/${encodeURIComponent(id)}`);
      expect(await ask('oidc-p', 'a/b c')).toMatchObject({ status: 200, body: { user_id: '@known:rookery.test' } });
      expect(await ask('oidc-q', 'a/b c')).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    });

    it('find users by their addresses', async () => {
      const ask = (medium: string, address: string) =>
        admin('GET', `v1/threepid/${medium}/users/${encodeURIComponent(address)}`);
      expect(await ask('email', 'Known@example.org')).toMatchObject({
        status: 200,
        body: { user_id: '@known:rookery.test' },
      });
      expect(await ask('email', 'other@example.org')).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
      expect(await ask('email', 'nothing')).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
      expect(await ask('pigeon', 'x')).toMatchObject({ status: 404, body: { errcode: 'M_NOT_FOUND' } });
    });

    it('find users by parts of their names', async () => {
      const found = await admin<Json[]>('GET', 'v1/search_users/@root:rookery.test?term=KNOW');
      expect(found).toMatchObject({ status: 200 });
      expect(found.body).toEqual([
        { name: '@known:rookery.test', password_hash: null, is_guest: false, admin: false, user_type: 'bot' },
      ]);
      expect((await admin('GET', 'v1/search_users/@root:rookery.test')).body['errcode']).toBe('M_MISSING_PARAM');
      expect((await admin('GET', 'v1/search_users/@root:elsewhere.test?term=x')).body['errcode']).toBe('M_UNKNOWN');
    });
  });

  it('tells the version to everybody', async () => {
    const { status, body } = await homeserver.request('GET', '/_synapse/admin/v1/server_version');
    expect(status).toBe(200);
    expect(body).toEqual({ server_version: expect.stringMatching(/\d+\.\d+\.\d+/) });
  });
});

describe('without a shared secret', () => {
  it('nobody registers with one', async () => {
    const { createTestHomeserver } = await import('@rookery/testing');
    const homeserver = await createTestHomeserver({ settings: { registration_shared_secret: undefined } });
    try {
      for (const method of ['GET', 'POST']) {
        const body = method === 'POST' ? { nonce: 'x', username: 'x', password: 'x', mac: 'x' } : undefined;
        expect((await homeserver.request(method, '/_synapse/admin/v1/register', body)).status).toBe(400);
      }
    } finally {
      await homeserver.stop();
    }
  });
});
