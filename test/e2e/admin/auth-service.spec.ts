import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createTestHomeserver, eventually, type TestHomeserver } from '@rookery/testing';
import { ForwardClock } from '../accounts/support.js';
import { acting, registerGhost, RegistrationFiles } from '../appservices/support.js';
import type { Json } from './support.js';

const secret = 'the secret that both know';
const api = 'urn:matrix:client:api:*';

/** The service that authenticates users, as far as the server asks it. */
interface FakeService {
  readonly url: string;
  /** Valid tokens. */
  readonly tokens: Map<string, Json>;
  /** Tokens that were asked for, in order. */
  readonly asked: string[];
  isDown: boolean;
  stop(): Promise<void>;
}

async function startService(): Promise<FakeService> {
  const tokens = new Map<string, Json>();
  const asked: string[] = [];
  const server: Server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const answer = (status: number, body: Json): void => {
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
      };
      if (service.isDown) return answer(500, {});
      if (request.url === '/.well-known/openid-configuration')
        return answer(200, { issuer: 'https://auth.example/', account_management_uri: 'https://auth.example/account' });
      const isKnown = request.headers.authorization === `Bearer ${secret}`;
      if (request.url !== '/oauth2/introspect' || !isKnown) return answer(401, {});
      const token = new URLSearchParams(Buffer.concat(chunks).toString()).get('token') ?? '';
      asked.push(token);
      return answer(200, tokens.get(token) ?? { active: false });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const service: FakeService = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    tokens,
    asked,
    isDown: false,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return service;
}

