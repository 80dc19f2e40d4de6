import { fileURLToPath } from 'node:url';
import type { Shown } from './browser.js';
import { FakeProvider } from './fake-provider.js';
import { diary } from './fixtures/mappings.js';
import { type SamlIdp, startSamlIdp } from './saml-idp.js';
import { base, startWorld, trusted, type World } from './world.js';

const module = fileURLToPath(new URL('./fixtures/mappings.ts', import.meta.url));

const failed = (shown: Shown, code: string, status = 400): void => {
  expect({ status: shown.status, html: shown.html }).toMatchObject({ status });
  expect(shown.html).toContain(`<code>${code}</code>`);
};

describe('mappings of modules', () => {
  let provider: FakeProvider;
  let idp: SamlIdp;
  let world: World;

  beforeAll(async () => {
    provider = await FakeProvider.start();
    idp = await startSamlIdp(
      `${base}/_synapse/client/saml2/authn_response`,
      `${base}/_synapse/client/saml2/metadata.xml`,
    );
    world = await startWorld('sqlite', {
      modules: [{ module }],
      oidc_providers: [
        {
          idp_id: 'mapped',
          idp_name: 'Mapped',
          issuer: provider.issuer,
          client_id: 'rookery',
          client_secret: 'secret',
          user_mapping_provider: { module: 'test-oidc' },
        },
      ],
      saml2_config: {
        sp_config: { metadata: { inline: [idp.metadata] } },
        user_mapping_provider: { module: 'test-saml' },
      },
    });
    await world.homeserver.registerUser('taken');
  });
  beforeEach(() => void diary.splice(0));
  afterAll(async () => {
    await world?.stop();
    await provider?.stop();
    await idp?.stop();
  });

  const signOn = (name: string): Promise<Shown> => {
    provider.person = { sub: `sub ${name}`, name };
    return world.begin(world.browser(), 'oidc-mapped');
  };

  it('make accounts, and other modules are asked', async () => {
    const user = await world.logIn(await signOn('anna'));
    expect(user.userId).toBe('@m-anna:rookery.test');
    expect(user.answer).toMatchObject({ 'org.example.name': 'anna', access_token: expect.stringMatching(/^rka_/) });
    expect(diary).toEqual([
      ['map', 'anna', 'string', 0],
      ['register', 'm-anna', 1, 'oidc-mapped'],
      ['login', '@m-anna:rookery.test', 'oidc-mapped'],
    ]);
    diary.splice(0);
    await world.logIn(await signOn('anna'));
    expect(diary).toEqual([['login', '@m-anna:rookery.test', 'oidc-mapped']]);
    expect((await signOn('asks')).html).toContain('&lt;Asks&gt;');
  });

  it('may refuse, fail, send elsewhere, and answer nonsense', async () => {
    const refused = await signOn('refused');
    failed(refused, 'unauthorised', 403);
    expect(refused.html).toContain('Not &lt;b&gt;today&lt;/b&gt;');
    failed(await signOn('nameless'), 'mapping_error');
    const broken = await signOn('broken');
    failed(broken, 'mapping_error');
    expect(broken.html).not.toContain('a secret of the module');
    const elsewhere = await signOn('elsewhere');
    expect(elsewhere.location?.href).toBe('https://elsewhere.example/why');
    failed(await signOn('invalid'), 'mapping_error');
    // A mapping that gives the same name again and again is not asked a thousand times.
    diary.splice(0);
    failed(await signOn('stubborn'), 'mapping_error');
    expect(diary).toHaveLength(2);
  });

  it('do not overrule other modules', async () => {
    failed(await signOn('spammer'), 'unauthorised', 403);
    const shown = await signOn('locked');
    const token = shown.location?.searchParams.get('loginToken');
    expect(await world.homeserver.request('POST', '/login', { type: 'm.login.token', token })).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN' },
    });
  });

  it('map people of SAML', async () => {
    idp.person = { uid: 'bert' };
    const browser = world.browser();
    const user = await world.logIn(await browser.submit(await world.begin(browser, 'saml')));
    expect(user.userId).toBe('@s-bert:rookery.test');
    expect(diary[0]).toEqual(['saml', trusted, 0]);
    expect((await user.request('GET', `/profile/${user.userId}`)).body).toMatchObject({ displayname: 'By SAML' });
    idp.person = { uid: 'carl', shoe: '42' };
    const other = world.browser();
    const shown = await other.submit(await world.begin(other, 'saml'));
    expect(shown.location?.href).toBe('https://shoes.example/');
  });
});

it.each<[string, object, RegExp]>([
  [
    'a mapping that nobody has',
    { module: 'nobody' },
    /oidc_providers\[0\]\.user_mapping_provider\.module: no module registers an OpenID Connect mapping called nobody/,
  ],
  [
    'settings that a mapping refuses',
    { module: 'test-oidc', config: { bad: true } },
    /oidc_providers\[0\]\.user_mapping_provider\.config\.bad: is bad/,
  ],
  [
    'a template of wrong syntax',
    { config: { localpart_template: '{{ user.name' } },
    /oidc_providers\[0\]\.user_mapping_provider\.config\.localpart_template: /,
  ],
  [
    'an unknown setting',
    { config: { localpart_tmplate: 'x' } },
    /oidc_providers\[0\]\.user_mapping_provider\.config\.localpart_tmplate: is unknown/,
  ],
  [
    'a provider without TLS',
    { issuer: 'http://id.example' },
    /oidc_providers\[0\]\.issuer: expected an https address; without TLS it needs skip_verification: true/,
  ],
])('the server does not start with %s', async (_what, wrong, problem) => {
  const { issuer = 'https://x.example', ...mapping } = wrong as { issuer?: string };
  const one = { idp_id: 'x', idp_name: 'X', issuer, client_id: 'x', client_secret: 'x' };
  const settings = { modules: [{ module }], oidc_providers: [{ ...one, user_mapping_provider: mapping }] };
  await expect(startWorld('sqlite', settings)).rejects.toThrow(problem);
});
