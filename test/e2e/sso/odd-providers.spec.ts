import { createPublicKey, generateKeyPairSync, verify } from 'node:crypto';
import { challengeOf } from '../accounts/support.js';
import { FakeProvider } from './fake-provider.js';
import { base, startWorld, trusted, type World } from './world.js';

const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });

describe('providers that are not quite OpenID Connect', () => {
  let provider: FakeProvider;
  let world: World;

  beforeAll(async () => {
    provider = await FakeProvider.start();
    const common = { issuer: provider.issuer, client_id: 'rookery', client_secret: 'secret' };
    const mapping = { config: { localpart_template: '{{ user.login or user.name }}' } };
    world = await startWorld('sqlite', {
      password_config: { enabled: false },
      experimental_features: { msc4450_enabled: true },
      oidc_providers: [
        {
          ...common,
          idp_id: 'oauth',
          idp_name: 'OAuth2 alone',
          discover: false,
          scopes: ['read:user'],
          authorization_endpoint: `${provider.issuer}/authorize`,
          token_endpoint: `${provider.issuer}/token`,
          userinfo_endpoint: `${provider.issuer}/userinfo`,
          allow_existing_users: true,
          user_mapping_provider: { config: { ...mapping.config, subject_template: '{{ user.id }}' } },
        },
        {
          ...common,
          idp_id: 'jwt',
          idp_name: 'Signed secret',
          client_secret: undefined,
          client_secret_jwt_key: {
            key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }),
            jwt_header: { alg: 'ES256', kid: 'mine' },
            jwt_payload: { iss: 'team', sub: 'rookery', aud: 'https://id.example' },
          },
          client_auth_method: 'client_secret_post',
          redirect_uri: `${base}/_synapse/client/oidc/callback`,
          user_mapping_provider: mapping,
        },
        {
          ...common,
          idp_id: 'renamed',
          idp_name: 'Another issuer',
          issuer: `${provider.issuer}/tenants/common`,
          skip_verification: true,
          pkce_method: 'always',
          user_mapping_provider: mapping,
        },
        {
          ...common,
          idp_id: 'strict',
          idp_name: 'Another issuer, checked',
          issuer: `${provider.issuer}/tenants/common`,
          user_mapping_provider: mapping,
        },
        {
          ...common,
          idp_id: 'userinfo',
          idp_name: 'User information',
          client_secret: undefined,
          client_auth_method: 'none',
          user_profile_method: 'userinfo_endpoint',
          user_mapping_provider: mapping,
        },
      ],
    });
  });
  beforeEach(() => provider.reset());
  afterAll(async () => {
    await world?.stop();
    await provider?.stop();
  });

  const signOn = async (idp: string) => world.logIn(await world.begin(world.browser(), idp));

  it('OAuth2 without ID tokens', async () => {
    provider.person = { id: 4711, login: 'octo', name: null };
    expect((await signOn('oidc-oauth')).userId).toBe('@octo:rookery.test');
    expect(provider.asked.has('nonce')).toBe(false);
    expect(provider.asked.get('scope')).toBe('read:user');
    // Nobody without an id becomes anybody.
    for (const person of [{ login: 'nobody' }, { id: null, login: 'nobody' }, { id: '', login: 'nobody' }]) {
      provider.person = person;
      const shown = await world.begin(world.browser(), 'oidc-oauth');
      expect(shown.html).toContain('<code>mapping_error</code>');
    }
  });

  it('a secret that is a signed token', async () => {
    provider.person = { sub: 'j', name: 'jay' };
    expect((await signOn('oidc-jwt')).userId).toBe('@jay:rookery.test');
    const secret = provider.exchanges.at(-1)?.form.get('client_secret') ?? '';
    const [header = '', payload = '', signature = ''] = secret.split('.');
    expect(JSON.parse(Buffer.from(header, 'base64url').toString())).toEqual({ alg: 'ES256', kid: 'mine' });
    const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as { iat: number; exp: number };
    expect(claims).toMatchObject({ iss: 'team', sub: 'rookery', aud: 'https://id.example' });
    expect(claims.exp - claims.iat).toBe(300);
    const key = createPublicKey(keys.privateKey.export({ type: 'pkcs8', format: 'pem' }));
    const signed = Buffer.from(`${header}.${payload}`);
    const options = { key, dsaEncoding: 'ieee-p1363' } as const;
    expect(verify('sha256', signed, options, Buffer.from(signature, 'base64url'))).toBe(true);
  });

  it('metadata of another issuer, only where nothing is checked', async () => {
    const metadata = await fetch(`${provider.issuer}/.well-known/openid-configuration`).then((one) => one.text());
    provider.answers.set('/tenants/common/.well-known/openid-configuration', () => ({ text: metadata }));
    provider.person = { sub: 'k', name: 'kay' };
    expect((await signOn('oidc-renamed')).userId).toBe('@kay:rookery.test');
    const shown = await world.begin(world.browser(), 'oidc-strict');
    expect(shown).toMatchObject({ status: 502 });
    expect(shown.html).toContain('<code>provider_unavailable</code>');
  });

  it('claims from the userinfo endpoint, without a secret', async () => {
    provider.person = { sub: 'l' };
    provider.userinfo = { sub: 'l', name: 'lea' };
    expect((await signOn('oidc-userinfo')).userId).toBe('@lea:rookery.test');
    expect(provider.exchanges.at(-1)).toMatchObject({ authorization: undefined });
    expect(provider.exchanges.at(-1)?.form.get('client_id')).toBe('rookery');
    expect(provider.exchanges.at(-1)?.form.has('client_secret')).toBe(false);
  });

  it('scopes of a token as a list', async () => {
    provider.person = { id: 5, login: 'lists' };
    provider.answers.set('/token', () => ({
      body: { access_token: 'a', token_type: 'bearer', scope: ['read', 'write'], expires_in: 300 },
    }));
    expect((await signOn('oidc-oauth')).userId).toBe('@lists:rookery.test');
  });

  it('people of several providers confirm by any of them', async () => {
    provider.person = { sub: 'm', name: 'mia' };
    const mia = await signOn('oidc-jwt');
    provider.person = { id: 99, login: 'mia' };
    expect((await signOn('oidc-oauth')).userId).toBe(mia.userId);
    const challenge = await challengeOf(mia.request('POST', '/delete_devices', { devices: [] }));
    expect(challenge.flows).toEqual([{ stages: ['m.login.sso'] }]);
    const fallback = `${base}/_matrix/client/v3/auth/m.login.sso/fallback/web?session=${challenge.session}`;
    expect((await world.browser().go(fallback)).html).toContain('OAuth2 alone');
    expect((await world.browser().go(`${fallback}&io.element.idp_id=oidc-jwt`)).html).toContain('Signed secret');
    const wrong = await world.browser().go(`${fallback}&io.element.idp_id=oidc-userinfo`);
    expect(wrong.html).toContain('<code>no_user</code>');
  });
});

