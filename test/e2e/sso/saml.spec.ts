import { createPublicKey, verify } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { challengeOf } from '../accounts/support.js';
import { type Browser, linkOf, type Shown } from './browser.js';
import { foreignKeys } from './fixtures/saml-keys.js';
import { type SamlIdp, startSamlIdp } from './saml-idp.js';
import { base, startWorld, trusted, type World } from './world.js';

const consumer = `${base}/_synapse/client/saml2/authn_response`;
const metadataUrl = `${base}/_synapse/client/saml2/metadata.xml`;

const failed = (shown: Shown, code: string, status = 400): void => {
  expect({ status: shown.status, html: shown.html, location: shown.location?.href }).toMatchObject({ status });
  expect(shown.html).toContain(`<code>${code}</code>`);
};

describe.each(['sqlite', 'postgres'] as const)('sign-on through SAML (%s)', (kind) => {
  let idp: SamlIdp;
  let world: World;
  let loose: World;

  beforeAll(async () => {
    idp = await startSamlIdp(consumer, metadataUrl);
    world = await startWorld(kind, {
      saml2_config: {
        idp_name: 'The firm',
        sp_config: { metadata: { inline: [idp.metadata] } },
        user_mapping_provider: { config: { mxid_source_attribute: 'nick', mxid_mapping: 'dotreplace' } },
        attribute_requirements: [{ attribute: 'group', one_of: ['staff', 'admins'] }],
      },
    });
    loose = await startWorld(kind, {
      saml2_config: {
        idp_entityid: idp.entityId,
        sp_config: {
          metadata: { remote: [{ url: `${idp.url}/metadata` }] },
          service: { sp: { allow_unsolicited: true, want_response_signed: false, want_assertions_signed: true } },
        },
      },
    });
  });
  beforeEach(() => {
    idp.options = {};
    idp.spoil = (xml) => xml;
  });
  afterAll(async () => {
    await world?.stop();
    await loose?.stop();
    await idp?.stop();
  });

  const person = (nick: string, more: Record<string, string | readonly string[]> = {}): void => {
    idp.person = { uid: `uid ${nick}`, nick, group: ['guests', 'staff'], displayName: `Full ${nick}`, ...more };
  };
  /** Goes to the provider and comes back with its form. */
  const signOn = async (where = world, browser = where.browser()): Promise<Shown> =>
    browser.submit(await where.begin(browser));

  it('tells clients and providers of itself', async () => {
    const { body } = await world.homeserver.request<{ flows: object[] }>('GET', '/login');
    expect(body.flows).toContainEqual({ type: 'm.login.sso', identity_providers: [{ id: 'saml', name: 'The firm' }] });
    const metadata = await world.browser().go(metadataUrl);
    expect(metadata.headers['content-type']).toContain('text/xml');
    expect(metadata.html).toContain(`entityID="${metadataUrl}"`);
    expect(metadata.html).toContain(`Location="${consumer}"`);
    failed(await world.browser().go(consumer), 'unexpected_get');
  });

  it('makes accounts and finds them again', async () => {
    person('Anna Ä', { email: 'anna@example.org' });
    const anna = await world.logIn(await signOn());
    expect(anna.userId).toBe('@anna..:rookery.test');
    expect((await anna.request('GET', `/profile/${anna.userId}`)).body).toMatchObject({ displayname: 'Full Anna Ä' });
    expect((await anna.request('GET', '/account/3pid')).body).toMatchObject({
      threepids: [{ medium: 'email', address: 'anna@example.org' }],
    });
    expect((await world.logIn(await signOn())).userId).toBe(anna.userId);
    expect(idp.asked).toMatchObject({ tenant: 'a', issuer: metadataUrl, assertionConsumerServiceURL: consumer });
    await world.homeserver.registerUser('bert');
    person('bert');
    expect((await world.logIn(await signOn())).userId).toBe('@bert1:rookery.test');
  });

  it('knows attributes by their official names, too', async () => {
    idp.person = {
      'urn:oid:0.9.2342.19200300.100.1.1': 'official',
      'urn:oid:2.16.840.1.113730.3.1.241': 'The Official',
    };
    const user = await loose.logIn(await signOn(loose));
    expect(user.userId).toBe('@official:rookery.test');
    expect((await user.request('GET', `/profile/${user.userId}`)).body).toMatchObject({ displayname: 'The Official' });
  });

  it('confirms interactive auth', async () => {
    person('carl');
    const browser = world.browser();
    const carl = await world.logIn(await signOn(world, browser));
    const challenge = await challengeOf(carl.request('POST', '/delete_devices', { devices: [] }));
    expect(challenge.flows).toEqual([{ stages: ['m.login.sso'] }]);
    const page = await browser.go(
      `${base}/_matrix/client/v3/auth/m.login.sso/fallback/web?session=${challenge.session}`,
    );
    const done = await browser.submit(await browser.follow(linkOf(page, /Confirm/)));
    expect(done.html).toContain('Your identity is confirmed');
    expect(
      await carl.request('POST', '/delete_devices', { devices: [], auth: { session: challenge.session } }),
    ).toMatchObject({ status: 200 });
  });

  it('asks for attributes', async () => {
    person('dora', { group: 'guests' });
    failed(await signOn(), 'unauthorised', 403);
    idp.person = { uid: 'dora', group: 'staff' };
    failed(await signOn(), 'mapping_error');
    idp.person = { nick: 'dora', group: 'staff' };
    failed(await signOn(), 'mapping_error');
  });

  it.each<[string, Record<string, unknown>, (xml: string) => string, string]>([
    ['another key', foreignKeys, (xml) => xml, 'unsigned_respond'],
    ['another destination', { destination: 'https://elsewhere.example/' }, (xml) => xml, 'invalid_response'],
    ['no signature', { signResponse: false, signAssertion: false }, (xml) => xml, 'unsigned_respond'],
    ['a response without a signature', { signResponse: false }, (xml) => xml, 'unsigned_respond'],
    ['another name in it', {}, (xml) => xml.replaceAll('mallory', 'anna'), 'unsigned_respond'],
    [
      'a second assertion',
      {},
      (xml) =>
        xml.replace(/(<saml:Assertion[\s\S]*<\/saml:Assertion>)/, (one) => one.replaceAll('mallory', 'anna') + one),
      'unsigned_respond',
    ],
    ['another audience', { audience: 'https://elsewhere.example' }, (xml) => xml, 'invalid_response'],
    ['another recipient', { recipient: 'https://elsewhere.example' }, (xml) => xml, 'invalid_response'],
    ['another issuer', { issuer: 'urn:example:evil' }, (xml) => xml, 'invalid_response'],
    ['another request', { inResponseTo: '_0123456789' }, (xml) => xml, 'unsolicited_response'],
    ['no request', { inResponseTo: undefined }, (xml) => xml, 'unsolicited_response'],
    ['an old assertion', { lifetimeInSeconds: -300 }, (xml) => xml, 'invalid_response'],
    ['a document type', {}, (xml) => `<!DOCTYPE x [<!ENTITY a "b">]>${xml}`, 'invalid_response'],
    ['garbage', {}, () => 'not XML', 'invalid_response'],
    ['nothing', {}, () => '', 'invalid_response'],
  ])('refuses %s', async (_what, options, spoil, code) => {
    person('mallory');
    idp.options = options;
    idp.spoil = spoil;
    failed(await signOn(), code);
  });

  it('tells that the provider let nobody in', async () => {
    person('emil');
    idp.options = { samlStatusCode: 'urn:oasis:names:tc:SAML:2.0:status:Responder', samlStatusMessage: '<b>no</b>' };
    idp.spoil = (xml) =>
      xml.replace(/<saml:Assertion[\s\S]*<\/saml:Assertion>/, '').replace(/<Signature[\s\S]*?<\/Signature>/, '');
    const shown = await signOn();
    expect(shown.html).not.toContain('loginToken');
    expect([400, 403]).toContain(shown.status);
  });

  it('needs the browser that began, and takes a response once', async () => {
    person('frank');
    const browser = world.browser();
    const form = await world.begin(browser);
    const cookies = browser.cookies(consumer);
    const [, field = ''] = /name="SAMLResponse" value="([^"]+)"/.exec(form.html) ?? [];
    const bring = (whose: Browser): Promise<Shown> =>
      whose.follow(consumer, { form: { SAMLResponse: field }, from: new URL(idp.url) });
    failed(await bring(world.browser()), 'missing_session');
    const other = world.browser();
    await world.begin(other);
    failed(await bring(other), 'unsolicited_response');
    const copy = world.browser();
    for (const [name, value] of Object.entries(cookies))
      copy.setCookie(consumer, `${name}=${value}; Path=/_synapse/client/saml2; Secure; SameSite=None`);
    expect((await world.logIn(await bring(browser))).userId).toBe('@frank:rookery.test');
    expect(browser.cookies(consumer)).toEqual({});
    failed(await bring(copy), 'invalid_session');
    failed(await bring(browser), 'missing_session');
    failed(await browser.follow(consumer, { form: {} }), 'invalid_request');
  });

  it('lets people come unasked where the settings say so, once', async () => {
    idp.person = { uid: 'gina' };
    idp.options = { signResponse: false };
    const field = await idp.respond({});
    const bring = (relay: string): Promise<Shown> =>
      loose.browser().follow(consumer, { form: { SAMLResponse: field, RelayState: relay }, from: new URL(idp.url) });
    failed(await bring('javascript:alert(1)'), 'bad_param');
    expect((await loose.logIn(await bring(trusted))).userId).toBe('@gina:rookery.test');
    failed(await bring(trusted), 'invalid_session');
    // Accounts of the same name that were there are the same people.
    await loose.homeserver.registerUser('hans');
    idp.person = { uid: 'Hans' };
    expect((await loose.logIn(await signOn(loose))).userId).toBe('@hans:rookery.test');
  });
});

