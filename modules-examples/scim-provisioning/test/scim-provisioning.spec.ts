import { fileURLToPath } from 'node:url';
import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { MatrixError, type ModuleApi } from '@rookery/module-api';
import { parseConfig } from '../src/config.js';
import { People } from '../src/people.js';
import { filterOf, patched, type User } from '../src/protocol.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
const token = 't'.repeat(32);

it.each<[unknown, string]>([
  [undefined, 'expected an object'],
  [{ token: 'short' }, 'expected a text of at least 32'],
  [{ token, adopt: 1 }, 'expected true or false'],
  [{ token, auth_provider: '' }, 'expected the id of a sign-in provider'],
  [{ token, more: 1 }, 'is unknown; there are token, auth_provider, adopt'],
])('%j is refused', (config, problem) => expect(() => parseConfig(config)).toThrow(problem));

describe('the protocol', () => {
  const user: User = {
    ...{
      id: 'i',
      userId: '@a:x',
      userName: 'a',
      externalId: 'e',
      displayName: 'A',
      emails: ['a@x', 'b@x'],
      active: true,
    },
    ...{ createdMs: 0, modifiedMs: 0 },
  };
  const schema = 'urn:ietf:params:scim:schemas:core:2.0:User';
  it.each<[string, object, object]>([
    ['a value by its path', { op: 'Replace', path: 'active', value: false }, { active: false }],
    ['truth as a text', { op: 'replace', path: 'active', value: 'False' }, { active: false }],
    [
      'values without a path',
      { op: 'replace', value: { displayName: 'B', active: false } },
      { displayName: 'B', active: false },
    ],
    ['a path with its schema', { op: 'replace', path: `${schema}:displayName`, value: 'B' }, { displayName: 'B' }],
    [
      'the name from its parts',
      { op: 'replace', path: 'name', value: { givenName: 'C', familyName: 'D' } },
      { displayName: 'C D' },
    ],
    ['another address', { op: 'add', path: 'emails', value: [{ value: 'c@x' }] }, { emails: ['a@x', 'b@x', 'c@x'] }],
    [
      'the address of a kind',
      { op: 'replace', path: 'emails[type eq "work"].value', value: 'c@x' },
      { emails: ['c@x', 'b@x'] },
    ],
    ['one address', { op: 'remove', path: 'emails[value eq "B@x"]' }, { emails: ['a@x'] }],
    [
      'one address for another',
      { op: 'replace', path: 'emails[value eq "b@x"].value', value: 'c@x' },
      { emails: ['a@x', 'c@x'] },
    ],
    ['an address of a kind that is not kept', { op: 'remove', path: 'emails[type eq "home"]' }, {}],
    [
      'the first address',
      { op: 'add', path: 'emails[primary eq true].value', value: 'c@x' },
      { emails: ['c@x', 'b@x'] },
    ],
    [
      'the name that is said rather than one of parts',
      { op: 'replace', value: { displayName: 'B', name: { givenName: 'C', familyName: 'D' } } },
      { displayName: 'B' },
    ],
    [
      'no name by a part of one that is not kept',
      { op: 'replace', path: 'name', value: { honorificPrefix: 'Dr' } },
      {},
    ],
    ['something taken away', { op: 'remove', path: 'externalId' }, { externalId: undefined }],
    ['what is not kept here', { op: 'replace', path: 'title', value: 'Dr' }, {}],
  ])('changes %s', (_, operation, change) => {
    expect(patched(user, { Operations: [operation] })).toEqual({ ...user, ...change });
  });

  it.each<[unknown, string]>([
    [{}, 'Operations is no list'],
    [{ Operations: [{ op: 'move', path: 'active' }] }, 'op is not'],
    [{ Operations: [null] }, 'op is not'],
    [{ Operations: [{ op: 'remove', path: 'userName' }] }, 'cannot be taken away'],
    [{ Operations: [{ op: 'replace', path: 'active', value: 'maybe' }] }, 'neither true nor false'],
    [{ Operations: [{ op: 'replace', path: 'displayName', value: 'x'.repeat(257) }] }, 'no text of at most 256'],
    [
      { Operations: [{ op: 'replace', path: 'name', value: { familyName: 'x'.repeat(257) } }] },
      'no text of at most 256',
    ],
    [{ Operations: [{ op: 'replace', path: 'externalId', value: 'x'.repeat(501) }] }, 'no text of at most 500'],
    [{ Operations: [{ op: 'replace', path: 'displayName', value: 'a\0' }] }, 'cannot be stored'],
    [{ Operations: [{ op: 'remove' }] }, 'path is missing'],
    [{ Operations: [{ op: 'remove', path: 'emails[value sw "a"]' }] }, 'told apart by'],
  ])('refuses %j', (body, problem) => expect(() => patched(user, body)).toThrow(problem));

  it('reads the filters that directories send', () => {
    expect(filterOf(null)).toBeUndefined();
    expect(filterOf('userName eq "a\\"b"')).toEqual({ attribute: 'userName', value: 'a"b' });
    expect(filterOf('EXTERNALID Eq "1"')).toEqual({ attribute: 'externalId', value: '1' });
    for (const filter of ['userName sw "a"', 'userName eq a', 'userName eq "a" or userName eq "b"'])
      expect(() => filterOf(filter)).toThrow('can be filtered by');
  });
});

