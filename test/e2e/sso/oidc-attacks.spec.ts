import { ForwardClock } from '../accounts/support.js';
import type { Shown } from './browser.js';
import { FakeProvider } from './fake-provider.js';
import { base, startWorld, trusted, type World } from './world.js';

const callback = `${base}/_synapse/client/oidc/callback`;

/** The page that tells why a sign-on failed, by its code. */
function expectFailure(shown: Shown, code: string, status = 400): void {
  expect({ status: shown.status, html: shown.html, location: shown.location?.href }).toMatchObject({ status });
  expect(shown.html).toContain(`<code>${code}</code>`);
  expect(shown.headers['content-security-policy']).toMatch(/default-src 'none'/);
  expect(shown.html).not.toContain('loginToken');
}

describe.each(['sqlite', 'postgres'] as const)('what a provider or a stranger may try (%s)', (kind) => {
  let provider: FakeProvider;
  let world: World;
  const clock = new ForwardClock();

  beforeAll(async () => {
    provider = await FakeProvider.start();
    const common = { issuer: provider.issuer, client_id: 'rookery', client_secret: 'secret' };
    const mapping = { config: { localpart_template: '{{ user.name }}' } };
    world = await startWorld(
      kind,
      {
        sso: { client_whitelist: [trusted, 'https://bare.example'] },
        oidc_providers: [
          { idp_id: 'fake', idp_name: 'Fake', ...common, user_mapping_provider: mapping },
          {
            ...common,
            idp_id: 'userinfo',
            idp_name: 'Userinfo',
            user_profile_method: 'userinfo_endpoint',
            user_mapping_provider: mapping,
          },
          {
            ...common,
            idp_id: 'elsewhere',
            idp_name: 'Elsewhere',
            issuer: 'http://127.0.0.1:9/nobody',
          },
          {
            ...common,
            idp_id: 'staff',
            idp_name: 'Staff',
            user_mapping_provider: mapping,
            attribute_requirements: [
              { attribute: 'groups', one_of: ['staff', 'admins'] },
              { attribute: 'verified', value: 'true' },
              { attribute: 'sub' },
            ],
          },
          {
            ...common,
            idp_id: 'closed',
            idp_name: 'Closed',
            enable_registration: false,
            user_mapping_provider: mapping,
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

  const person = (name: string): void => {
    provider.person = { sub: `sub-${name}`, name };
  };

  it('lets in whom the provider vouches for', async () => {
    person('frank');
    const shown = await world.begin(world.browser(), 'oidc-fake');
    expect(await world.logIn(shown)).toMatchObject({ userId: '@frank:rookery.test' });
    expect(provider.exchanges.at(-1)).toMatchObject({
      authorization: `Basic ${Buffer.from('rookery:secret').toString('base64')}`,
    });
    expect(provider.exchanges.at(-1)?.form.get('code_verifier')).toMatch(/^[\w-]{43}$/);
  });

  it('takes the answer as a form of the provider, too', async () => {
    person('greta');
    provider.answersWith = 'form';
    const browser = world.browser();
    const form = await world.begin(browser, 'oidc-fake');
    const done = await browser.submit(form);
    expect(await world.logIn(done)).toMatchObject({ userId: '@greta:rookery.test' });
  });

  it('needs the browser that began, its state, and takes an answer once', async () => {
    person('frank');
    const browser = world.browser();
    const start = await browser.go(`${base}/_matrix/client/v3/login/sso/redirect/oidc-fake?redirectUrl=${trusted}`);
    const cookies = [start.headers['set-cookie']].flat();
    expect(cookies).toHaveLength(2);
    for (const cookie of cookies) expect(cookie).toMatch(/; HttpOnly; Secure/);
    expect(cookies[0]).toMatch(/^oidc_session=.*Path=\/_synapse\/client\/oidc;.*SameSite=None$/);
    const back = (await browser.go(start.location!)).location!;

    expectFailure(await world.browser().go(back), 'missing_session');
    const other = new URL(back);
    other.searchParams.set('state', 'x'.repeat(43));
    expectFailure(await browser.go(other), 'mismatching_session');
    const without = new URL(back);
    without.searchParams.delete('state');
    expectFailure(await browser.go(without), 'mismatching_session');
    const twice = new URL(back);
    twice.searchParams.append('state', back.searchParams.get('state')!);
    expectFailure(await browser.go(twice), 'invalid_request');
    const forged = world.browser();
    forged.setCookie(callback, 'oidc_session=AAAA; Path=/_synapse/client/oidc; Secure; SameSite=None');
    expectFailure(await forged.go(back), 'invalid_session');

    const copy = world.browser();
    for (const [name, value] of Object.entries(browser.cookies(callback)))
      copy.setCookie(callback, `${name}=${value}; Path=/_synapse/client/oidc; Secure; SameSite=None`);
    const done = await browser.go(back);
    expect(done.location?.searchParams.has('loginToken')).toBe(true);
    expect(browser.cookies(callback)).toEqual({});
    expectFailure(await browser.go(back), 'missing_session');
    expectFailure(await copy.go(back), 'invalid_session');
  });

  it('goes on after a restart of the server', async () => {
    person('frank');
    const browser = world.browser();
    const start = await browser.go(`${base}/_matrix/client/v3/login/sso/redirect/oidc-fake?redirectUrl=${trusted}`);
    const back = (await browser.go(start.location!)).location!;
    await world.homeserver.restart();
    const done = await browser.go(back);
    await world.homeserver.restart();
    expect(await world.logIn(done)).toMatchObject({ userId: '@frank:rookery.test' });
  });

  it('forgets what took too long', async () => {
    person('frank');
    const browser = world.browser();
    const start = await browser.go(`${base}/_matrix/client/v3/login/sso/redirect/oidc-fake?redirectUrl=${trusted}`);
    const back = (await browser.go(start.location!)).location!;
    clock.advance(3_600_001);
    expectFailure(await browser.go(back), 'invalid_session');
  });

  it.each<[string, (fake: FakeProvider) => void]>([
    ['another issuer', (fake) => (fake.idToken = (claims) => ({ ...claims, iss: 'https://evil.example' }))],
    ['another audience', (fake) => (fake.idToken = (claims) => ({ ...claims, aud: 'somebody' }))],
    ['another nonce', (fake) => (fake.idToken = (claims) => ({ ...claims, nonce: 'x' }))],
    ['no nonce', (fake) => (fake.idToken = ({ nonce: _nonce, ...claims }) => claims)],
    ['an old token', (fake) => (fake.idToken = (claims) => ({ ...claims, exp: Math.floor(Date.now() / 1000) - 500 }))],
    ['another signature', (fake) => (fake.signing = { foreign: true })],
    ['no signature', (fake) => (fake.signing = { alg: 'none' })],
    ['a signature of another kind', (fake) => (fake.signing = { alg: 'HS256' })],
    ['an unknown key', (fake) => (fake.signing = { kid: 'two' })],
    ['no subject', (fake) => (fake.idToken = ({ sub: _sub, ...claims }) => claims)],
  ])('refuses %s', async (_what, spoil) => {
    person('mallory');
    spoil(provider);
    expectFailure(await world.begin(world.browser(), 'oidc-fake'), 'invalid_token');
  });

  it('refuses user information about somebody else', async () => {
    person('mallory');
    provider.userinfo = { sub: 'sub-frank', name: 'frank' };
    expectFailure(await world.begin(world.browser(), 'oidc-userinfo'), 'fetch_error', 502);
    provider.answers.set('/userinfo', () => ({ text: '[1, 2', type: 'application/json' }));
    expectFailure(await world.begin(world.browser(), 'oidc-userinfo'), 'fetch_error', 502);
  });

  it.each<[string, ReturnType<NonNullable<ReturnType<FakeProvider['answers']['get']>>>, string, number]>([
    ['garbage', { text: '<html>', type: 'text/html' }, 'invalid_response', 502],
    ['no token', { body: { token_type: 'Bearer', access_token: 'x' } }, 'invalid_response', 502],
    [
      'an error',
      { status: 400, body: { error: 'invalid_client', error_description: '<i>no</i>' } },
      'invalid_client',
      400,
    ],
    ['far too much', { text: `{"x":"${'x'.repeat(2_000_000)}"}` }, 'provider_unavailable', 502],
  ])('a token endpoint that answers with %s', async (_what, answer, code, status) => {
    person('frank');
    provider.answers.set('/token', () => answer);
    const shown = await world.begin(world.browser(), 'oidc-fake');
    expectFailure(shown, code, status);
    expect(shown.html).not.toContain('<i>no</i>');
  });

  it('a provider that does not answer costs its own users some seconds', async () => {
    person('frank');
    provider.answers.set('/token', () => 'never');
    const beganMs = performance.now();
    expectFailure(await world.begin(world.browser(), 'oidc-fake'), 'provider_unavailable', 502);
    expect(performance.now() - beganMs).toBeLessThan(15_000);
    expectFailure(await world.begin(world.browser(), 'oidc-elsewhere'), 'provider_unavailable', 502);
  });

  it('shows what the provider complains of, and nothing of it as markup', async () => {
    const browser = world.browser();
    const start = await browser.go(`${base}/_matrix/client/v3/login/sso/redirect/oidc-fake?redirectUrl=${trusted}`);
    const state = start.location!.searchParams.get('state')!;
    const query = new URLSearchParams({ state, error: 'access_denied', error_description: '"><script>x</script>' });
    const shown = await browser.go(`${callback}?${query.toString()}`);
    expectFailure(shown, 'access_denied');
    expect(shown.html).not.toContain('<script>');
    // An answer that ends the sign-on ends it for good.
    expect(browser.cookies(callback)).toEqual({});
  });

  it('asks for what the settings require of a person', async () => {
    person('hugo');
    expectFailure(await world.begin(world.browser(), 'oidc-staff'), 'unauthorised', 403);
    provider.person = { ...provider.person, groups: ['guests', 'staff'], verified: false };
    expectFailure(await world.begin(world.browser(), 'oidc-staff'), 'unauthorised', 403);
    provider.person = { ...provider.person, verified: true };
    expect(await world.logIn(await world.begin(world.browser(), 'oidc-staff'))).toMatchObject({
      userId: '@hugo:rookery.test',
    });
  });

  it('makes no account where it must not, and none for nobody', async () => {
    person('ida');
    expectFailure(await world.begin(world.browser(), 'oidc-closed'), 'mapping_error', 403);
    provider.person = { sub: 'x'.repeat(2_000), name: 'long' };
    expectFailure(await world.begin(world.browser(), 'oidc-fake'), 'mapping_error');
    provider.person = { sub: 'sub-digits', name: '12345' };
    expectFailure(await world.begin(world.browser(), 'oidc-fake'), 'mapping_error');
  });

  it('leads only to clients that can be led to', async () => {
    const at = `${base}/_matrix/client/v3/login/sso/redirect/oidc-fake`;
    for (const redirectUrl of [
      'javascript:alert(1)',
      'data:text/html,x',
      'nowhere',
      `https://x.example/${'x'.repeat(3_000)}`,
    ]) {
      const shown = await world.browser().go(`${at}?${new URLSearchParams({ redirectUrl }).toString()}`);
      expect(shown).toMatchObject({ status: 400 });
      expect(JSON.parse(shown.html)).toMatchObject({ errcode: 'M_INVALID_PARAM' });
    }
    expect(await world.browser().go(at)).toMatchObject({ status: 400 });
    expectFailure(await world.begin(world.browser(), 'oidc-nobody'), 'unknown_idp', 404);
    // A host whose name begins like a trusted one is none.
    person('frank');
    for (const evil of [
      'https://bare.example.evil.example/',
      'https://bare.example:444/',
      'https://bare.example@evil/',
    ]) {
      const shown = await world.begin(world.browser(), 'oidc-fake', { redirectUrl: evil });
      expect(shown).toMatchObject({ status: 200 });
      expect(shown.html).toContain(evil);
    }
    const good = await world.begin(world.browser(), 'oidc-fake', { redirectUrl: 'https://bare.example/x?y' });
    expect(good.location?.origin).toBe('https://bare.example');
  });

  it('does not hand over accounts that are closed', async () => {
    person('jan');
    const jan = await world.logIn(await world.begin(world.browser(), 'oidc-fake'));
    const { body } = await jan.request<{ session: string }>('POST', '/account/deactivate', {});
    const fallback = `${base}/_matrix/client/v3/auth/m.login.sso/fallback/web?session=${body.session}`;
    const browser = world.browser();
    const page = await browser.go(fallback);
    const href = /class="button" href="([^"]+)"/.exec(page.html)?.[1]?.replaceAll('&amp;', '&') ?? '';
    expect((await browser.follow(href)).html).toContain('Your identity is confirmed');
    expect(await jan.request('POST', '/account/deactivate', { auth: { session: body.session } })).toMatchObject({
      status: 200,
    });
    const shown = await world.begin(world.browser(), 'oidc-fake');
    expect(shown).toMatchObject({ status: 403 });
    expect(shown.html).toContain('This account is deactivated');
  });
});