it.each<[string, object, RegExp]>([
  ['no metadata', { sp_config: { entityid: 'x' } }, /saml2_config\.sp_config: needs metadata/],
  ['metadata that are none', { sp_config: { metadata: { inline: ['<a/>'] } } }, /the metadata describe no entity/],
  [
    'a file that is not there',
    { sp_config: { metadata: { local: ['nowhere.xml'] } } },
    /metadata\.local\[0\]: cannot read nowhere\.xml/,
  ],
  [
    'a wrong flag',
    { sp_config: { service: { sp: { want_response_signed: 'yes' } } } },
    /service\.sp\.want_response_signed: expected true or false/,
  ],
  [
    'metadata that anybody may change',
    { sp_config: { metadata: { remote: [{ url: 'http://idp.example/' }] } } },
    /metadata\.remote\[0\]: expected an https address/,
  ],
  ['a program', { config_path: new URL('./fixtures/saml-config.py', import.meta.url).pathname }, /this is a program/],
])('the server does not start with %s', async (_what, settings, problem) => {
  await expect(startWorld('sqlite', { saml2_config: settings })).rejects.toThrow(problem);
});

it('asks for metadata once, however many sign on', async () => {
  const idp = await startSamlIdp(consumer, metadataUrl);
  const metadata = { remote: [{ url: `${idp.url}/metadata` }] };
  const world = await startWorld('sqlite', { saml2_config: { sp_config: { metadata } } });
  try {
    const shown = await Promise.all([1, 2, 3].map(() => world.begin(world.browser())));
    for (const { html } of shown) expect(html).toContain('SAMLResponse');
    expect(idp.fetched).toBe(1);
  } finally {
    await world.stop();
    await idp.stop();
  }
});