/** A server as far as these people need one. */
function fakeServer(fails: { names?: boolean; next?: string | undefined } = {}) {
  const kept = new Map<string, unknown>();
  const cached = new Map<string, Promise<unknown>>();
  const store = {
    get: (key: string) => Promise.resolve(kept.get(key)),
    put: async (key: string, value: unknown) => void kept.set(key, value),
    delete: async (key: string) => kept.delete(key),
  };
  const accounts = new Set<string>();
  const tied = new Map<string, string>();
  const names = new Map<string, string>();
  const failing = (what: string): void => {
    if (fails.next !== what) return;
    fails.next = undefined;
    throw new Error(`${what} failed`);
  };
  let turn = Promise.resolve<unknown>(undefined);
  const api = {
    store: {
      ...store,
      transaction: (run: (tx: unknown) => Promise<unknown>) => {
        const result = turn.then(() => {
          failing('transaction');
          return run(store);
        });
        turn = result.catch(() => undefined);
        return result;
      },
    },
    registerCachedFunction: (_: string, load: (key: string) => Promise<unknown>) => (key: string) => {
      if (!cached.has(key)) cached.set(key, load(key));
      return cached.get(key);
    },
    invalidateCache: async (_: string, key: string) => void cached.delete(key),
    getCurrentTimeMsec: () => 0,
    getQualifiedUserId: (localpart: string) => `@${localpart}:x`,
    checkUserExists: async (userId: string) => (accounts.has(userId) ? userId : undefined),
    getUserinfoById: async () => ({ isDeactivated: false }),
    deactivateUser: async (userId: string) => void accounts.delete(userId),
    registerUser: async (localpart: string) => {
      if (accounts.has(`@${localpart}:x`)) throw new MatrixError(400, 'M_USER_IN_USE', 'taken');
      accounts.add(`@${localpart}:x`);
      return `@${localpart}:x`;
    },
    setDisplayname: async (userId: string, name: string) => {
      if (fails.names) throw new Error('no');
      names.set(userId, name);
    },
    getUserByExternalId: async (_: string, id: string) => tied.get(id),
    recordUserExternalId: async (_: string, id: string, userId: string) => {
      failing('tie');
      tied.set(id, userId);
    },
    forgetUserExternalId: async (_: string, id: string) => {
      failing('untie');
      tied.delete(id);
    },
  };
  return { api: api as unknown as ModuleApi, accounts, tied, names };
}
const ann = { userName: 'ann', externalId: undefined, displayName: 'Ann', emails: [], active: true };

