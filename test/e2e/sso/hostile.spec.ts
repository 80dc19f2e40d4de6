import { FakeProvider } from './fake-provider.js';
import { startSamlIdp } from './saml-idp.js';
import { base, startWorld, trusted, type World } from './world.js';

const values = [
  '',
  '\0',
  '%00',
  '../../etc/passwd',
  '"><script>alert(1)</script>',
  '{{ 7*7 }}',
  'x'.repeat(8_000),
  '🦄\u202e',
  'https://a.example\r\nset-cookie: a=b',
  'PHhtbC8+',
  'a.b.c',
  '-1',
];

const pages: readonly (readonly [path: string, ...parameters: string[]])[] = [
  ['_matrix/client/v3/login/sso/redirect', 'redirectUrl', 'action'],
  ['_matrix/client/v3/login/sso/redirect/oidc-fake', 'redirectUrl'],
  ['_matrix/client/v3/login/sso/redirect/saml', 'redirectUrl'],
  ['_matrix/client/v3/login/cas/redirect', 'redirectUrl'],
  ['_matrix/client/v3/login/cas/ticket', 'ticket', 'state'],
  ['_matrix/client/v3/auth/m.login.sso/fallback/web', 'session', 'idp'],
  ['_synapse/client/pick_idp', 'redirectUrl', 'idp'],
  ['_synapse/client/pick_username/check', 'username'],
  ['_synapse/client/pick_username/account_details', 'username'],
  ['_synapse/client/new_user_consent', 'accepted_version'],
  ['_synapse/client/sso_register', 'x'],
  ['_synapse/client/oidc/callback', 'code', 'state', 'error', 'error_description', 'iss'],
  ['_synapse/client/saml2/metadata.xml', 'x'],
  ['_synapse/client/saml2/authn_response', 'x'],
];
const forms: readonly (readonly [path: string, ...fields: string[]])[] = [
  ['_synapse/client/oidc/callback', 'code', 'state', 'error', 'error_description', 'iss'],
  ['_synapse/client/oidc/backchannel_logout', 'logout_token'],
  ['_synapse/client/saml2/authn_response', 'SAMLResponse', 'RelayState'],
  ['_synapse/client/pick_username/account_details', 'username', 'use_email', 'use_avatar'],
  ['_synapse/client/new_user_consent', 'accepted_version'],
];
const cookies = ['oidc_session', 'oidc_session_no_samesite', 'cas_session', 'saml_session', 'username_mapping_session'];

describe('hostile input at the endpoints of single sign-on', () => {
  let provider: FakeProvider;
  let idp: Awaited<ReturnType<typeof startSamlIdp>>;
  let world: World;
  let bare: World;

  beforeAll(async () => {
    provider = await FakeProvider.start();
    idp = await startSamlIdp(`${base}/_synapse/client/saml2/authn_response`, 'x');
    world = await startWorld('sqlite', {
      cas_config: { server_url: `${provider.issuer}/cas` },
      saml2_config: {
        sp_config: { metadata: { inline: [idp.metadata] }, service: { sp: { allow_unsolicited: true } } },
      },
      oidc_providers: [
        {
          idp_id: 'fake',
          idp_name: 'Fake',
          issuer: provider.issuer,
          client_id: 'rookery',
          client_secret: 'secret',
          backchannel_logout_enabled: true,
        },
      ],
    });
    bare = await startWorld('sqlite', {});
  });
  afterAll(async () => {
    await world?.stop();
    await bare?.stop();
    await idp?.stop();
    await provider?.stop();
  });

  it('is refused without a fault of the server, and nothing of it becomes markup or a header', async () => {
    let requests = 0;
    for (const where of [world, bare]) {
      for (const [kind, routes] of [
        ['query', pages],
        ['form', forms],
      ] as const) {
        for (const [path, ...names] of routes) {
          for (const name of names) {
            for (const value of values) {
              const browser = where.browser();
              for (const cookie of cookies)
                browser.setCookie(`${base}/`, `${cookie}=${encodeURIComponent(value).slice(0, 3_000)}; Path=/; Secure`);
              const rest = Object.fromEntries(names.map((one) => [one, one === 'redirectUrl' ? trusted : 'x']));
              const fields = new URLSearchParams({ ...rest, [name]: value });
              const shown =
                kind === 'query'
                  ? await browser.go(`${base}/${path}?${fields.toString()}`)
                  : await browser.go(`${base}/${path}`, { form: fields });
              requests++;
              const about = `${kind} ${path} ${name}=${value.slice(0, 40)} → ${shown.status} ${shown.html.slice(0, 300)}`;
              if (shown.status >= 500) throw new Error(about);
              if (shown.html.includes('<script>alert(1)') && shown.headers['content-type']?.includes('html'))
                throw new Error(`markup: ${about}`);
              const given = [shown.headers['set-cookie']].flat().filter((one) => one?.startsWith('a='));
              if (given.length > 0) throw new Error(`header: ${about}`);
              if (shown.status === 200 && shown.html.includes('loginToken')) throw new Error(`login: ${about}`);
            }
          }
        }
      }
    }
    expect(requests).toBeGreaterThan(800);
    expect((await world.homeserver.request('GET', '/login')).status).toBe(200);
  });

  it('what is not configured is not there', async () => {
    for (const path of [
      `_matrix/client/v3/login/sso/redirect?redirectUrl=${trusted}`,
      `_matrix/client/v3/login/cas/redirect?redirectUrl=${trusted}`,
      '_matrix/client/v3/login/cas/ticket?ticket=x',
      `_synapse/client/pick_idp?redirectUrl=${trusted}`,
      '_synapse/client/saml2/metadata.xml',
      '_synapse/client/saml2/authn_response',
    ]) {
      const shown = await bare.browser().go(`${base}/${path}`);
      expect({ path, status: shown.status, body: JSON.parse(shown.html) }).toMatchObject({
        path,
        status: 404,
        body: { errcode: 'M_UNRECOGNIZED' },
      });
    }
    const { body } = await bare.homeserver.request<{ flows: { type: string }[] }>('GET', '/login');
    expect(body.flows.map(({ type }) => type)).not.toContain('m.login.sso');
  });
});