it('signs what it asks, and reads what is encrypted for it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-saml-'));
  const idp = await startSamlIdp(consumer, 'urn:example:sp');
  writeFileSync(join(folder, 'sp.key'), foreignKeys.key);
  writeFileSync(join(folder, 'sp.crt'), foreignKeys.cert);
  writeFileSync(join(folder, 'idp.xml'), idp.metadata);
  writeFileSync(
    join(folder, 'sp.yaml'),
    `# as a dictionary of Python is written
{'entityid': 'urn:example:sp',
 'key_file': 'sp.key', 'cert_file': 'sp.crt',
 'metadata': {'local': ['idp.xml']},
 'service': {'sp': {'authn_requests_signed': True, 'force_authn': True}},
}`,
  );
  const world = await startWorld(
    'sqlite',
    { saml2_config: { config_path: join(folder, 'sp.yaml') } },
    { configDir: folder },
  );
  try {
    const metadata = (await world.browser().go(metadataUrl)).html;
    expect(metadata).toContain('AuthnRequestsSigned="true"');
    expect(metadata).toContain('entityID="urn:example:sp"');
    idp.person = { uid: 'enid' };
    idp.options = {
      encryptionPublicKey: createPublicKey(foreignKeys.cert).export({ type: 'spki', format: 'pem' }),
      encryptionCert: foreignKeys.cert,
    };
    const seen: string[] = [];
    idp.spoil = (xml) => {
      seen.push(xml);
      return xml;
    };
    const browser = world.browser();
    const user = await world.logIn(await browser.submit(await world.begin(browser)));
    expect(user.userId).toBe('@enid:rookery.test');
    expect(seen[0]).toContain('EncryptedAssertion');
    expect(seen[0]).not.toContain('enid');
    expect(idp.asked).toMatchObject({ SigAlg: expect.stringContaining('rsa-sha256'), forceAuthn: 'true' });
    const signed = ['SAMLRequest', 'RelayState', 'SigAlg']
      .filter((name) => idp.asked[name] !== undefined)
      .map((name) => `${name}=${encodeURIComponent(idp.asked[name] ?? '')}`)
      .join('&');
    const signature = Buffer.from(idp.asked['Signature'] ?? '', 'base64');
    expect(verify('sha256', Buffer.from(signed), foreignKeys.cert, signature)).toBe(true);
  } finally {
    await world.stop();
    await idp.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
