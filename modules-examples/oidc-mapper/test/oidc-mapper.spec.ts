import { ConfigError, type ModuleApi, type OidcMappingProvider } from '@rookery/module-api';
import oidcMapper from '../src/index.js';

let create: (config: unknown) => OidcMappingProvider = () => {
  throw new Error('not registered');
};
void oidcMapper.register(
  {
    registerOidcMappingProvider(name: string, factory: typeof create) {
      expect(name).toBe('oidc-mapper');
      create = factory;
    },
  } as unknown as ModuleApi,
  undefined,
);

it('knows a user by the claim it is told', () => {
  expect(create({}).getRemoteUserId({ sub: 'abc' })).toBe('abc');
  expect(create({ subject: 'oid' }).getRemoteUserId({ sub: 'abc', oid: 7 })).toBe('7');
  for (const claims of [{}, { sub: '' }, { sub: null }, { sub: {} }]) {
    expect(() => create({}).getRemoteUserId(claims)).toThrow(/did not say who you are/);
  }
});

it('makes a valid localpart, and another one when it is taken', async () => {
  const map = async (name: unknown, failures = 0): Promise<unknown> =>
    (await create({}).mapUserAttributes({ preferred_username: name }, {}, failures)).localpart;
  expect(await map('Alice')).toBe('alice');
  expect(await map('Alice', 3)).toBe('alice3');
  expect(await map('Jörg K')).toBe('j=c3=b6rg=20k');
  expect(await map(undefined)).toBeUndefined();
  expect(await map(42)).toBeUndefined();
});

it('takes name, picture and a verified address', async () => {
  const claims = { preferred_username: 'a', name: 'Alice', picture: 'https://x.example/a.png', email: 'a@example.org' };
  expect(await create({ confirm: true }).mapUserAttributes(claims, {}, 0)).toEqual({
    localpart: 'a',
    confirmLocalpart: true,
    displayName: 'Alice',
    picture: 'https://x.example/a.png',
    emails: ['a@example.org'],
  });
  for (const said of [false, 'false']) {
    const unverified = await create({}).mapUserAttributes({ ...claims, email_verified: said }, {}, 0);
    expect(unverified.emails).toEqual([]);
  }
});

it('keeps out who is in no group', () => {
  const { mapUserAttributes, getExtraAttributes } = create({ groups: ['staff'] });
  expect(() => getExtraAttributes?.({ groups: ['guests'] }, {})).toThrow(/may not use this server/);
  expect(getExtraAttributes?.({ groups: ['staff'] }, {})).toEqual({});
  expect(() => mapUserAttributes({ groups: ['guests'] }, {}, 0)).toThrow(/may not use this server/);
  expect(() => mapUserAttributes({ groups: 'staff' }, {}, 0)).toThrow(/may not use this server/);
  expect(() => mapUserAttributes({ groups: ['guests', 'staff'] }, {}, 0)).not.toThrow();
});

it('puts claims into the answer of a login', () => {
  const { getExtraAttributes } = create({ extra: { 'org.example.team': 'team', 'org.example.floor': 'floor' } });
  expect(getExtraAttributes?.({ team: 'red', name: 'x' }, {})).toEqual({ 'org.example.team': 'red' });
});

it.each([
  [7, []],
  [{ localpart: '' }, ['localpart']],
  [{ groups: 'staff' }, ['groups']],
  [{ extra: { a: 1 } }, ['extra']],
  [{ extra: ['team'] }, ['extra']],
  [{ confirm: 'yes' }, ['confirm']],
  [{ other: 1 }, ['other']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    create(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
