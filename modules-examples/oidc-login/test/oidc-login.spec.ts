import { fileURLToPath } from 'node:url';
import { FakeProvider, makeToken } from '../../../test/e2e/sso/fake-provider.js';
import { startWorld, type World } from '../../../test/e2e/sso/world.js';
import { parseConfig } from '../src/config.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
const seconds = (): number => Math.floor(Date.now() / 1000);

describe('signing in with OpenID Connect by a module', () => {
  let provider: FakeProvider;
  let world: World;
  beforeAll(async () => {
    provider = await FakeProvider.start();
    const common = { issuer: provider.issuer, client_secret: 'secret' };
    world = await startWorld('sqlite', {
      refreshable_access_token_lifetime: '5m',
      modules: [
        {
          module,
          config: {
            providers: [
              { ...common, id: 'one', name: 'One', client_id: 'rookery' },
              { ...common, id: 'two', name: 'Two', client_id: 'rookery' },
              { ...common, id: 'older', name: 'Older', client_id: 'rookery', allow_existing_users: true },
            ],
          },
        },
      ],
    });
  });
  beforeEach(() => provider.reset());
  afterAll(async () => {
    await world?.stop();
    await provider?.stop();
  });

  const signOn = async (name: string, more: object = {}, idp = 'one') => {
    provider.person = { sub: `sub-${name}`, preferred_username: name, name: name.toUpperCase(), ...more };
    const browser = world.browser();
    const shown = await world.begin(browser, idp);
    return shown.location ? shown : browser.submit(shown);
  };

  it('knows people again, each at the instance they came by', async () => {
    const user = await world.logIn(await signOn('anna'));
    expect(user.userId).toBe('@anna:rookery.test');
    expect(provider.asked.get('code_challenge_method')).toBe('S256');
    expect((await user.request('GET', `/profile/${user.userId}`)).body).toMatchObject({ displayname: 'ANNA' });
    expect((await world.logIn(await signOn('anna'))).userId).toBe(user.userId);
    expect((await world.logIn(await signOn('anna', {}, 'two'))).userId).toBe('@anna1:rookery.test');
  });

  it('gives people the account that they had before, where the settings say so', async () => {
    const older = await world.homeserver.registerUser('older');
    expect((await world.logIn(await signOn('older'))).userId).toBe('@older1:rookery.test');
    expect((await world.logIn(await signOn('older', {}, 'older'))).userId).toBe(older.userId);
  });

  it('takes no token that is not the provider’s', async () => {
    provider.person = { sub: 'mallory' };
    provider.idToken = (claims) => ({ ...claims, aud: 'somebody else' });
    expect((await world.begin(world.browser(), 'one')).status).toBe(502);
    provider.idToken = (claims) => ({ ...claims, iss: 'https://elsewhere.example' });
    expect((await world.begin(world.browser(), 'one')).status).toBe(502);
  });

  it('ends the session with the provider’s refresh token', async () => {
    let valid = true;
    provider.answers.set('/token', ({ form }) =>
      form.get('grant_type') !== 'refresh_token'
        ? {
            body: {
              ...{ access_token: 'a', token_type: 'Bearer', refresh_token: 'r' },
              id_token: makeToken({
                ...{ iss: provider.issuer, aud: 'rookery', iat: seconds(), exp: seconds() + 300 },
                ...{ sub: 'sub-rita', preferred_username: 'rita' },
              }),
            },
          }
        : valid
          ? { body: { access_token: 'b', token_type: 'Bearer', refresh_token: 's' } }
          : { status: 400, body: { error: 'invalid_grant' } },
    );
    const shown = await signOn('rita');
    const { body: session } = await world.homeserver.request<Record<string, string>>('POST', '/login', {
      type: 'm.login.token',
      token: shown.location?.searchParams.get('loginToken'),
      refresh_token: true,
    });
    const refresh = (token: string | undefined) =>
      world.homeserver.request<Record<string, string>>('POST', '/refresh', { refresh_token: token });
    const next = await refresh(session['refresh_token']);
    expect(next).toMatchObject({ status: 200 });
    valid = false;
    expect(await refresh(next.body['refresh_token'])).toMatchObject({ status: 401, body: { soft_logout: false } });
  });

  it('ends sessions that the provider ends', async () => {
    const user = await world.logIn(await signOn('lola', { sid: 'session 1' }));
    const send = (claims: object, signing: Parameters<typeof makeToken>[1] = {}) =>
      fetch(`${world.homeserver.baseUrl}/_synapse/client/sso/one/logout`, {
        method: 'POST',
        body: new URLSearchParams({
          logout_token: makeToken(
            {
              ...{ iss: provider.issuer, aud: 'rookery', iat: seconds(), exp: seconds() + 60 },
              ...{ jti: Math.random().toString(), sub: 'sub-lola', sid: 'session 1' },
              events: { 'http://schemas.openid.net/event/backchannel-logout': {} },
              ...claims,
            },
            signing,
          ),
        }),
      });
    let fetched = 0;
    provider.answers.set('/jwks', () => ((fetched += 1), undefined as never));
    for (const answer of [
      await send({}, { foreign: true }),
      await send({}, { alg: 'none' }),
      await send({ aud: 'somebody else' }),
      await send({ events: {} }),
      await send({ events: { 'http://schemas.openid.net/event/backchannel-logout': null } }),
      await send({ events: { 'http://schemas.openid.net/event/backchannel-logout': 'yes' } }),
      await send({ iat: seconds() - 3_600, exp: undefined }),
      await send({ nonce: 'x' }),
    ])
      expect(answer.status).toBe(400);
    expect((await user.request('GET', '/account/whoami')).status).toBe(200);
    expect(fetched).toBe(1);
    // The provider's clock may be a little ahead.
    expect((await send({ iat: seconds() + 30 })).status).toBe(200);
    expect((await user.request('GET', '/account/whoami')).status).toBe(401);
  });
});

it.each([
  [undefined, 'expected a list'],
  [{ providers: [{ id: 'a', name: 'b', issuer: 'http://id.example' }] }, 'expected an https address'],
  [{ providers: [{ id: 'a', name: 'b', issuer: 'https://id.example' }] }, 'expected a text'],
])('refuses settings that are wrong: %j', (raw, words) => {
  expect(() => parseConfig(raw)).toThrow(words);
});
