import { join } from 'node:path';
import { type CallbackName, callbackTable } from '@rookery/module-api';
import { probe, type ProbeServer, startProbe } from './probe-server.js';

const cycle: Record<string, unknown> = { allowed: true };
cycle['replacement'] = { content: cycle };
cycle['extra'] = cycle;
const explosive: object = new Proxy(
  {},
  {
    get() {
      throw new Error('get');
    },
    ownKeys() {
      throw new Error('ownKeys');
    },
    getPrototypeOf() {
      throw new Error('getPrototypeOf');
    },
  },
);
const longText = 'x'.repeat(6_000_000);

const kinds: Readonly<Record<string, () => unknown>> = {
  'a proxy': () => explosive,
  'a proxy, thrown': () => {
    throw explosive;
  },
  'a cycle': () => cycle,
  'a very long text': () => longText,
  'a list of very long texts': () => [longText, longText],
  'a bigint in a refusal': () => ({ errcode: 'M_FORBIDDEN', allowed: false, extra: { n: 7n } }),
  'a bigint in content': () => ({ allowed: true, replacement: { content: { n: 7n } }, n: 7n }),
  'content that no event may have': () => ({ allowed: true, replacement: { content: { n: 0.5, big: 2 ** 60 } } }),
  'content that is too large': () => ({ allowed: true, replacement: { content: { body: longText.slice(0, 70_000) } } }),
  'a getter that throws': () => ({
    get allowed(): never {
      throw explosive;
    },
    get errcode(): never {
      throw explosive;
    },
    get userId(): never {
      throw explosive;
    },
  }),
  'a thenable that throws': () => ({
    then() {
      throw explosive;
    },
  }),
  'an odd Matrix error': () => {
    throw { $$type: 'MatrixError', status: 403, errcode: 'M_X', message: explosive, extra: cycle } as unknown as Error;
  },
  'a symbol': () => Symbol('x'),
  'a function': () => () => undefined,
};

describe.each(['sqlite', 'postgres'] as const)('a server whose module answers rubbish to everything (%s)', (kind) => {
  let server: ProbeServer;
  beforeAll(async () => {
    const module = join(import.meta.dirname, 'fixtures/probe.ts');
    server = await startProbe(kind, {
      modules: [{ module, time_limit: 200 }],
      room_list_publication_rules: [{ action: 'allow' }],
    });
  });
  afterAll(() => server?.stop());
  afterEach(() => probe.reset());

  let round = 0;
  /** Everything a client does on a day; the answers by what was done. */
  async function day(): Promise<Map<string, { status: number; body: unknown }>> {
    const n = ++round;
    const answers = new Map<string, { status: number; body: unknown }>();
    const { answers: odd } = probe;
    probe.answers = {};
    const ann = await server.registerUser(`ann${n}`);
    const ben = await server.registerUser(`ben${n}`);
    const roomId = (await ann.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' })).body
      .room_id;
    const room = `/rooms/${encodeURIComponent(roomId)}`;
    const me = encodeURIComponent(ann.userId);
    probe.answers = odd;
    const uploading = (): Promise<Response> =>
      fetch(`${server.baseUrl}/_matrix/media/v3/upload`, {
        method: 'POST',
        headers: { authorization: `Bearer ${ann.accessToken}`, 'content-type': 'text/plain' },
        body: 'a file',
      });
    const done: readonly (readonly [string, () => Promise<{ status: number; body: unknown }>])[] = [
      ['send', () => ann.request('PUT', `${room}/send/m.room.message/${n}`, { msgtype: 'm.text', body: 'x' })],
      ['state', () => ann.request('PUT', `${room}/state/m.room.topic/`, { topic: 'x' })],
      ['invite', () => ann.request('POST', `${room}/invite`, { user_id: ben.userId })],
      ['join', () => ben.request('POST', `/join/${encodeURIComponent(roomId)}`, {})],
      [
        'create',
        () => ann.request('POST', '/createRoom', { name: 'R', room_alias_name: `r${n}`, visibility: 'public' }),
      ],
      [
        'list',
        () => ann.request('PUT', `/directory/list/room/${encodeURIComponent(roomId)}`, { visibility: 'public' }),
      ],
      ['profile', () => ann.request('PUT', `/profile/${me}/displayname`, { displayname: 'x' })],
      ['account data', () => ann.request('PUT', `/user/${me}/account_data/org.example`, {})],
      ['search', () => ann.request('POST', '/user_directory/search', { search_term: 'ben' })],
      ['presence', () => ann.request('PUT', `/presence/${me}/status`, { presence: 'online' })],
      ['messages', () => ann.request('GET', `${room}/messages?dir=b&limit=3`)],
      ['sync', () => ann.request('GET', '/sync')],
      ['media config', () => ann.request('GET', '/_matrix/client/v1/media/config')],
      [
        'upload',
        async () => {
          const response = await uploading();
          return { status: response.status, body: await response.json() };
        },
      ],
      [
        'login',
        () =>
          server.request('POST', '/login', {
            ...{ type: 'm.login.password', password: `password of ann${n}` },
            identifier: { type: 'm.id.user', user: `ann${n}` },
          }),
      ],
      [
        'register',
        () =>
          server.request('POST', '/register', {
            ...{ username: `carl${n}`, password: 'a long enough password', auth: { type: 'm.login.dummy' } },
          }),
      ],
      ['upgrade', () => ann.request('POST', `${room}/upgrade`, { new_version: '11' })],
    ];
    for (const [what, run] of done) answers.set(what, await run());
    return answers;
  }

  it.each(Object.keys(kinds))('%s: each request gets a clear answer, and the server goes on', async (what) => {
    // Rubbish about the account itself ends every request before anything else is asked: on its own, first.
    const eve = await server.registerUser(`eve${round}`);
    probe.answers = { isUserExpired: kinds[what] } as typeof probe.answers;
    expect(await eve.request('GET', '/account/whoami')).toMatchObject({ status: 500, body: { errcode: 'M_UNKNOWN' } });
    probe.reset();
    const names = (Object.keys(callbackTable) as CallbackName[]).filter((name) => name !== 'isUserExpired');
    probe.answers = Object.fromEntries(names.map((name) => [name, kinds[what]])) as typeof probe.answers;
    const fired = (): Set<string> => new Set(probe.fired.map(({ name }) => name));
    for (const [request, { status, body }] of await day()) {
      const { errcode, error } = body as { errcode?: unknown; error?: unknown };
      const isClear = status === 200 || (typeof errcode === 'string' && typeof error === 'string');
      expect([request, status, isClear, status <= 500]).toEqual([request, status, true, true]);
    }
    expect(fired().size).toBeGreaterThan(20);
    probe.reset();
    for (const [request, { status }] of await day()) expect([request, status]).toEqual([request, 200]);
  });
});
