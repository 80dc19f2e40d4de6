import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { challengeOf, type Json } from '../accounts/support.js';
import { Browser, linkOf, type Shown } from './browser.js';
import { type RealProvider, startRealProvider } from './real-provider.js';

const base = 'https://matrix.rookery.test';
const client = 'https://app.example/?no_universal_links=true#/login';

describe.each(['sqlite', 'postgres'] as const)('sign-on at an OpenID Connect provider (%s)', (kind) => {
  let provider: RealProvider;
  let homeserver: TestHomeserver;

  beforeAll(async () => {
    provider = await startRealProvider(`${base}/_synapse/client/oidc/callback`);
    homeserver = await createTestHomeserver({
      database: kind,
      fetch: validatedFetch,
      settings: {
        public_baseurl: `${base}/`,
        enable_registration: false,
        sso: { client_whitelist: ['https://trusted.example/'] },
        oidc_providers: [
          {
            idp_id: 'real',
            idp_name: 'The <real> one',
            idp_brand: 'real',
            issuer: provider.issuer,
            client_id: 'rookery',
            client_secret: 'a secret of the provider',
            scopes: ['openid', 'profile', 'email'],
            user_mapping_provider: {
              config: {
                localpart_template: '{{ user.preferred_username }}',
                display_name_template: '{{ user.name|title }}',
                email_template: '{{ user.email }}',
                extra_attributes: { tier: '{{ user.tier }}', user_id: 'not this' },
              },
            },
          },
        ],
      },
    });
  });
  afterAll(async () => {
    await homeserver?.stop();
    await provider?.stop();
  });

  const browser = (): Browser => new Browser({ [base]: homeserver.baseUrl });
  /** Logs in at the provider and agrees to whatever it asks. */
  const signOn = async (with_: Browser, login: string, start: Shown): Promise<Shown> => {
    const asked = await with_.submit(start, { login, password: 'any' });
    return asked.html.includes('<form') && asked.url.origin === provider.issuer ? with_.submit(asked) : asked;
  };
  const begin = (with_: Browser, redirectUrl = client): Promise<Shown> =>
    with_.follow(`${base}/_matrix/client/v3/login/sso/redirect?${new URLSearchParams({ redirectUrl }).toString()}`);
  const finish = async (location: URL | undefined): Promise<Json> => {
    const token = location?.searchParams.get('loginToken');
    const { status, body } = await homeserver.request<Json>('POST', '/login', { type: 'm.login.token', token });
    return { status, ...body };
  };

  it('tells clients of the provider', async () => {
    const { body } = await homeserver.request<{ flows: Json[] }>('GET', '/login');
    expect(body.flows).toContainEqual({
      type: 'm.login.sso',
      identity_providers: [{ id: 'oidc-real', name: 'The <real> one', brand: 'real' }],
    });
    expect(body.flows).toContainEqual(expect.objectContaining({ type: 'm.login.token' }));
  });

  it('makes an account at the first sign-on and finds it again', async () => {
    provider.people.set('sub-anna', {
      preferred_username: 'Anna',
      name: 'anna example',
      email: 'Anna@example.org',
      tier: 'gold',
    });
    const first = browser();
    const page = await signOn(first, 'sub-anna', await begin(first));
    expect(page).toMatchObject({ status: 200 });
    expect(page.html).toContain('Your account is ready');
    expect(page.html).toContain('@anna:rookery.test');
    const target = linkOf(page, /Go on/);
    expect(target.href).toMatch(/^https:\/\/app\.example\/\?no_universal_links=true&loginToken=[^&]+#\/login$/);
    const session = await finish(target);
    expect(session).toMatchObject({ status: 200, user_id: '@anna:rookery.test' });
    // A token counts once.
    expect(await finish(target)).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
    const profile = await homeserver.request(
      'GET',
      '/profile/@anna:rookery.test',
      undefined,
      String(session['access_token']),
    );
    expect(profile.body).toMatchObject({ displayname: 'Anna Example' });
    const threepids = await homeserver.request('GET', '/account/3pid', undefined, String(session['access_token']));
    expect(threepids.body).toMatchObject({ threepids: [{ medium: 'email', address: 'anna@example.org' }] });

    const again = browser();
    const back = await signOn(again, 'sub-anna', await begin(again, 'https://trusted.example/#/x'));
    expect(back.status).toBe(302);
    expect(back.location?.href).toMatch(/^https:\/\/trusted\.example\/\?loginToken=[^&]+#\/x$/);
    expect(await finish(back.location)).toMatchObject({ status: 200, user_id: '@anna:rookery.test' });

    const sent = provider.requests.at(-1)!;
    expect(sent.get('code_challenge_method')).toBe('S256');
    expect(sent.get('state')).toMatch(/^[\w-]{43}$/);
    expect(sent.get('nonce')).toMatch(/^[\w-]{43}$/);
  });

  it('confirms interactive auth, and only for the same user', async () => {
    for (const name of ['bert', 'carl']) provider.people.set(`sub-${name}`, { preferred_username: name });
    const berts = browser();
    const session = await finish(
      (await signOn(berts, 'sub-bert', await begin(berts, 'https://trusted.example/'))).location,
    );
    const token = String(session['access_token']);
    const remove = (auth?: object) =>
      homeserver.request<Json>('POST', '/delete_devices', { devices: ['X'], ...(auth ? { auth } : {}) }, token);
    const challenge = await challengeOf(remove());
    expect(challenge.flows).toEqual([{ stages: ['m.login.sso'] }]);
    const fallback = `${base}/_matrix/client/v3/auth/m.login.sso/fallback/web?session=${challenge.session}`;

    const carls = browser();
    await finish((await signOn(carls, 'sub-carl', await begin(carls, 'https://trusted.example/'))).location);
    const confirm = await carls.go(fallback);
    expect(confirm.html).toContain('The &lt;real&gt; one');
    const wrong = await carls.follow(linkOf(confirm, /Confirm/));
    expect(wrong).toMatchObject({ status: 403 });
    expect(wrong.html).toContain('@bert:rookery.test');
    expect(await remove({ type: 'm.login.sso', session: challenge.session })).toMatchObject({
      status: 401,
      body: { errcode: 'M_UNAUTHORIZED', completed: [] },
    });

    const right = await berts.follow(linkOf(await berts.go(fallback), /Confirm/));
    const done = right.html.includes('name="login"') ? await signOn(berts, 'sub-bert', right) : right;
    expect(done.html).toContain('Your identity is confirmed');
    expect(await remove({ session: challenge.session })).toMatchObject({ status: 200 });
    // The session is used up.
    expect(await remove({ session: challenge.session })).toMatchObject({ status: 401 });
  });
});
