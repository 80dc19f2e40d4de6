import { fileURLToPath } from 'node:url';
import { createTestHomeserver, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { parseConfig } from '../src/config.js';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
const documents = [{ name: 'Terms <of> use', url: 'https://example.org/terms?a="b"' }];

it.each<[unknown, string]>([
  [undefined, 'expected an object'],
  [{ version: '1 2', documents }, 'expected a text of letters'],
  [{ version: '1', documents: [] }, 'expected a list of 1 to 20'],
  [{ version: '1', documents: [{ name: 'a', url: 'javascript:alert(1)' }] }, 'expected an http or https address'],
  [{ version: '1', documents, exempt: ['bob'] }, 'expected a list of user ids'],
  [{ version: '1', documents, more: 1 }, 'is unknown; there are version, documents, message, exempt'],
])('%j is refused', (config, problem) => expect(() => parseConfig(config)).toThrow(problem));

describe.each(['sqlite', 'postgres'] as const)('a server with terms (%s)', (database) => {
  let server: TestHomeserver;
  let alice: TestUser;
  const settings = (version: string) => [{ module, config: { version, documents, exempt: ['@bot:rookery.test'] } }];
  beforeAll(async () => {
    const port = await freePort();
    server = await createTestHomeserver({
      database,
      settings: {
        modules: settings('1'),
        public_baseurl: `http://127.0.0.1:${port}/`,
        listeners: [{ port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] }],
      },
    });
    alice = await server.registerUser('alice');
  });
  afterAll(() => server?.stop());

  const create = (user: TestUser) => user.request<Record<string, string>>('POST', '/createRoom', {});
  const press = (uri: string, version: string) =>
    fetch(uri, { method: 'POST', body: new URLSearchParams({ version }) });

  it('asks before anybody writes, once for each version', async () => {
    const refused = await create(alice);
    expect(refused).toMatchObject({
      status: 403,
      body: { errcode: 'M_CONSENT_NOT_GIVEN', error: expect.stringContaining('accept the terms') },
    });
    const uri = refused.body['consent_uri']!;
    const page = await fetch(uri);
    const text = await page.text();
    expect(text).toContain('<a href="https://example.org/terms?a=%22b%22"');
    expect(text).toContain('Terms &#60;of&#62; use');
    // Looking at it is not agreeing to it, and nobody agrees for somebody else, or to what was there before.
    expect((await create(alice)).status).toBe(403);
    expect((await press(uri.replace('alice', 'bob'), '1')).status).toBe(403);
    expect((await press(uri, '0')).status).toBe(409);
    expect((await create(alice)).status).toBe(403);
    expect((await press(uri, '1')).status).toBe(200);
    const made = await create(alice);
    expect(made.status).toBe(200);
    const path = `/rooms/${encodeURIComponent(made.body['room_id']!)}`;
    const send = (user: TestUser, txn: string) =>
      user.request<Record<string, string>>('PUT', `${path}/send/m.room.message/${txn}`, {
        msgtype: 'm.text',
        body: 'x',
      });
    expect((await send(alice, '1')).status).toBe(200);

    await server.restart({ modules: settings('2') });
    const again = await send(alice, '2');
    expect(again).toMatchObject({ status: 403, body: { errcode: 'M_CONSENT_NOT_GIVEN' } });
    expect(await alice.request('POST', `${path}/leave`, {})).toMatchObject({ status: 200 });
    expect((await press(again.body['consent_uri']!, '2')).status).toBe(200);
    expect((await create(alice)).status).toBe(200);
  });

  it('spares who is exempt, and tells administrators who agreed', async () => {
    expect((await create(await server.registerUser('bot'))).status).toBe(200);
    const root = await server.registerAdministrator('root');
    const { body } = await root.request<{ agreements: unknown[] }>('GET', '/_synapse/client/terms-of-use/agreements');
    expect(body.agreements).toEqual([
      { user_id: alice.userId, version: '2', ts: expect.any(Number), ip: expect.stringContaining('127.0.0.1') },
    ]);
    expect((await alice.request('GET', '/_synapse/client/terms-of-use/agreements')).status).toBe(403);
  });
});

it('the link has the prefix of the settings', async () => {
  const server = await createTestHomeserver({
    settings: {
      modules: [{ module, config: { version: '1', documents } }],
      public_baseurl: 'https://chat.example/',
      service_prefix: '_svc',
    },
  });
  try {
    const alice = await server.registerUser('alice');
    const { body } = await alice.request<{ consent_uri: string }>('POST', '/createRoom', {});
    expect(body.consent_uri).toMatch(/^https:\/\/chat\.example\/_svc\/client\/terms-of-use\?u=/);
    const page = await fetch(body.consent_uri.replace('https://chat.example', server.baseUrl));
    expect(page.status).toBe(200);
    expect(await page.text()).toContain('For @alice:rookery.test');
  } finally {
    await server.stop();
  }
});
