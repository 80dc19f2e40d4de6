import { Database } from '@rookery/database';
import { formOf, linkOf, type Shown } from './browser.js';
import { FakeProvider } from './fake-provider.js';
import { base, startWorld, trusted, type World } from './world.js';

const hostile = '"><img src=x onerror=alert(1)>{{ 7*7 }}\'';
const details = `${base}/_synapse/client/pick_username/account_details`;

describe.each(['sqlite', 'postgres'] as const)('people who sign on for the first time (%s)', (kind) => {
  let provider: FakeProvider;
  let world: World;

  beforeAll(async () => {
    provider = await FakeProvider.start();
    const common = { issuer: provider.issuer, client_id: 'rookery', client_secret: 'secret' };
    const name = { localpart_template: '{{ user.name }}' };
    world = await startWorld(kind, {
      enable_media_repo: false,
      sso: { client_whitelist: [trusted], update_profile_information: true },
      oidc_providers: [
        { idp_id: 'named', idp_name: 'Named', ...common, user_mapping_provider: { config: name } },
        {
          ...common,
          idp_id: 'asks',
          idp_name: 'Asks & waits',
          user_mapping_provider: {
            config: {
              display_name_template: '{{ user.name }}',
              email_template: '{{ user.email }}',
              extra_attributes: { 'org.example.team': '{{ user.team }}', device_id: 'mine' },
            },
          },
        },
        {
          ...common,
          idp_id: 'confirms',
          idp_name: 'Confirms',
          user_mapping_provider: { config: { ...name, confirm_localpart: true } },
        },
        {
          ...common,
          idp_id: 'links',
          idp_name: 'Links',
          allow_existing_users: true,
          user_mapping_provider: {
            config: { ...name, subject_claim: 'number', display_name_template: '{{ user.title }}' },
          },
          passthrough_authorization_parameters: ['login_hint'],
          additional_authorization_parameters: { prompt: 'login', client_id: 'another' },
          client_auth_method: 'client_secret_post',
          pkce_method: 'never',
        },
      ],
    });
  });
  beforeEach(() => provider.reset());
  afterAll(async () => {
    await world?.stop();
    await provider?.stop();
  });

  const withToken = async (shown: Shown) => world.logIn(shown);

  it('lets people choose where there are several providers', async () => {
    provider.person = { sub: 'pick-1', name: 'picky' };
    const browser = world.browser();
    const picker = await world.begin(browser);
    expect(picker.url.pathname).toBe('/_synapse/client/pick_idp');
    expect(picker.html).toContain('Asks &amp; waits');
    expect(formOf(picker).fields.get('redirectUrl')).toBe(trusted);
    expect(picker.headers['content-security-policy']).not.toContain('form-action');
    expect(await withToken(await browser.submit(picker, { idp: 'oidc-named' }))).toMatchObject({
      userId: '@picky:rookery.test',
    });
    const wrong = await browser.go(`${base}/_synapse/client/pick_idp?redirectUrl=${trusted}&idp=none`);
    expect(wrong).toMatchObject({ status: 400 });
    expect(wrong.html).toContain('<code>unknown_idp</code>');
  });

  it('shows nothing of an address as markup', async () => {
    const redirectUrl = `https://app.example/${encodeURI(hostile)}?${hostile}`;
    const picker = await world.begin(world.browser(), undefined, { redirectUrl });
    expect(picker.html).not.toContain('<img src=x');
    expect(formOf(picker).fields.get('redirectUrl')).toBe(redirectUrl);
  });

  it('counts on where a name is taken', async () => {
    await world.homeserver.registerUser('dora');
    for (const [sub, userId] of [
      ['dora-1', '@dora1:rookery.test'],
      ['dora-2', '@dora2:rookery.test'],
      ['dora-1', '@dora1:rookery.test'],
    ]) {
      provider.person = { sub, name: 'Dora' };
      expect(await withToken(await world.begin(world.browser(), 'oidc-named'))).toMatchObject({ userId });
    }
    const account = await world.homeserver.request('GET', '/profile/@dora1:rookery.test');
    expect(account.body).toMatchObject({ displayname: 'dora1' });
  });

  it('makes any name a valid one', async () => {
    provider.person = { sub: 'odd-1', name: '_Jörg K' };
    expect(await withToken(await world.begin(world.browser(), 'oidc-named'))).toMatchObject({
      userId: '@=5fj=c3=b6rg=20k:rookery.test',
    });
  });

  it('two windows of one person make one account', async () => {
    provider.person = { sub: 'twin', name: 'twin' };
    const [a, b] = await Promise.all([
      world.begin(world.browser(), 'oidc-named'),
      world.begin(world.browser(), 'oidc-named'),
    ]);
    expect((await withToken(a)).userId).toBe('@twin:rookery.test');
    expect((await withToken(b)).userId).toBe('@twin:rookery.test');
  });

  it('asks for a name, and takes over what the person likes', async () => {
    await world.homeserver.registerUser('taken');
    provider.person = {
      sub: 'ask-1',
      name: `Emil ${hostile}`,
      email: 'emil@example.org',
      team: 'red',
      picture: 'https://x.example/p.png',
    };
    const browser = world.browser();
    const page = await world.begin(browser, 'oidc-asks');
    expect(page.url.href).toBe(details);
    expect(page.html).toContain('Asks &amp; waits');
    expect(page.html).not.toContain('<img src=x');
    expect(page.headers['content-security-policy']).toMatch(/script-src 'nonce-/);
    expect(formOf(page).fields.getAll('use_email')).toEqual(['emil@example.org']);
    // There is nowhere to put pictures on this server.
    expect(page.html).not.toContain('use_avatar');

    const check = async (username: string) =>
      JSON.parse(
        (await browser.go(`${base}/_synapse/client/pick_username/check?${new URLSearchParams({ username })}`)).html,
      );
    expect(await check('emil')).toEqual({ available: true });
    expect(await check('taken')).toEqual({ available: false, error: expect.any(String) });
    expect(await check('not valid')).toEqual({ available: false, error: expect.any(String) });
    expect(await check('x'.repeat(300))).toEqual({ available: false, error: expect.any(String) });

    const refused = await browser.submit(page, { username: 'taken' });
    expect(refused).toMatchObject({ status: 400 });
    expect(formOf(refused).fields.get('username')).toBe('taken');
    const done = await browser.submit(refused, { username: 'emil', use_email: 'somebody@else.example' });
    const emil = await withToken(done);
    expect(emil).toMatchObject({ userId: '@emil:rookery.test', answer: { 'org.example.team': 'red' } });
    // What the answer of a login says itself is not for a provider to say.
    expect(emil.deviceId).toMatch(/^[A-Z]{10}$/);
    expect((await emil.request('GET', '/account/3pid')).body).toEqual({ threepids: [] });
    expect((await emil.request('GET', '/profile/@emil:rookery.test')).body).toMatchObject({
      displayname: `Emil ${hostile}`,
    });
    const confirm = await world.begin(world.browser(), 'oidc-asks', { redirectUrl: `https://app.example/${hostile}` });
    expect(confirm.html).toContain('Go on as this account?');
    expect(confirm.html).not.toContain('<img src=x');
    expect(linkOf(confirm, /Go on/).searchParams.has('loginToken')).toBe(true);
    // The name was chosen once.
    expect(browser.cookies(details)).toEqual({});
    expect((await browser.go(details)).html).toContain('<code>invalid_session</code>');
  });

  it('leaves out what the person does not like', async () => {
    provider.person = { sub: 'ask-2', name: 'Fritz', email: 'fritz@example.org' };
    const browser = world.browser();
    const page = await world.begin(browser, 'oidc-asks', { redirectUrl: 'https://app.example/' });
    const form = { username: 'fritz' };
    const confirm = await browser.follow(details, { form, from: page.url });
    expect(confirm.html).toContain('Your account is ready');
    expect(linkOf(confirm, /Go on/).searchParams.has('loginToken')).toBe(true);
    expect((await world.homeserver.request('GET', '/profile/@fritz:rookery.test')).body).toMatchObject({
      displayname: 'fritz',
    });
  });

  it('lets another site choose nothing, and nobody without the session', async () => {
    provider.person = { sub: 'ask-3', name: 'Gina' };
    const browser = world.browser();
    await world.begin(browser, 'oidc-asks');
    const foreign = await browser.go(details, { form: { username: 'evil' }, from: new URL('https://evil.example/') });
    expect(foreign.html).toContain('<code>invalid_session</code>');
    for (const path of ['pick_username/account_details', 'new_user_consent', 'sso_register'])
      expect((await world.browser().go(`${base}/_synapse/client/${path}`)).html).toContain(
        '<code>invalid_session</code>',
      );
    expect(await world.browser().go(`${base}/_synapse/client/pick_username/check?username=a`)).toMatchObject({
      status: 400,
    });
    // Before a name was chosen there is nothing to register.
    expect((await browser.follow(`${base}/_synapse/client/sso_register`)).url.href).toBe(details);
  });

  it('asks again when somebody else was faster', async () => {
    provider.person = { sub: 'conf-1', name: 'heidi' };
    const browser = world.browser();
    const page = await world.begin(browser, 'oidc-confirms');
    expect(formOf(page).fields.get('username')).toBe('heidi');
    const chosen = await browser.go(details, { form: { username: 'heidi' }, from: page.url });
    expect(chosen.location?.href).toBe(`${base}/_synapse/client/sso_register`);
    await world.homeserver.registerUser('heidi');
    const again = await browser.follow(chosen.location!);
    expect(again.url.href).toBe(details);
    expect(await withToken(await browser.submit(again, { username: 'heidi2' }))).toMatchObject({
      userId: '@heidi2:rookery.test',
    });
  });

  it('links to accounts that were there where the settings allow it', async () => {
    const ines = await world.homeserver.registerUser('ines');
    provider.person = { sub: 'x', number: 7, name: 'Ines', title: 'Doctor Ines' };
    const shown = await world.begin(world.browser(), 'oidc-links', { login_hint: 'ines@example.org', other: 'x' });
    expect(await withToken(shown)).toMatchObject({ userId: ines.userId });
    expect(Object.fromEntries(provider.asked)).toMatchObject({
      login_hint: 'ines@example.org',
      prompt: 'login',
      client_id: 'rookery',
      redirect_uri: `${base}/_synapse/client/oidc/callback`,
    });
    expect(provider.asked.has('other')).toBe(false);
    expect(provider.asked.has('code_challenge')).toBe(false);
    expect(provider.exchanges.at(-1)?.authorization).toBeUndefined();
    expect(provider.exchanges.at(-1)?.form.get('client_secret')).toBe('secret');
    expect(
      await world.homeserver.server
        .service(Database)
        .query('SELECT auth_provider, external_id FROM user_external_ids WHERE user_id = ?', [ines.userId]),
    ).toEqual([{ auth_provider: 'oidc-links', external_id: '7' }]);
    // Names follow the provider.
    expect((await ines.request('GET', `/profile/${ines.userId}`)).body).toMatchObject({ displayname: 'Doctor Ines' });
    provider.person = { ...provider.person, title: 'Professor Ines' };
    await withToken(await world.begin(world.browser(), 'oidc-links'));
    expect((await ines.request('GET', `/profile/${ines.userId}`)).body).toMatchObject({
      displayname: 'Professor Ines',
    });
  });

  it('links to no account that is an application service’s or a guest’s', async () => {
    for (const [name, change] of [
      ['bridged', 'appservice_id = ?'],
      ['visitor', 'is_guest = ?'],
    ] as const) {
      const { userId } = await world.homeserver.registerUser(name);
      const value = name === 'bridged' ? 'a bridge' : true;
      await world.homeserver.server
        .service(Database)
        .write((tx) => tx.run(`UPDATE users SET ${change} WHERE name = ?`, [value, userId]), { name: 'test' });
      provider.person = { sub: name, number: name, name };
      const shown = await world.begin(world.browser(), 'oidc-links');
      expect((await world.logIn(shown)).userId).toBe(`@${name}1:rookery.test`);
    }
  });

  it('brings browsers to the address at which cookies come back', async () => {
    const start = await world
      .browser()
      .go(`${world.homeserver.baseUrl}/_matrix/client/v3/login/sso/redirect/oidc-named?redirectUrl=${trusted}`);
    expect(start).toMatchObject({ status: 302 });
    expect(start.location?.href).toMatch(
      /^https:\/\/matrix\.rookery\.test\/_matrix\/client\/v3\/login\/sso\/redirect\/oidc-named\?/,
    );
    expect(start.headers['set-cookie']).toBeUndefined();
    // A proxy that hides the name must not send anybody in circles.
    const path = `${start.location!.pathname}${start.location!.search}`;
    const hidden = await world.browser().go(`${world.homeserver.baseUrl}${path}`);
    expect(hidden.location?.origin).toBe(provider.issuer);
  });
});
