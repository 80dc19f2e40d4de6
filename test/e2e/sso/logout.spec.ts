import { Database } from '@rookery/database';
import { ForwardClock } from '../accounts/support.js';
import { FakeProvider, makeToken } from './fake-provider.js';
import { startWorld, type World } from './world.js';

const event = 'http://schemas.openid.net/event/backchannel-logout';
const seconds = (): number => Math.floor(Date.now() / 1000);

describe.each(['sqlite', 'postgres'] as const)('logout from the provider’s side (%s)', (kind) => {
  let provider: FakeProvider;
  let world: World;
  const clock = new ForwardClock();

  beforeAll(async () => {
    provider = await FakeProvider.start();
    const common = { issuer: provider.issuer, client_secret: 'secret' };
    const mapping = { config: { localpart_template: '{{ user.name }}' } };
    world = await startWorld(
      kind,
      {
        oidc_providers: [
          {
            ...common,
            idp_id: 'ends',
            idp_name: 'Ends',
            client_id: 'rookery',
            backchannel_logout_enabled: true,
            user_mapping_provider: mapping,
          },
          {
            ...common,
            idp_id: 'keeps',
            idp_name: 'Keeps',
            client_id: 'keeper',
            user_mapping_provider: mapping,
          },
          {
            ...common,
            idp_id: 'blind',
            idp_name: 'Blind',
            client_id: 'blind',
            backchannel_logout_enabled: true,
            backchannel_logout_ignore_sub: true,
            user_mapping_provider: { config: { ...mapping.config, subject_template: '{{ user.name }}' } },
          },
        ],
      },
      { clock },
    );
  });
  beforeEach(() => provider.reset());
  afterAll(async () => {
    await world?.stop();
    await provider?.stop();
  });

  const logIn = async (idp: string, name: string, sid?: string, aud = 'rookery') => {
    provider.person = { sub: `sub-${name}`, name, ...(sid === undefined ? {} : { sid }) };
    provider.idToken = (claims) => ({ ...claims, aud });
    return world.logIn(await world.begin(world.browser(), idp));
  };
  const lives = async (user: { request: (method: string, path: string) => Promise<{ status: number }> }) =>
    (await user.request('GET', '/account/whoami')).status === 200;
  let count = 0;
  const claimsOf = (more: Record<string, unknown>) => ({
    iss: provider.issuer,
    aud: 'rookery',
    iat: seconds(),
    exp: seconds() + 60,
    jti: `token ${kind} ${++count}`,
    events: { [event]: {} },
    ...more,
  });
  const post = async (form: Record<string, string>) => {
    const response = await fetch(`${world.homeserver.baseUrl}/_synapse/client/oidc/backchannel_logout`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams(form).toString(),
    });
    expect(response.headers.get('cache-control')).toContain('no-store');
    return { status: response.status, text: await response.text() };
  };
  const logOut = (more: Record<string, unknown>, signing?: Parameters<typeof makeToken>[1]) =>
    post({ logout_token: makeToken(claimsOf(more), signing) });

  it('ends exactly the sessions that the provider names', async () => {
    const one = await logIn('oidc-ends', 'anna', 'sid-1');
    const two = await logIn('oidc-ends', 'anna', 'sid-2');
    const other = await logIn('oidc-ends', 'bert', 'sid-3');
    expect(await logOut({ sid: 'sid-1', sub: 'sub-anna' })).toEqual({ status: 200, text: '' });
    expect([await lives(one), await lives(two), await lives(other)]).toEqual([false, true, true]);
    const devices = await two.request<{ devices: { device_id: string }[] }>('GET', '/devices');
    expect(devices.body.devices.map((device) => device.device_id)).toEqual([two.deviceId]);
    // A session that is unknown is no fault.
    expect(await logOut({ sid: 'sid-9', sub: 'sub-anna' })).toMatchObject({ status: 200 });
  });

  it('ends all sessions of a person where no session is named, at this provider', async () => {
    const one = await logIn('oidc-ends', 'carl', 'sid-4');
    const two = await logIn('oidc-ends', 'carl', 'sid-5');
    const byHand = await world.homeserver.registerUser('carla');
    expect(await logOut({ sub: 'sub-carl' })).toMatchObject({ status: 200 });
    expect([await lives(one), await lives(two), await lives(byHand)]).toEqual([false, false, true]);
  });

  it('takes a request again that came to nothing, and no other', async () => {
    const user = await logIn('oidc-ends', 'greta', 'sid-30');
    const token = makeToken(claimsOf({ sid: 'sid-30', sub: 'sub-greta' }));
    const database = world.homeserver.server.service(Database);
    const { write } = database;
    database.write = (work, options) =>
      options?.name === 'session_close_devices'
        ? Promise.reject(new Error('The database is away'))
        : (write.call(database, work, options) as ReturnType<typeof work>);
    const failed = await fetch(`${world.homeserver.baseUrl}/_synapse/client/oidc/backchannel_logout`, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ logout_token: token }).toString(),
    });
    database.write = write;
    expect([failed.status, await lives(user)]).toEqual([500, true]);
    expect(await post({ logout_token: token })).toEqual({ status: 200, text: '' });
    expect(await lives(user)).toBe(false);
    expect(await post({ logout_token: token })).toMatchObject({ status: 400 });
  });

  it('leaves a device alone that was logged in to anew since', async () => {
    const first = await logIn('oidc-ends', 'fritz', 'sid-20');
    provider.person = { ...provider.person, sid: 'sid-21' };
    const shown = await world.begin(world.browser(), 'oidc-ends');
    const { body } = await world.homeserver.request<Record<string, string>>('POST', '/login', {
      type: 'm.login.token',
      token: shown.location?.searchParams.get('loginToken'),
      device_id: first.deviceId,
    });
    expect(body).toMatchObject({ user_id: first.userId, device_id: first.deviceId });
    const whoami = () => world.homeserver.request('GET', '/account/whoami', undefined, body['access_token']);
    expect(await logOut({ sid: 'sid-20', sub: 'sub-fritz' })).toMatchObject({ status: 200 });
    expect(await whoami()).toMatchObject({ status: 200 });
    expect(await logOut({ sid: 'sid-21', sub: 'sub-fritz' })).toMatchObject({ status: 200 });
    expect(await whoami()).toMatchObject({ status: 401 });
  });

  it('ends a login that was not finished yet', async () => {
    provider.person = { sub: 'sub-dora', name: 'dora', sid: 'sid-6' };
    const shown = await world.begin(world.browser(), 'oidc-ends');
    expect(await logOut({ sid: 'sid-6' })).toMatchObject({ status: 200 });
    const token = shown.location?.searchParams.get('loginToken');
    expect(await world.homeserver.request('POST', '/login', { type: 'm.login.token', token })).toMatchObject({
      status: 403,
    });
  });

  it.each<[string, Record<string, unknown>, Parameters<typeof makeToken>[1]?]>([
    ['another issuer', { iss: 'https://evil.example' }],
    ['another audience', { aud: 'somebody' }],
    ['a provider that may not', { aud: 'keeper' }],
    ['somebody else’s signature', {}, { foreign: true }],
    ['no signature', {}, { alg: 'none' }],
    ['a signature with a shared secret', {}, { alg: 'HS256' }],
    ['an unknown key', {}, { kid: 'two' }],
    ['no event', { events: undefined }],
    ['another event', { events: { 'https://example.org/other': {} } }],
    ['a nonce', { nonce: 'x' }],
    ['nobody', { sid: undefined, sub: undefined }],
    ['no id', { jti: undefined }],
    ['an old token', { iat: seconds() - 100_000, exp: undefined }],
    ['an expired token', { exp: seconds() - 500 }],
    ['a token of the future', { iat: seconds() + 5_000 }],
    ['a session of another person', { sub: 'sub-anna' }],
    ['an unknown person', { sub: 'sub-nobody' }],
  ])('refuses %s', async (_what, more, signing = {}) => {
    const victim = await logIn('oidc-ends', 'victim', 'sid-victim');
    const status = more['sub'] === 'sub-anna' ? 200 : 400;
    expect(await logOut({ sid: 'sid-victim', ...more }, signing)).toMatchObject({ status });
    expect(await lives(victim)).toBe(true);
  });

  it('takes a token once, and only tokens', async () => {
    const first = await logIn('oidc-ends', 'emil', 'sid-7');
    const token = makeToken(claimsOf({ sid: 'sid-7' }));
    expect(await post({ logout_token: token })).toMatchObject({ status: 200 });
    expect(await lives(first)).toBe(false);
    const again = await logIn('oidc-ends', 'emil', 'sid-7');
    expect(await post({ logout_token: token })).toMatchObject({ status: 400 });
    expect(await lives(again)).toBe(true);
    expect(await post({})).toMatchObject({ status: 400 });
    for (const rubbish of ['', 'x', 'a.b.c', '..', 'x'.repeat(20_000)])
      expect(await post({ logout_token: rubbish })).toMatchObject({ status: 400 });
  });

  it('looks at the session alone where the settings say so', async () => {
    const gina = await logIn('oidc-blind', 'gina', 'sid-8', 'blind');
    expect(await logOut({ aud: 'blind', sid: 'sid-8', sub: 'something else' })).toMatchObject({ status: 200 });
    expect(await lives(gina)).toBe(false);
  });

  it('says so when the keys cannot be had, and ends nothing', async () => {
    const hugo = await logIn('oidc-blind', 'hugo', 'sid-10', 'blind');
    clock.advance(61_000);
    provider.answers.set('/jwks', () => ({ status: 500, body: {} }));
    expect(await logOut({ aud: 'blind', sid: 'sid-10' })).toMatchObject({ status: 502 });
    expect(await lives(hugo)).toBe(true);
  });
});
