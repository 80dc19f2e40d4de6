import { fileURLToPath } from 'node:url';
import { idpKeys } from '../../../test/e2e/sso/fixtures/saml-keys.js';
import { formOf } from '../../../test/e2e/sso/browser.js';
import { type SamlIdp, startSamlIdp } from '../../../test/e2e/sso/saml-idp.js';
import { base, startWorld, type World } from '../../../test/e2e/sso/world.js';
import { parseConfig } from '../src/config.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
const settings = (id: string, url: string) => ({
  ...{ id, name: id, entry_point: `${url}/sso`, certificates: [idpKeys.cert], issuer: `urn:test:${id}` },
});

describe('signing in through SAML by a module', () => {
  let idps: { one: SamlIdp; two: SamlIdp };
  let world: World;
  beforeAll(async () => {
    const start = (id: string) => startSamlIdp(`${base}/_synapse/client/sso/${id}/callback`, `urn:test:${id}`);
    idps = { one: await start('one'), two: await start('two') };
    world = await startWorld('sqlite', {
      modules: [
        {
          module,
          config: {
            providers: [
              settings('one', idps.one.url),
              { ...settings('two', idps.two.url), allow_existing_users: true },
            ],
          },
        },
      ],
    });
  });
  afterAll(async () => {
    await world?.stop();
    await idps?.one.stop();
    await idps?.two.stop();
  });

  it('makes accounts, at each identity provider others', async () => {
    idps.one.person = { uid: 'Anna', displayName: 'Anna Example' };
    idps.two.person = { uid: 'Bert' };
    const browser = world.browser();
    const anna = await world.logIn(await browser.submit(await world.begin(browser, 'one')));
    expect(anna.userId).toBe('@anna:rookery.test');
    expect((await anna.request('GET', `/profile/${anna.userId}`)).body).toMatchObject({ displayname: 'Anna Example' });
    // The same name id, and yet somebody else: an account that is there already, as this one's settings say.
    const older = await world.homeserver.registerUser('bert');
    const bert = await world.logIn(await browser.submit(await world.begin(browser, 'two')));
    expect(bert.userId).toBe(older.userId);
  });

  it('takes no response that is spoiled, of somebody else’s sign-on, or used', async () => {
    const browser = world.browser();
    idps.one.spoil = (xml) => xml.replace('Anna', 'Eve');
    const spoiled = await browser.submit(await world.begin(browser, 'one'));
    expect(spoiled.status).toBe(502);
    idps.one.spoil = (xml) => xml;

    const mine = await world.begin(browser, 'one');
    const other = world.browser();
    const theirs = await world.begin(other, 'one');
    const swapped = await browser.follow(formOf(theirs).action, { form: formOf(theirs).fields, from: theirs.url });
    expect(swapped.status).toBe(502);
    await world.logIn(await browser.submit(mine));
    expect((await browser.submit(mine)).status).toBe(400);
  });
});

it.each([
  [undefined, 'expected a list'],
  [{ providers: [{ ...settings('x', 'https://idp.example'), certificates: ['x'] }] }, 'is no certificate'],
  [{ providers: [{ ...settings('x', 'ftp://idp.example') }] }, 'expected an address'],
])('refuses settings that are wrong', (raw, words) => {
  expect(() => parseConfig(raw)).toThrow(words);
});