describe.each(['sqlite', 'postgres'] as const)('a service that authenticates users (%s)', (database) => {
  let service: FakeService;
  let homeserver: TestHomeserver;
  const clock = new ForwardClock();
  const files = new RegistrationFiles();

  beforeAll(async () => {
    service = await startService();
    homeserver = await createTestHomeserver({
      database,
      clock,
      settings: {
        public_baseurl: 'https://rookery.test/',
        enable_registration: false,
        enable_registration_without_verification: false,
        matrix_authentication_service: { enabled: true, endpoint: service.url, secret },
        email: { smtp_host: '127.0.0.1', smtp_port: 9, notif_from: 'R <r@rookery.test>', enable_notifs: true },
        app_service_config_files: [files.write('irc', {})],
      },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    await service?.stop();
    files.remove();
  });
  beforeEach(() => {
    service.isDown = false;
  });

  const mas = (method: string, name: string, body?: Json, token = secret) =>
    homeserver.request<Json>(method, `/_synapse/mas/${name}`, body, token);
  const query = async (localpart: string) => mas('GET', `query_user?localpart=${localpart}`);
  /** Gives out a token as the service would. */
  const issue = (token: string, username: string, scope: string, more: Json = {}): void =>
    void service.tokens.set(token, { active: true, username, scope, expires_in: 300, ...more });
  const as = <T = Json>(token: string, method: string, path: string, body?: unknown) =>
    homeserver.request<T>(method, path, body, token);
  const devicesOf = async (localpart: string): Promise<unknown[]> => {
    issue('an-admin', 'operator', `${api} urn:synapse:admin:*`);
    await mas('POST', 'provision_user', { localpart: 'operator' });
    const path = `/_synapse/admin/v2/users/@${localpart}:rookery.test/devices`;
    const { body } = await as<{ devices: Json[] }>('an-admin', 'GET', path);
    return body.devices.map((one) => one['device_id']);
  };

  it('makes accounts and changes them', async () => {
    expect(
      await mas('POST', 'provision_user', {
        localpart: 'ann',
        set_displayname: 'Ann',
        set_emails: ['ann@example.org'],
      }),
    ).toMatchObject({ status: 201, body: {} });
    expect((await query('ann')).body).toEqual({
      user_id: '@ann:rookery.test',
      display_name: 'Ann',
      avatar_url: null,
      is_suspended: false,
      is_deactivated: false,
    });
    const change = {
      localpart: 'ann',
      unset_displayname: true,
      set_avatar_url: 'mxc://rookery.test/a',
      unset_emails: true,
    };
    expect(await mas('POST', 'provision_user', change)).toMatchObject({ status: 200, body: {} });
    expect((await query('ann')).body).toMatchObject({ display_name: null, avatar_url: 'mxc://rookery.test/a' });
    expect((await mas('POST', 'set_displayname', { localpart: 'ann', displayname: 'Anna' })).body).toEqual({});
    expect((await query('ann')).body['display_name']).toBe('Anna');
    expect((await mas('POST', 'unset_displayname', { localpart: 'ann' })).body).toEqual({});
    expect((await query('ann')).body['display_name']).toBe(null);
    expect((await query('nobody')).status).toBe(404);
  });

  it('alone makes accounts: administrators change those that there are', async () => {
    issue('an-admin', 'operator', `${api} urn:synapse:admin:*`);
    await mas('POST', 'provision_user', { localpart: 'operator' });
    await mas('POST', 'provision_user', { localpart: 'there' });
    const put = (localpart: string): Promise<{ status: number; body: Json }> =>
      as('an-admin', 'PUT', `/_synapse/admin/v2/users/@${localpart}:rookery.test`, { displayname: 'Named' });
    expect(await put('there')).toMatchObject({ status: 200, body: { displayname: 'Named' } });
    expect(await put('elsewhere')).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect((await query('elsewhere')).status).toBe(404);
  });

  it('locks users out whatever else it wants, and has the last word about whose an address is', async () => {
    issue('an-admin', 'operator', `${api} urn:synapse:admin:*`);
    await mas('POST', 'provision_user', { localpart: 'operator' });
    const about = async (localpart: string): Promise<Json> => {
      const path = `users/@${localpart}:rookery.test`;
      const { body } = await as('an-admin', 'GET', `/_synapse/admin/v2/${path}`);
      const pushers = await as<{ pushers: Json[] }>('an-admin', 'GET', `/_synapse/admin/v1/${path}/pushers`);
      return {
        addresses: (body['threepids'] as Json[]).map(({ address }) => address),
        mails: pushers.body.pushers.map(({ pushkey }) => pushkey),
        locked: body['locked'],
      };
    };
    const had = ['moving@example.org', 'staying@example.org'];
    expect((await mas('POST', 'provision_user', { localpart: 'had', set_emails: had })).status).toBe(201);
    // Who is new gets mails about missed messages.
    expect(await about('had')).toEqual({ addresses: had, mails: expect.arrayContaining(had), locked: false });
    await mas('POST', 'provision_user', { localpart: 'has', set_emails: ['old@example.org'] });
    const change = { localpart: 'has', set_emails: ['Moving@example.org'], locked: true };
    for (let n = 0; n < 2; n++)
      expect(await mas('POST', 'provision_user', change)).toMatchObject({ status: 200, body: {} });
    expect(await about('had')).toEqual({ addresses: [had[1]], mails: [had[1]], locked: false });
    expect(await about('has')).toEqual({ addresses: [had[0]], mails: [], locked: true });
    const made = { localpart: 'will_have', set_emails: [had[0], had[0]], locked: true };
    expect(await mas('POST', 'provision_user', made)).toMatchObject({ status: 201, body: {} });
    expect(await about('has')).toEqual({ addresses: [], mails: [], locked: true });
    expect(await about('will_have')).toEqual({ addresses: [had[0]], mails: [had[0]], locked: true });
  });

  it('closes accounts and opens them again', async () => {
    await mas('POST', 'provision_user', { localpart: 'closed' });
    expect(await mas('POST', 'delete_user', { localpart: 'closed', erase: false })).toMatchObject({
      status: 200,
      body: {},
    });
    expect((await query('closed')).body['is_deactivated']).toBe(true);
    expect(await mas('POST', 'reactivate_user', { localpart: 'closed' })).toMatchObject({ status: 200, body: {} });
    expect((await query('closed')).body['is_deactivated']).toBe(false);
  });

  it('asks whether a name is free', async () => {
    await mas('POST', 'provision_user', { localpart: 'taken' });
    const ask = (name: string) => mas('GET', `is_localpart_available?localpart=${encodeURIComponent(name)}`);
    expect(await ask('free')).toMatchObject({ status: 200, body: {} });
    expect(await ask('taken')).toMatchObject({ status: 400, body: { errcode: 'M_USER_IN_USE' } });
    // Nobody could be provisioned with it.
    expect(await ask('Upper')).toMatchObject({ status: 400, body: { errcode: 'M_INVALID_USERNAME' } });
    expect(await ask('no good')).toMatchObject({ status: 400, body: { errcode: 'M_INVALID_USERNAME' } });
    expect(await mas('GET', 'is_localpart_available')).toMatchObject({
      status: 400,
      body: { errcode: 'M_MISSING_PARAM' },
    });
  });

  it('devices are made, renamed and deleted for a user', async () => {
    await mas('POST', 'provision_user', { localpart: 'dev' });
    const upsert = (body: Json) => mas('POST', 'upsert_device', { localpart: 'dev', ...body });
    expect(await upsert({ device_id: 'ONE', display_name: 'Phone' })).toMatchObject({ status: 201, body: {} });
    expect(await upsert({ device_id: 'ONE' })).toMatchObject({ status: 200, body: {} });
    const rename = { localpart: 'dev', device_id: 'ONE', display_name: 'Tablet' };
    expect(await mas('POST', 'update_device_display_name', rename)).toMatchObject({ status: 200, body: {} });
    expect(await mas('POST', 'sync_devices', { localpart: 'dev', devices: ['TWO', 'THREE'] })).toMatchObject({
      status: 200,
      body: {},
    });
    expect(await devicesOf('dev')).toEqual(['THREE', 'TWO']);
    expect((await mas('POST', 'delete_device', { localpart: 'dev', device_id: 'TWO' })).status).toBe(204);
    expect(await devicesOf('dev')).toEqual(['THREE']);
  });

  it.each([
    ['provision_user', { localpart: 'x', set_displayname: 'X', unset_displayname: true }, 400, 'M_INVALID_PARAM'],
    ['provision_user', { localpart: 'x', locked: 'yes' }, 400, 'M_BAD_JSON'],
    ['provision_user', { localpart: 'Upper' }, 400, 'M_INVALID_USERNAME'],
    ['provision_user', {}, 400, 'M_MISSING_PARAM'],
    ['delete_user', { localpart: 'nobody', erase: true }, 404, 'M_NOT_FOUND'],
    ['delete_user', { localpart: 'nobody' }, 400, 'M_MISSING_PARAM'],
    ['delete_user', { localpart: 'nobody', erase: 1 }, 400, 'M_BAD_JSON'],
    ['reactivate_user', { localpart: 'nobody' }, 404, 'M_NOT_FOUND'],
    ['set_displayname', { localpart: 'nobody', displayname: 'x' }, 404, 'M_NOT_FOUND'],
    ['unset_displayname', { localpart: 'nobody' }, 404, 'M_NOT_FOUND'],
    ['allow_cross_signing_reset', { localpart: 'nobody' }, 404, 'M_NOT_FOUND'],
    ['upsert_device', { localpart: 'nobody', device_id: 'X' }, 404, 'M_NOT_FOUND'],
    ['delete_device', { localpart: 'nobody', device_id: 'X' }, 404, 'M_NOT_FOUND'],
    ['update_device_display_name', { localpart: 'nobody', device_id: 'X', display_name: 'x' }, 404, 'M_NOT_FOUND'],
    ['sync_devices', { localpart: 'nobody', devices: [] }, 404, 'M_NOT_FOUND'],
    ['sync_devices', { localpart: 'nobody', devices: 'X' }, 400, 'M_BAD_JSON'],
  ])('is told that %s with %j cannot be', async (name, body, status, errcode) => {
    expect(await mas('POST', name, body)).toMatchObject({ status, body: { errcode } });
    expect(await mas('POST', name, body, 'wrong')).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    const withoutToken = await homeserver.request('POST', `/_synapse/mas/${name}`, body);
    expect(withoutToken).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
  });

  describe('gives out tokens that this server believes', () => {
    beforeAll(async () => {
      await mas('POST', 'provision_user', { localpart: 'bea' });
      await mas('POST', 'upsert_device', { localpart: 'bea', device_id: 'BEAS' });
    });
    const whoami = (token: string) => as(token, 'GET', '/account/whoami');

    it.each([
      ['with a device in the scope', `${api} urn:matrix:client:device:BEAS`, {}],
      [
        'with the older names',
        'urn:matrix:org.matrix.msc2967.client:api:* urn:matrix:org.matrix.msc2967.client:device:BEAS',
        {},
      ],
      ['with a device beside the scope', api, { device_id: 'BEAS' }],
    ])('%s', async (name, scope, more) => {
      issue(name.replaceAll(' ', '-'), 'bea', scope, more);
      expect(await whoami(name.replaceAll(' ', '-'))).toMatchObject({
        status: 200,
        body: { user_id: '@bea:rookery.test', device_id: 'BEAS' },
      });
    });

    it.each([
      ['unknown', 'bea', 'none at all', {}, 'x'],
      ['without-api', 'bea', 'openid', {}, undefined],
      ['of-nobody', 'nobody', api, {}, undefined],
      ['of-no-device', 'bea', api, { device_id: 'GONE' }, undefined],
      ['of-two-devices', 'bea', `${api} urn:matrix:client:device:BEAS urn:matrix:client:device:B`, {}, undefined],
      ['inactive', 'bea', api, { active: false }, undefined],
    ])('but not one that is %s', async (token, username, scope, more, other) => {
      issue(token, username, scope, more);
      expect(await whoami(other ?? token)).toMatchObject({ status: 401, body: { errcode: 'M_UNKNOWN_TOKEN' } });
    });

    it('for two minutes, without asking again', async () => {
      issue('lasting', 'bea', api);
      const asked = (): number => service.asked.filter((token) => token === 'lasting').length;
      // Each process asks for itself.
      const processes = homeserver.servers.length;
      await eventually(async () => {
        await Promise.all([whoami('lasting'), whoami('lasting'), whoami('lasting')]);
        return asked() >= processes;
      });
      service.tokens.delete('lasting');
      for (let n = 0; n < 8; n++) expect((await whoami('lasting')).status).toBe(200);
      expect(asked()).toBe(processes);
      clock.advance(121_000);
      expect((await whoami('lasting')).status).toBe(401);
    });

    it('but asks again once it could not ask', async () => {
      issue('later', 'bea', api);
      service.isDown = true;
      expect(await whoami('later')).toMatchObject({ status: 503, body: { errcode: 'M_UNKNOWN' } });
      service.isDown = false;
      expect((await whoami('later')).status).toBe(200);
    });

    it('as those of administrators only where the service says so', async () => {
      issue('plain', 'bea', api);
      issue('powerful', 'bea', `${api} urn:synapse:admin:*`);
      expect((await as('plain', 'GET', '/_synapse/admin/v2/users')).status).toBe(403);
      expect((await as('powerful', 'GET', '/_synapse/admin/v2/users')).status).toBe(200);
      expect((await as('powerful', 'GET', '/_synapse/admin/v2/users?guests=true')).body['errcode']).toBe(
        'M_INVALID_PARAM',
      );
    });

    it('until the account is locked or closed', async () => {
      await mas('POST', 'provision_user', { localpart: 'cut' });
      issue('cut-token', 'cut', api);
      expect((await whoami('cut-token')).status).toBe(200);
      await mas('POST', 'provision_user', { localpart: 'cut', locked: true });
      expect(await whoami('cut-token')).toMatchObject({ status: 401, body: { errcode: 'M_USER_LOCKED' } });
      await mas('POST', 'delete_user', { localpart: 'cut', erase: true });
      expect(await whoami('cut-token')).toMatchObject({ status: 401, body: { errcode: 'M_UNKNOWN_TOKEN' } });
    });

    it('to replace the cross-signing keys when the service has allowed it', async () => {
      issue('keys', 'bea', `${api} urn:matrix:client:device:BEAS`);
      const upload = (key: string) =>
        as('keys', 'POST', '/keys/device_signing/upload', {
          master_key: { user_id: '@bea:rookery.test', usage: ['master'], keys: { [`ed25519:${key}`]: key } },
        });
      expect((await upload('nqOvzeuGWT/sRx3h7+MHoInYj3Uk2LD/unI9kDYcHwk')).status).toBe(200);
      const url = 'https://auth.example/account?action=org.matrix.cross_signing_reset';
      const refused = await upload('EmkqvokUn8p+vQAGZitOk4PWjp7Ukp3txV2TbMPEiBQ');
      expect(refused.status).toBe(401);
      expect(refused.body).toEqual({
        session: 'dummy',
        flows: [{ stages: ['m.oauth'] }, { stages: ['org.matrix.cross_signing_reset'] }],
        params: { 'm.oauth': { url }, 'org.matrix.cross_signing_reset': { url } },
      });
      expect((await mas('POST', 'allow_cross_signing_reset', { localpart: 'bea' })).body).toEqual({});
      expect((await upload('EmkqvokUn8p+vQAGZitOk4PWjp7Ukp3txV2TbMPEiBQ')).status).toBe(200);
      // Who has no keys needs no permission, which is no error.
      expect((await mas('POST', 'allow_cross_signing_reset', { localpart: 'operator' })).status).toBe(200);
      const fallback = await fetch(`${homeserver.baseUrl}/_matrix/client/v3/auth/m.oauth/fallback/web`, {
        redirect: 'manual',
      });
      expect([fallback.status, fallback.headers.get('location')]).toEqual([302, url]);
    });
  });

  it('is found by clients', async () => {
    const metadata = { issuer: 'https://auth.example/', account_management_uri: 'https://auth.example/account' };
    for (const path of ['v1/auth_metadata', 'unstable/org.matrix.msc2965/auth_metadata'])
      expect((await homeserver.request('GET', `/_matrix/client/${path}`)).body).toEqual(metadata);
    // Of the proposal's first form, and gone: clients read the metadata.
    const issuer = await homeserver.request('GET', '/_matrix/client/unstable/org.matrix.msc2965/auth_issuer');
    expect(issuer).toMatchObject({ status: 404, body: { errcode: 'M_UNRECOGNIZED' } });
    const wellKnown = await homeserver.request('GET', '/.well-known/matrix/client');
    expect(wellKnown.body).toMatchObject({
      'm.homeserver': { base_url: 'https://rookery.test/' },
      'org.matrix.msc2965.authentication': { issuer: 'https://auth.example/', account: 'https://auth.example/account' },
    });
  });

  it('does not keep clients from finding the server while it is down, whether it was known or not', async () => {
    const wellKnown = async (): Promise<unknown> => {
      const { status, body, headers } = await homeserver.request<Json>('GET', '/.well-known/matrix/client');
      const isWhole = body['org.matrix.msc2965.authentication'] !== undefined;
      expect(headers.get('cache-control')?.startsWith('public')).toBe(isWhole);
      expect([status, body['m.homeserver']]).toEqual([200, { base_url: 'https://rookery.test/' }]);
      return body['org.matrix.msc2965.authentication'];
    };
    const metadata = () => homeserver.request('GET', '/_matrix/client/v1/auth_metadata');
    const known = { issuer: 'https://auth.example/', account: 'https://auth.example/account' };
    expect(await wellKnown()).toEqual(known);
    clock.advance(601_000);
    service.isDown = true;
    expect([await wellKnown(), (await metadata()).status]).toEqual([known, 200]);

    await homeserver.restart();
    expect([await wellKnown(), (await metadata()).status]).toEqual([undefined, 503]);
    service.isDown = false;
    clock.advance(5_000);
    expect(await wellKnown()).toEqual(known);
  });

  it('leaves application services their users and the devices of these, without sessions', async () => {
    const type = 'm.login.application_service';
    const unsupported = { status: 400, body: { errcode: 'M_APPSERVICE_LOGIN_UNSUPPORTED' } };
    expect(await as('as-irc', 'POST', '/register', { type, username: 'irc_ann' })).toMatchObject(unsupported);
    const ghost = await registerGhost(homeserver, 'irc', 'irc_ann');
    const identifier = { type: 'm.id.user', user: ghost.userId };
    expect(await as('as-irc', 'POST', '/login', { type, identifier })).toMatchObject(unsupported);
    expect(await as('as-irc', 'POST', '/login', { type: 'm.login.password', identifier, password: 'x' })).toMatchObject(
      { status: 404, body: { errcode: 'M_UNRECOGNIZED' } },
    );
    for (const device of ['ONE', 'TWO', 'THREE'])
      expect((await ghost.request('PUT', `/devices/${device}`, {})).status).toBe(201);
    expect(await ghost.request('DELETE', '/devices/ONE', {})).toMatchObject({ status: 200, body: {} });
    expect(await ghost.request('POST', '/delete_devices', { devices: ['TWO'] })).toMatchObject({
      status: 200,
      body: {},
    });
    expect((await ghost.request<{ devices: Json[] }>('GET', '/devices')).body.devices).toMatchObject([
      { device_id: 'THREE' },
    ]);
    // Somebody else's are not theirs.
    const path = '/devices/THREE';
    expect((await acting(homeserver, 'irc', '@bea:rookery.test').request('DELETE', path, {})).status).toBe(403);
  });

  it.each([
    ['GET', '/login'],
    ['POST', '/login'],
    ['POST', '/login/get_token', 'v1'],
    ['GET', '/register'],
    ['POST', '/register'],
    ['POST', '/register?kind=guest'],
    ['GET', '/register/available?username=x'],
    ['GET', '/register/m.login.registration_token/validity?token=x', 'v1'],
    ['POST', '/refresh'],
    ['POST', '/logout'],
    ['POST', '/logout/all'],
    ['POST', '/account/password'],
    ['POST', '/account/deactivate'],
    ['POST', '/account/3pid/add'],
    ['POST', '/account/3pid/delete'],
    ['POST', '/account/3pid/email/requestToken'],
    ['POST', '/delete_devices'],
    ['DELETE', '/devices/BEAS'],
    ['GET', '/_synapse/admin/v1/register'],
    ['POST', '/_synapse/admin/v1/register'],
    ['GET', '/_synapse/admin/v1/registration_tokens'],
    ['POST', '/_synapse/admin/v1/users/@ann:rookery.test/login'],
    ['POST', '/_synapse/admin/v1/reset_password/@ann:rookery.test'],
    ['GET', '/_synapse/admin/v1/users/@ann:rookery.test/admin'],
    ['POST', '/_synapse/admin/v1/account_validity/validity'],
  ])('takes the place of %s %s', async (method, path, version = 'v3') => {
    issue('someone', 'bea', `${api} urn:synapse:admin:*`);
    const url = path.startsWith('/_') ? path : `/_matrix/client/${version}${path}`;
    expect(await as('someone', method, url, method === 'POST' ? {} : undefined)).toMatchObject({
      status: 404,
      body: { errcode: 'M_UNRECOGNIZED' },
    });
  });
});

describe('without a service that authenticates users', () => {
  it('there is no way in for one, and nothing to be found', async () => {
    const homeserver = await createTestHomeserver();
    try {
      for (const [method, path] of [
        ['GET', '/_synapse/mas/query_user?localpart=x'],
        ['POST', '/_synapse/mas/provision_user'],
        ['GET', '/_matrix/client/v1/auth_metadata'],
      ] as const)
        expect(await homeserver.request(method, path, method === 'POST' ? {} : undefined, 'x')).toMatchObject({
          status: 404,
          body: { errcode: 'M_UNRECOGNIZED' },
        });
    } finally {
      await homeserver.stop();
    }
  });
});