it('brings nobody back who is switched off while something else of them changes', async () => {
  const { api } = fakeServer();
  const people = new People(api, { authProvider: undefined, adopt: false });
  const { id } = await people.add(ann);
  const patch = (value: object) => people.change(id, (now) => patched(now, { Operations: [{ op: 'replace', value }] }));
  await Promise.all([patch({ active: false }), patch({ displayName: 'Anna' }), patch({ emails: ['a@x'] })]);
  expect(await people.byId(id)).toMatchObject({ active: false, displayName: 'Anna', emails: ['a@x'] });
  // Nor does a name come to two people who ask for it at once.
  const bob = await people.add({ ...ann, userName: 'bob' });
  const both = await Promise.allSettled(
    [id, bob.id].map((one) => people.change(one, (now) => ({ ...now, userName: 'Star' }))),
  );
  expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
});

it('can be asked again for an account whose making ended half-way', async () => {
  const fails: { next?: string | undefined } = { next: 'transaction' };
  const { api, accounts, tied } = fakeServer(fails);
  const people = new People(api, { authProvider: 'oidc', adopt: false });
  await expect(people.add({ ...ann, externalId: 'e' })).rejects.toThrow('transaction failed');
  expect([...accounts]).toEqual(['@ann:x']);
  fails.next = 'tie';
  await expect(people.add({ ...ann, externalId: 'e' })).rejects.toThrow('tie failed');
  const made = (await people.byExternalId('e'))!;
  await people.change(made.id, (now) => now);
  expect([...tied]).toEqual([['e', '@ann:x']]);
  // Whoever made an account themselves keeps it.
  accounts.add('@here:x');
  for (let i = 0; i < 2; i++) await expect(people.add({ ...ann, userName: 'here' })).rejects.toThrow('is here already');
});

it('switches somebody off though their name could not be changed', async () => {
  const { api } = fakeServer({ names: true });

  const people = new People(api, { authProvider: undefined, adopt: false });
  const user = await people.add(ann);
  expect(await people.isActive('@ann:x')).toBe(true);
  await expect(people.change(user.id, () => ({ ...ann, displayName: 'Anna', active: false }))).rejects.toThrow('no');
  expect(await people.isActive('@ann:x')).toBe(false);
});

it('does to the account what a change that ended half-way left open', async () => {
  const fails: { names?: boolean; next?: string | undefined } = { names: true };
  const { api, tied, names } = fakeServer(fails);
  const people = new People(api, { authProvider: 'oidc', adopt: false });
  const { id } = await people.add({ ...ann, externalId: 'a' });
  const become = (externalId: string, displayName = 'Anna') =>
    people.change(id, (now) => ({ ...now, externalId, displayName }));
  // Whoever comes by the former id does not depend on a name.
  await expect(become('b')).rejects.toThrow('no');
  expect([...tied]).toEqual([['b', '@ann:x']]);
  fails.names = false;
  await become('b');
  expect(names.get('@ann:x')).toBe('Anna');
  for (const next of ['c', 'd']) {
    fails.next = 'untie';
    await expect(become(next)).rejects.toThrow('untie failed');
  }
  await become('d');
  expect([...tied]).toEqual([['d', '@ann:x']]);
  fails.next = 'untie';
  await expect(become('e')).rejects.toThrow('untie failed');
  await become('d');
  expect([...tied]).toEqual([['d', '@ann:x']]);
  // A name that the person took themselves stays until the directory has another one.
  names.set('@ann:x', 'Mine');
  await become('e');
  expect(names.get('@ann:x')).toBe('Mine');
  fails.next = 'untie';
  await expect(become('f')).rejects.toThrow('untie failed');
  await people.remove((await people.byId(id))!);
  expect([...tied]).toEqual([]);
});

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

