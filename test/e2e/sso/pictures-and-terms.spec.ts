import { fileURLToPath } from 'node:url';
import { startWebServer } from '../accounts/support.js';
import { FakeProvider } from './fake-provider.js';
import { base, startWorld, type World } from './world.js';

/** A picture of one pixel, and another. */
const png = (last: number): Buffer =>
  Buffer.concat([
    Buffer.from(
      'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
      'base64',
    ),
    Buffer.from([last]),
  ]);

describe.each(['sqlite', 'postgres'] as const)('pictures and terms at a sign-on (%s)', (kind) => {
  let provider: FakeProvider;
  let world: World;

  const oidc = (setting: object = {}) => ({
    idp_id: 'fake',
    idp_name: 'Fake',
    issuer: provider.issuer,
    client_id: 'rookery',
    client_secret: 'secret',
    user_mapping_provider: {
      config: { localpart_template: '{{ user.name }}', display_name_template: '{{ user.title }}' },
    },
    ...setting,
  });

  beforeAll(async () => {
    provider = await FakeProvider.start();
    world = await startWorld(kind, {
      sso: { client_whitelist: ['https://trusted.example/'], update_profile_information: true },
      ip_range_whitelist: ['127.0.0.1'],
      dynamic_thumbnails: true,
      oidc_providers: [
        oidc(),
        oidc({ idp_id: 'asks', user_mapping_provider: { config: { confirm_localpart: true } } }),
      ],
      user_consent: {
        template_dir: fileURLToPath(new URL('../accounts/fixtures/consent', import.meta.url)),
        version: '1.0',
        require_at_registration: true,
      },
    });
  });
  beforeEach(() => provider.reset());
  afterAll(async () => {
    await world?.stop();
    await provider?.stop();
  });

  const picture = (body: Buffer, status = 200): void => {
    provider.answers.set('/picture', () => ({ status, bytes: body, type: 'text/html' }));
  };
  const avatarOf = async (userId: string): Promise<unknown> =>
    (await world.homeserver.request<{ avatar_url?: string }>('GET', `/profile/${userId}`)).body.avatar_url;

  it('makes no account before the person agrees', async () => {
    picture(png(1));
    provider.person = { sub: '1', name: 'anna', title: '<Anna>', picture: `${provider.issuer}/picture` };
    const browser = world.browser();
    const page = await world.begin(browser, 'oidc-fake');
    expect(page.url.pathname).toBe('/_synapse/client/new_user_consent');
    expect(page.html).toContain('@anna:rookery.test');
    expect(page.html).toContain('&lt;Anna&gt;');
    expect(page.html).toContain(`href="${base}/_matrix/consent?v=1.0"`);
    expect(await world.homeserver.request('GET', '/profile/@anna:rookery.test')).toMatchObject({ status: 404 });
    // Nobody gets past the page by another address, or with terms that are not in force.
    expect((await browser.follow(`${base}/_synapse/client/sso_register`)).url.pathname).toContain('new_user_consent');
    // Nor is the name one that they may choose.
    const choice = `${base}/_synapse/client/pick_username/account_details`;
    expect((await browser.follow(choice)).url.pathname).toContain('new_user_consent');
    const other = await browser.submit(
      { ...page, url: new URL(choice), html: '<form method="post"></form>' },
      { username: 'other' },
    );
    expect(other.html).toContain('@anna:rookery.test');
    const wrong = await browser.submit(page, { accepted_version: '0.9' });
    expect(wrong.html).toContain('<code>bad_param</code>');
    const anna = await world.logIn(await browser.submit(page));
    expect(anna.userId).toBe('@anna:rookery.test');
    expect((await world.homeserver.request('GET', '/profile/@anna:rookery.test')).body).toMatchObject({
      displayname: '<Anna>',
      avatar_url: expect.stringMatching(/^mxc:\/\/rookery\.test\//),
    });
  });

  it('follows the picture that the provider has, and stores it once', async () => {
    provider.person = { sub: '1', name: 'anna', title: 'Anna', picture: `${provider.issuer}/picture` };
    const signOn = async (): Promise<unknown> => {
      const { userId } = await world.logIn(await world.begin(world.browser(), 'oidc-fake'));
      return avatarOf(userId);
    };
    picture(png(1));
    const first = await signOn();
    expect(await signOn()).toBe(first);
    picture(png(2));
    const second = await signOn();
    expect(second).not.toBe(first);
    // What is no picture, or not there, changes nothing and keeps nobody out.
    picture(Buffer.from('<script>alert(1)</script>'));
    expect(await signOn()).toBe(second);
    picture(png(3), 500);
    expect(await signOn()).toBe(second);
    provider.person = { ...provider.person, picture: 'http://127.0.0.1:9/nothing' };
    expect(await signOn()).toBe(second);
  });

  it('gives who was erased neither name nor picture back', async () => {
    const { homeserver } = world;
    const admin = await homeserver.registerAdministrator('root');
    picture(png(1));
    provider.person = { sub: '3', name: 'gone', title: 'Gone', picture: `${provider.issuer}/picture` };
    const browser = world.browser();
    const { userId } = await world.logIn(await browser.submit(await world.begin(browser, 'oidc-fake')));
    expect(await avatarOf(userId)).toMatch(/^mxc:/);
    await admin.request('POST', `/_synapse/admin/v1/deactivate/${userId}`, { erase: true });
    provider.person = { ...provider.person, title: 'Back' };
    const shown = await world.begin(world.browser(), 'oidc-fake');
    expect(shown).toMatchObject({ status: 403, html: expect.stringContaining('This account is deactivated') });
    expect((await homeserver.request('GET', `/profile/${userId}`)).body).toEqual({});
  });

  it('lets people leave their picture out', async () => {
    picture(png(1));
    provider.person = { sub: '2', picture: `${provider.issuer}/picture` };
    for (const [name, avatar] of [
      ['bert', 'true'],
      ['bertha', ''],
    ] as const) {
      provider.person = { ...provider.person, sub: name };
      const browser = world.browser();
      const details = await world.begin(browser, 'oidc-asks');
      expect(details.html).toContain('name="use_avatar"');
      const terms = await browser.submit(details, { username: name, use_avatar: avatar });
      const { userId } = await world.logIn(await browser.submit(terms));
      expect(Boolean(await avatarOf(userId))).toBe(avatar === 'true');
    }
  });
});

it('a picture cannot make the server look into its own network', async () => {
  const inside = await startWebServer(() => ({ body: 'secret' }));
  const provider = await FakeProvider.start();
  const world = await startWorld('sqlite', {
    oidc_providers: [
      {
        idp_id: 'fake',
        idp_name: 'Fake',
        issuer: provider.issuer,
        client_id: 'rookery',
        client_secret: 'secret',
        user_mapping_provider: { config: { localpart_template: '{{ user.name }}' } },
      },
    ],
  });
  try {
    provider.person = { sub: '1', name: 'eve', picture: `${inside.url}/admin` };
    expect((await world.logIn(await world.begin(world.browser()))).userId).toBe('@eve:rookery.test');
    expect(inside.requests).toEqual([]);
  } finally {
    await world.stop();
    await provider.stop();
    await inside.stop();
  }
});
