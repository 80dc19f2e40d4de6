import {
  type AccountValidityCallbacks,
  type CallbackContext,
  ConfigError,
  type DocumentStore,
  type ModuleApi,
  type WebHandler,
} from '@rookery/module-api';
import accountValidity from '../src/index.js';

const context: CallbackContext = { source: 'client', isAdmin: false, duringRoomCreation: false };
const dayMs = 86_400_000;
const alice = '@alice:x';

interface Loaded {
  callbacks: AccountValidityCallbacks;
  mails: { to: string; text: string }[];
  documents: Map<string, unknown>;
  pass: (days: number) => void;
  job: () => Promise<void>;
  web: (query: string, method?: string) => Promise<{ status: number; text: string }>;
  expired: (userId: string) => Promise<unknown>;
  asAdmin: (userId: string, request?: { method?: string; body?: object | string; by?: string }) => Promise<unknown>;
}

function load(more: Partial<ModuleApi> = {}): Loaded {
  let nowMs = 1_000 * dayMs;
  const handlers = new Map<string, WebHandler>();
  const documents = new Map<string, unknown>();
  const store: DocumentStore = {
    get: async (key) => documents.get(key),
    put: async (key, value) => void documents.set(key, value),
    delete: async (key) => documents.delete(key),
    list: async ({ prefix = '', after = '', limit = 2 } = {}) =>
      [...documents]
        .filter(([key]) => key.startsWith(prefix) && key > after)
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .slice(0, limit)
        .map(([key, value]) => ({ key, value })),
  };
  const cache = new Map<string, Promise<unknown>>();
  const loaded = {
    callbacks: {},
    mails: [],
    documents,
    pass: (days: number) => void (nowMs += days * dayMs),
  } as unknown as Loaded;
  const api = {
    publicBaseurl: 'https://example.org/',
    urlOf: (path: string, query: Record<string, string>) =>
      `https://example.org${path.replace('_synapse', '_svc')}?${new URLSearchParams(query)}`,
    registerAccountValidityCallbacks: (given: AccountValidityCallbacks) => void (loaded.callbacks = given),
    registerWebResource: (path: string, handler: WebHandler) => void handlers.set(path, handler),
    checkUserExists: async (userId: string) => (userId === '@nobody:x' ? undefined : userId),
    getUserByReq: async (request: Request) => ({ isAdmin: request.headers.get('authorization') === 'admin' }),
    registerCachedFunction: (_: string, get: (key: string) => Promise<unknown>) => (key: string) => {
      const known = cache.get(key) ?? get(key);
      cache.set(key, known);
      return known;
    },
    invalidateCache: async (_: string, key: string) => void cache.delete(key),
    getCurrentTimeMsec: () => nowMs,
    isUserAdmin: async (userId: string) => userId === '@admin:x',
    getThreepidsForUser: async (userId: string) =>
      userId === '@nomail:x'
        ? [{ medium: 'msisdn', address: '49123' }]
        : [{ medium: 'email', address: `mail of ${userId}` }],
    sendMail: async (to: string, _subject: string, _html: string, text: string) => void loaded.mails.push({ to, text }),
    store: { ...store, transaction: async <T>(work: (tx: DocumentStore) => Promise<T>) => work(store) },
    scheduler: { every: (_n: string, _p: number, job: () => Promise<void>) => void (loaded.job = job) },
    log: { error: () => {}, warn: () => {} },
    ...more,
  } as unknown as ModuleApi;
  void accountValidity.register(api, accountValidity.parseConfig({ period_days: 30, renew_days_before: 7 }));
  loaded.web = async (query, method = 'GET') => {
    const request = new Request(`http://x/_synapse/client/account-validity/renew${query}`, { method });
    const response = await handlers.get('/_synapse/client/account-validity/renew')?.(request, {
      params: {},
      requestId: '1',
      ip: undefined,
      userAgent: undefined,
    });
    return { status: response?.status ?? 0, text: (await response?.text()) ?? '' };
  };
  loaded.asAdmin = async (userId, { method = 'GET', body, by = 'admin' } = {}) => {
    const init = {
      method,
      headers: { authorization: by },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    };
    const handler = handlers.get('/_synapse/client/account-validity/users/:userId')!;
    const more = { params: { userId }, requestId: '1', ip: undefined, userAgent: undefined };
    return (await handler(new Request('http://x/', init), more)).json();
  };
  loaded.expired = async (userId) => loaded.callbacks.isUserExpired?.(userId, context);
  return loaded;
}
const tokenIn = (text: string): string => /\?token=[0-9a-f]{64}/.exec(text)?.[0] ?? '';

it('an account runs out after the period; that of an administrator never', async () => {
  const { callbacks, expired, pass } = load();
  await callbacks.onUserRegistration?.(alice, context);
  pass(29);
  expect(await expired(alice)).toBe(false);
  pass(1);
  expect(await expired(alice)).toBe(true);
  expect(await expired('@admin:x')).toBe(false);
});

it('an account that was there before begins when it is first seen', async () => {
  const { expired, pass } = load();
  pass(500);
  expect(await expired(alice)).toBe(false);
  pass(30);
  expect(await expired(alice)).toBe(true);
});