describe.each(['sqlite', 'postgres'] as const)('a server with a directory (%s)', (database) => {
  let server: TestHomeserver;
  const settings = (more: object = {}) => [{ module, config: { token, auth_provider: 'oidc-work', ...more } }];
  beforeAll(async () => {
    server = await createTestHomeserver({ database, settings: { modules: settings() } });
  });
  afterAll(() => server?.stop());

  const scim = async (method: string, path: string, body?: object, by = token): Promise<Answer> => {
    const response = await fetch(`${server.baseUrl}/_synapse/client/scim/v2${path}`, {
      method,
      headers: { authorization: `Bearer ${by}`, 'content-type': 'application/scim+json' },
      ...(body ? { body: JSON.stringify(body) } : {}),
    });
    const text = await response.text();
    if (text !== '') expect(response.headers.get('content-type')).toBe('application/scim+json');
    return { status: response.status, body: text === '' ? {} : (JSON.parse(text) as Record<string, unknown>) };
  };
  const person = (userName: string, more: object = {}) => ({
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:User'],
    userName,
    name: { givenName: 'Ann', familyName: 'Example' },
    emails: [{ value: `${userName.split('@')[0]}@mail.example`, type: 'work', primary: true }],
    active: true,
    ...more,
  });

  it('answers those with the token only', async () => {
    expect(await scim('GET', '/Users', undefined, 'x'.repeat(32))).toMatchObject({
      status: 401,
      body: { schemas: ['urn:ietf:params:scim:api:messages:2.0:Error'], status: '401' },
    });
    for (const path of ['/ServiceProviderConfig', '/ResourceTypes', '/Schemas', '/Groups'])
      expect((await scim('GET', path)).status).toBe(200);
    expect((await scim('POST', '/Groups', {})).status).toBe(501);
    // What is said to be somewhere is there.
    const { body: types } = await scim('GET', '/ResourceTypes');
    const [type] = types['Resources'] as { schema: string; meta: { location: string } }[];
    const { pathname } = new URL(type!.meta.location, server.baseUrl);
    expect(await scim('GET', pathname.split('/v2')[1]!)).toMatchObject({ status: 200, body: { id: 'User' } });
    expect(await scim('GET', `/Schemas/${type!.schema}`)).toMatchObject({ status: 200, body: { name: 'User' } });
    expect(await scim('GET', '/Schemas/other')).toMatchObject({ status: 404, body: { status: '404' } });
    const unasked = await fetch(`${server.baseUrl}/_synapse/client/scim/v2/Users`);
    expect(unasked.headers.get('www-authenticate')).toBe('Bearer');
  });

  it('has people made, changed, switched off and on, and closed', async () => {
    const root = await server.registerAdministrator('root');
    const made = await scim('POST', '/Users', person('Ann@example.org', { externalId: 'e-1' }));
    expect(made).toMatchObject({
      status: 201,
      body: { userName: 'Ann@example.org', active: true, displayName: 'Ann Example' },
    });
    const id = String(made.body['id']);
    const account = async () =>
      (await root.request<Record<string, unknown>>('GET', '/_synapse/admin/v2/users/@ann:rookery.test')).body;
    expect(await account()).toMatchObject({
      displayname: 'Ann Example',
      deactivated: false,
      threepids: [{ medium: 'email', address: 'ann@mail.example' }],
      external_ids: [{ auth_provider: 'oidc-work', external_id: 'e-1' }],
    });

    const path = '/_synapse/admin/v1/users/@ann:rookery.test/login';
    const { body: login } = await root.request<{ access_token: string }>('POST', path, {});
    const asAnn = () => server.request('GET', '/joined_rooms', undefined, login.access_token);
    expect((await asAnn()).status).toBe(200);
    const patch = (value: object) =>
      scim('PATCH', `/Users/${id}`, {
        schemas: ['urn:ietf:params:scim:api:messages:2.0:PatchOp'],
        Operations: [{ op: 'Replace', value }],
      });
    expect(await patch({ active: false })).toMatchObject({ status: 200, body: { active: false } });
    expect(await asAnn()).toMatchObject({ status: 403, body: { errcode: 'ORG_MATRIX_EXPIRED_ACCOUNT' } });
    const silent = person('Ann@example.org', { externalId: 'e-1', active: undefined });
    expect(await scim('PUT', `/Users/${id}`, silent)).toMatchObject({ status: 200, body: { active: false } });
    expect((await patch({ active: true, displayName: 'Anna' })).status).toBe(200);
    expect((await asAnn()).status).toBe(200);
    expect(await account()).toMatchObject({ displayname: 'Anna' });
    const put = await scim('PUT', `/Users/${id}`, person('Ann@example.org', { externalId: 'e-2', displayName: 'Ann' }));
    expect(put).toMatchObject({ status: 200, body: { id, externalId: 'e-2', displayName: 'Ann' } });

    const find = async (filter: string) => (await scim('GET', `/Users?filter=${encodeURIComponent(filter)}`)).body;
    expect(await find('userName eq "ann@EXAMPLE.org"')).toMatchObject({ totalResults: 1, Resources: [{ id }] });
    expect(await find('externalId eq "e-2"')).toMatchObject({ totalResults: 1, Resources: [{ id }] });
    expect(await find('externalId eq "e-1"')).toMatchObject({ totalResults: 0, Resources: [] });
    expect(await find('userName co "a"')).toMatchObject({ status: '400', scimType: 'invalidFilter' });

    const long = person('Ann@example.org', { externalId: 'e-4', displayName: 'x'.repeat(257) });
    expect(await scim('PUT', `/Users/${id}`, long)).toMatchObject({ status: 400, body: { scimType: 'invalidValue' } });

    // By an id that is theirs no more nobody comes to the account.
    expect(await account()).toMatchObject({ external_ids: [{ auth_provider: 'oidc-work', external_id: 'e-2' }] });

    // An id at the provider that is somebody else's changes nothing at all.
    await server.registerUser('holder');
    await root.request('PUT', '/_synapse/admin/v2/users/@holder:rookery.test', {
      external_ids: [{ auth_provider: 'oidc-work', external_id: 'e-3' }],
    });
    expect(await patch({ displayName: 'Zoe', externalId: 'e-3' })).toMatchObject({
      status: 409,
      body: { scimType: 'uniqueness' },
    });
    expect(await scim('POST', '/Users', person('zoe', { externalId: 'e-3' }))).toMatchObject({ status: 409 });
    expect((await scim('GET', `/Users/${id}`)).body).toMatchObject({ externalId: 'e-2', displayName: 'Ann' });

    expect((await scim('DELETE', `/Users/${id}`)).status).toBe(204);
    expect((await scim('GET', `/Users/${id}`)).status).toBe(404);
    expect(await account()).toMatchObject({ deactivated: true, external_ids: [] });
    // Nor is the account anybody's any more.
    expect(await scim('POST', '/Users', person('Ann@example.org'))).toMatchObject({ status: 409 });
    expect((await asAnn()).status).toBe(401);
  });

  it('takes nobody twice, and nobody who is here already unless it is told to', async () => {
    await server.registerUser('here');
    expect(await scim('POST', '/Users', person('here'))).toMatchObject({
      status: 409,
      body: { scimType: 'uniqueness' },
    });
    expect((await scim('POST', '/Users', person('twice'))).status).toBe(201);
    expect(await scim('POST', '/Users', person('TWICE'))).toMatchObject({
      status: 409,
      body: { scimType: 'uniqueness' },
    });
    expect(await scim('POST', '/Users', person('no spaces please'))).toMatchObject({
      status: 400,
      body: { scimType: 'invalidValue' },
    });
    expect(await scim('POST', '/Users', { userName: 7 })).toMatchObject({
      status: 400,
      body: { scimType: 'invalidValue' },
    });
    for (const name of ['three', 'four']) expect((await scim('POST', '/Users', person(name))).status).toBe(201);
    const pages = await Promise.all([1, 2, 3, 4].map((start) => scim('GET', `/Users?startIndex=${start}&count=1`)));
    expect(pages.map(({ body }) => body['totalResults'])).toEqual([3, 3, 3, 3]);
    const names = pages
      .flatMap(({ body }) => body['Resources'] as { userName: string }[])
      .map(({ userName }) => userName);
    expect(names.sort()).toEqual(['four', 'three', 'twice']);
    await server.restart({ modules: settings({ adopt: true }) });
    expect((await scim('POST', '/Users', person('here'))).status).toBe(201);
    expect((await scim('GET', '/Users?count=0')).body).toMatchObject({ totalResults: 4, Resources: [] });
  });
});
