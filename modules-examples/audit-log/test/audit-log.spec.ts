import { createHmac } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { beginning, broken, type Entry, sealed } from '../src/chain.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
const key = 'k'.repeat(32);

describe('a chain', () => {
  const chain: Entry[] = [];
  for (let i = 0; i < 4; i++)
    chain.push(sealed(key, chain.at(-1) ?? beginning, { ts: i, what: 'x', who: '@a:x', details: { b: [i], a: null } }));
  const changed = (n: number, change: Partial<Entry>) =>
    chain.map((one) => (one.n === n ? { ...one, ...change } : one));

  it('is whole as it was written, whatever the order of keys', () => {
    expect(broken(key, beginning, chain)).toBeUndefined();
    expect(broken(key, beginning, changed(2, { details: { a: null, b: [1] } }))).toBeUndefined();
    expect(broken(key, chain[1]!, chain.slice(2))).toBeUndefined();
  });

  it.each<[string, Entry[], number]>([
    ['another time', changed(3, { ts: 9 }), 3],
    ['another person', changed(1, { who: null }), 1],
    ['other details', changed(4, { details: {} }), 4],
    ['an entry left out', chain.filter(({ n }) => n !== 2), 2],
    ['two in another order', [chain[1]!, chain[0]!], 1],
    ['the seal of another key', [sealed('other', beginning, chain[0]!)], 1],
  ])('shows %s', (_, entries, wrong) => expect(broken(key, beginning, entries)).toBe(wrong));
});

describe.each(['sqlite', 'postgres'] as const)('a server with an audit log (%s)', (database) => {
  let server: TestHomeserver;
  let alice: TestUser;
  let admin: string;
  beforeAll(async () => {
    server = await createTestHomeserver({ database, settings: { modules: [{ module, config: { key } }] } });
    const path = '/_synapse/admin/v1/register';
    const { nonce } = (await server.request<{ nonce: string }>('GET', path)).body;
    const mac = createHmac('sha1', 'shared').update([nonce, 'boss', 'password', 'admin'].join('\0')).digest('hex');
    const body = { nonce, username: 'boss', password: 'password', admin: true, mac };
    admin = (await server.request<{ access_token: string }>('POST', path, body)).body.access_token;
    alice = await server.registerUser('alice');
  });
  afterAll(() => server?.stop());

  it('writes down what happens, and says that it is whole', async () => {
    await alice.request('POST', '/createRoom', { preset: 'private_chat' });
    await alice.request('POST', '/logout', {});
    const entries = await eventually(async () => {
      const { body } = await server.request<{ entries: Entry[] }>(
        'GET',
        '/_synapse/client/audit-log',
        undefined,
        admin,
      );
      const whats = new Set(body.entries.map(({ what }) => what));
      return ['registration', 'login', 'room', 'state', 'logout'].every((what) => whats.has(what)) && body.entries;
    });
    expect(entries.map(({ n }) => n)).toEqual(entries.map((_, i) => i + 1));
    expect(broken(key, beginning, entries)).toBeUndefined();
    const { body } = await server.request('GET', '/_synapse/client/audit-log/verify', undefined, admin);
    expect(body).toMatchObject({ intact: true, entries: expect.any(Number) });
  });

  it.each(['limit=1.5', 'after=0.5', 'after=1e21', 'limit=Infinity', 'after=-1', 'limit=x'])(
    'does not take %s',
    async (query) => {
      expect(await server.request('GET', `/_synapse/client/audit-log?${query}`, undefined, admin)).toMatchObject({
        status: 400,
        body: { errcode: 'M_INVALID_PARAM' },
      });
    },
  );

  it('is for administrators', async () => {
    const bob = await server.registerUser('bob');
    for (const path of ['', '/verify'])
      expect((await bob.request('GET', `/_synapse/client/audit-log${path}`)).status).toBe(403);
  });
});
