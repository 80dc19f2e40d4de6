import { fileURLToPath } from 'node:url';
import ldap from 'ldapjs';
import { linkOf } from '../../../test/e2e/sso/browser.js';
import { base, startWorld, type World } from '../../../test/e2e/sso/world.js';
import { parseConfig } from '../src/config.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
const people = [
  { uid: 'anna', cn: 'Anna Example', mail: 'anna@example.org', memberof: ['cn=matrix,dc=example'] },
  { uid: 'bert', cn: 'Bert Example', mail: 'bert@example.org', memberof: ['cn=others,dc=example'] },
];

/** A directory of two people whose passwords are `password of NAME`. */
async function startDirectory() {
  const server = ldap.createServer();
  const directory = { away: false, searches: 0 };
  server.bind('dc=example', (request, response, next) => {
    const dn = request.dn.toString().replace(/\s/g, '');
    const [, name] = /^(?:uid|cn)=(\w+),/.exec(dn) ?? [];
    if (request.credentials === `password of locked ${name}`) return next(new ldap.UnwillingToPerformError());
    if (request.credentials !== `password of ${name}`) return next(new ldap.InvalidCredentialsError());
    response.end();
  });
  server.search('ou=people,dc=example', (request, response, next) => {
    directory.searches++;
    if (directory.away) return next(new ldap.OperationsError());
    for (const person of people) {
      if (request.filter.matches(person))
        response.send({
          dn: `uid=${person.uid},ou=people,dc=example`,
          attributes: person,
        });
    }
    response.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return Object.assign(directory, {
    url: server.url,
    stop: () => new Promise<void>((resolve) => server.close(resolve)),
  });
}

describe('signing in with a directory', () => {
  let directory: Awaited<ReturnType<typeof startDirectory>>;
  let world: World;
  beforeAll(async () => {
    directory = await startDirectory();
    const common = {
      ...{ url: directory.url, base: 'ou=people,dc=example' },
      ...{ bind_dn: 'cn=service,dc=example', bind_password: 'password of service' },
    };
    world = await startWorld('sqlite', {
      modules: [
        {
          module,
          config: {
            directories: [
              { ...common, name: 'Staff' },
              { ...common, id: 'members', name: 'Members', group: 'CN=Matrix, DC=example', mail: 'none' },
              { ...common, id: 'broken', name: 'Broken', bind_password: 'old' },
              { ...common, id: 'fitting', name: 'Fitting', filter: '(&(mail=*)(!(uid=bert)))', mail: 'none' },
              { ...common, id: 'older', name: 'Older', mail: 'none', allow_existing_users: true },
            ],
          },
        },
      ],
    });
  });
  afterAll(async () => {
    await world?.stop();
    await directory?.stop();
  });

  const signOn = async (username: string, password: string, id = 'ldap') => {
    const browser = world.browser();
    return browser.submit(await world.begin(browser, id), { username, password });
  };

  it('asks for name and password on a page, and makes an account of what the directory says', async () => {
    const user = await world.logIn(await signOn('anna', 'password of anna'));
    expect(user.userId).toBe('@anna:rookery.test');
    expect((await user.request('GET', `/profile/${user.userId}`)).body).toMatchObject({ displayname: 'Anna Example' });
    expect((await user.request('GET', '/account/3pid')).body).toMatchObject({
      threepids: [{ medium: 'email', address: 'anna@example.org' }],
    });
  });

  it('confirms an operation by the password, too', async () => {
    const browser = world.browser();
    const page = await world.begin(browser, 'ldap');
    const user = await world.logIn(await browser.submit(page, { username: 'anna', password: 'password of anna' }));
    const remove = (auth: object) =>
      user.request<{ session: string }>('POST', '/delete_devices', { devices: ['X'], auth });
    const { session } = (await remove({})).body;
    const confirm = await browser.go(`${base}/_matrix/client/v3/auth/m.login.sso/fallback/web?session=${session}`);
    const form = await browser.follow(linkOf(confirm, /Confirm/));
    await browser.submit(form, { username: 'anna', password: 'password of anna' });
    expect(await remove({ session })).toMatchObject({ status: 200 });
  });

  it.each([
    ['a wrong password', 'anna', 'guess'],
    ['an account that the directory has locked', 'anna', 'password of locked anna'],
    ['a name that nobody has', 'nobody', 'guess'],
    ['no password, which directories take for a question without a name', 'anna', ''],
    ['a name that would be a filter', '*', 'password of anna'],
  ])('shows the page again: %s', async (_, username, password) => {
    const page = await signOn(username, password);
    expect(page.status).toBe(403);
    expect(page.html).toContain('The name or the password is wrong.');
    expect(page.html).not.toContain(password === '' ? 'value="guess"' : password);
  });

  it('keeps out who is not in the group', async () => {
    expect((await signOn('bert', 'password of bert', 'members')).html).toContain('is wrong');
    expect((await signOn('anna', 'password of anna', 'members')).location?.searchParams.has('loginToken')).toBe(true);
  });

  it('keeps out who does not fit the filter', async () => {
    expect((await signOn('bert', 'password of bert', 'fitting')).html).toContain('is wrong');
    expect((await signOn('anna', 'password of anna', 'fitting')).location?.searchParams.has('loginToken')).toBe(true);
  });

  it('gives people the account that they had before, where the settings say so', async () => {
    const bert = await world.homeserver.registerUser('bert');
    expect((await world.logIn(await signOn('bert', 'password of bert'))).userId).toBe('@bert1:rookery.test');
    expect((await world.logIn(await signOn('bert', 'password of bert', 'older'))).userId).toBe(bert.userId);
  });

  it('blames nobody for a directory that is away, or for settings that are wrong', async () => {
    expect((await signOn('anna', 'password of anna', 'broken')).status).toBe(502);
    directory.away = true;
    expect((await signOn('anna', 'password of anna')).status).toBe(502);
    directory.away = false;
  });
});

it.each([
  [undefined, 'expected a list'],
  [{ directories: [{ url: 'ldap://ldap.example', base: 'x' }] }, 'expected an ldaps address'],
  [{ directories: [{ url: 'ldaps://ldap.example' }] }, 'expected a text'],
  [{ directories: [{ url: 'ldaps://ldap.example', base: 'x', user: 1 }] }, 'is unknown'],
  [{ directories: [{ url: 'ldaps://ldap.example', base: 'x', filter: '(uid=' }] }, 'is no filter'],
  [
    { directories: [{ url: 'ldaps://ldap.example', base: 'x', allow_existing_users: 'yes' }] },
    'expected true or false',
  ],
])('refuses settings that are wrong: %j', (raw, words) => {
  expect(() => parseConfig(raw)).toThrow(words);
});