it('a mail goes out once, in time, and its link renews the account once', async () => {
  const { callbacks, expired, pass, job, mails, web } = load();
  await callbacks.onUserRegistration?.(alice, context);
  for (let i = 0; i < 4; i++) await callbacks.onUserRegistration?.(`@user${i}:x`, context);
  await job();
  expect(mails).toEqual([]);
  pass(25);
  await job();
  await job();
  expect(mails).toHaveLength(5);
  const text = mails.find(({ to }) => to.includes(alice))?.text ?? '';
  expect(text).toContain('https://example.org/_svc/client/account-validity/renew?token=');
  const query = tokenIn(text);
  const shown = await web(query);
  expect(shown).toMatchObject({ status: 200, text: expect.stringContaining('method="post"') as string });
  pass(6);
  expect(await expired(alice)).toBe(true);
  expect((await web(query, 'POST')).status).toBe(200);
  expect(await expired(alice)).toBe(false);
  expect((await web(query, 'POST')).status).toBe(404);
  pass(25);
  await job();
  expect(mails.filter(({ to }) => to.includes(alice))).toHaveLength(2);
});

it('looking at the link renews nothing, and neither does a wrong one', async () => {
  const { callbacks, expired, pass, job, mails, web } = load();
  await callbacks.onUserRegistration?.(alice, context);
  pass(25);
  await job();
  await web(tokenIn(mails[0]?.text ?? ''));
  pass(6);
  expect(await expired(alice)).toBe(true);
  expect((await web('?token=x', 'POST')).status).toBe(400);
  expect((await web(`?token=${'0'.repeat(64)}`, 'POST')).status).toBe(404);
  expect((await web(`?token=${'0'.repeat(64)}`, 'DELETE')).status).toBe(405);
});

it('one mail that cannot be sent does not keep the others and is tried again, and tokens are not readable', async () => {
  const sent: string[] = [];
  let broken = true;
  const { callbacks, pass, job, documents } = load({
    sendMail: async (to: string, _s: string, _h: string, text: string) => {
      if (broken && to.includes('@a:x')) throw new Error('no such mailbox');
      sent.push(text);
    },
  });
  for (const user of ['@a:x', '@b:x', '@nomail:x']) await callbacks.onUserRegistration?.(user, context);
  pass(25);
  await job();
  expect(sent).toHaveLength(1);
  await job();
  expect(sent).toHaveLength(1);
  broken = false;
  await job();
  await job();
  expect(sent).toHaveLength(2);
  expect(JSON.stringify([...documents])).not.toContain(tokenIn(sent[0] ?? '').slice('?token='.length));
});

it('a link that has reached one address of a user stays good though another address takes no mail', async () => {
  const sent: string[] = [];
  const { callbacks, pass, job, web } = load({
    getThreepidsForUser: async () => ['dead', 'alive'].map((address) => ({ medium: 'email', address })),
    sendMail: async (to: string, _s: string, _h: string, text: string) => {
      if (to === 'dead') throw new Error('no such mailbox');
      sent.push(text);
    },
  });
  await callbacks.onUserRegistration?.(alice, context);
  pass(25);
  await job();
  await job();
  expect(sent).toHaveLength(1);
  expect((await web(tokenIn(sent[0] ?? ''), 'POST')).status).toBe(200);
});

it('an administrator says until when an account is good that no mail reaches', async () => {
  const { callbacks, expired, pass, asAdmin } = load();
  await callbacks.onUserRegistration?.('@nomail:x', context);
  pass(31);
  expect(await expired('@nomail:x')).toBe(true);
  const { expiration_ts: renewed } = (await asAdmin('@nomail:x', { method: 'PUT' })) as { expiration_ts: number };
  expect(await expired('@nomail:x')).toBe(false);
  expect(await asAdmin('@nomail:x')).toEqual({ user_id: '@nomail:x', expiration_ts: renewed });
  await asAdmin('@nomail:x', { method: 'PUT', body: { expiration_ts: 0 } });
  expect(await expired('@nomail:x')).toBe(true);
  expect(await asAdmin('@admin:x')).toEqual({ user_id: '@admin:x', expiration_ts: null });
  for (const [userId, request, status] of [
    ['@nomail:x', { by: 'somebody' }, 403],
    ['@nobody:x', {}, 404],
    ['@nomail:x', { method: 'DELETE' }, 405],
    ['@nomail:x', { method: 'PUT', body: { expiration_ts: 'soon' } }, 400],
    ['@nomail:x', { method: 'PUT', body: '{"expiration_ts":' }, 400],
    ['@nomail:x', { method: 'PUT', body: '7' }, 400],
  ] as const)
    await expect(asAdmin(userId, request)).rejects.toMatchObject({ status });
  expect(await expired('@nomail:x')).toBe(true);
  expect(await asAdmin('@admin:x', { method: 'PUT' })).toEqual({ user_id: '@admin:x', expiration_ts: null });
});

it('needs a base for its links', () => {
  expect(() => load({ publicBaseurl: undefined })).toThrow(/public_baseurl/);
});

it.each([
  [undefined, []],
  [{}, ['period_days']],
  [{ period_days: 0 }, ['period_days']],
  [{ period_days: 7, renew_days_before: 7 }, ['renew_days_before']],
  [{ period_days: 30, subject: 'a\nb' }, ['subject']],
  [{ period_days: 30, other: 1 }, ['other']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    accountValidity.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