it('works below other prefixes, and below a path of the proxy', async () => {
  const provider = await FakeProvider.start();
  const world = await startWorld('sqlite', {
    public_baseurl: `${base}/matrix/`,
    protocol_prefix: '_proto',
    service_prefix: '_svc',
    oidc_providers: [
      {
        idp_id: 'fake',
        idp_name: 'Fake',
        issuer: provider.issuer,
        client_id: 'rookery',
        client_secret: 'secret',
      },
    ],
  });
  try {
    provider.person = { sub: '1' };
    const below = (url: URL): string => `${base}${url.pathname.replace('/matrix', '')}${url.search}`;
    const { homeserver } = world;
    // The proxy takes `/matrix` away.
    const go = async (url: URL, cookie: string, form?: URLSearchParams) =>
      fetch(below(url).replace(base, homeserver.baseUrl), {
        redirect: 'manual',
        headers: { cookie, host: 'matrix.rookery.test' },
        ...(form ? { method: 'POST', body: form } : {}),
      });
    const cookiesOf = (response: Response): string =>
      response.headers
        .getSetCookie()
        .map((one) => one.split(';', 1)[0])
        .join('; ');
    const query = new URLSearchParams({ redirectUrl: trusted, canonical: '1' }).toString();
    const start = await go(new URL(`${base}/matrix/_proto/client/v3/login/sso/redirect?${query}`), '');
    expect(start.headers.getSetCookie()[0]).toContain('Path=/matrix/_svc/client/oidc;');
    const asked = await fetch(start.headers.get('location')!, { redirect: 'manual' });
    const callback = new URL(asked.headers.get('location')!);
    expect(callback.href).toContain(`${base}/matrix/_svc/client/oidc/callback?`);
    const picker = await go(callback, cookiesOf(start));
    const details = new URL(picker.headers.get('location')!);
    expect(details.href).toBe(`${base}/matrix/_svc/client/pick_username/account_details`);
    expect(picker.headers.getSetCookie().at(0)).toMatch(/Path=\/matrix\/_svc\/client/);
    const session = cookiesOf(picker);
    const chosen = await go(details, session, new URLSearchParams({ username: 'anna' }));
    const done = await go(new URL(chosen.headers.get('location')!), session);
    expect(done.headers.get('location')).toContain(`${trusted}?loginToken=`);
  } finally {
    await world.stop();
    await provider.stop();
  }
});
