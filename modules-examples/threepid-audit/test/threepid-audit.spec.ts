import {
  type CallbackContext,
  ConfigError,
  type DocumentStore,
  type ModuleApi,
  type PasswordAuthProviderCallbacks,
  type ThirdPartyRulesCallbacks,
  type WebHandler,
} from '@rookery/module-api';
import threepidAudit from '../src/index.js';

const context: CallbackContext = {
  source: 'client',
  userId: '@alice:x',
  ip: '192.0.2.7',
  isAdmin: false,
  duringRoomCreation: false,
};
const dayMs = 86_400_000;

interface Loaded {
  rules: ThirdPartyRulesCallbacks;
  auth: PasswordAuthProviderCallbacks;
  documents: Map<string, unknown>;
  setTime: (ms: number) => void;
  purge: () => unknown;
  read: (userId: string, token?: string, method?: string) => Promise<Record<string, unknown>>;
}

function load(config?: object): Loaded {
  let nowMs = 1_000 * dayMs;
  const documents = new Map<string, unknown>();
  const store: DocumentStore = {
    get: async (key) => documents.get(key),
    put: async (key, value) => void documents.set(key, value),
    delete: async (key) => documents.delete(key),
    list: async ({ prefix = '', after = '', limit = 1000 } = {}) =>
      [...documents]
        .filter(([key]) => key.startsWith(prefix) && key > after)
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .slice(0, limit)
        .map(([key, value]) => ({ key, value })),
  };
  const loaded = { rules: {}, auth: {}, documents, setTime: (ms: number) => void (nowMs = ms) } as Loaded;
  let web: WebHandler | undefined;
  const api = {
    registerThirdPartyRulesCallbacks: (given: ThirdPartyRulesCallbacks) => void (loaded.rules = given),
    registerPasswordAuthProviderCallbacks: (given: PasswordAuthProviderCallbacks) => void (loaded.auth = given),
    registerWebResource: (_: string, handler: WebHandler) => void (web = handler),
    getCurrentTimeMsec: () => nowMs,
    store: { ...store, transaction: async <T>(work: (tx: DocumentStore) => Promise<T>) => work(store) },
    scheduler: { every: (_name: string, _period: number, job: () => unknown) => void (loaded.purge = job) },
    log: { info: () => {} },
    getUserByReq: async (request: Request) => ({ isAdmin: request.headers.get('authorization') === 'Bearer admin' }),
  } as unknown as ModuleApi;
  void threepidAudit.register(api, threepidAudit.parseConfig(config));
  loaded.read = async (userId, token = 'admin', method = 'GET') => {
    const request = new Request('http://x/_synapse/client/threepid-audit/x', {
      method,
      headers: { authorization: `Bearer ${token}` },
    });
    const response = await web?.(request, { params: { userId }, requestId: '1', ip: undefined, userAgent: undefined });
    return (await response?.json()) as Record<string, unknown>;
  };
  return loaded;
}

it('records what is added and removed, by whom and from where, for administrators to read', async () => {
  const { rules, read } = load();
  await rules.onAddUserThirdPartyIdentifier?.('@alice:x', 'email', 'a@example.org', context);
  await rules.onAddUserThirdPartyIdentifier?.('@bob:x', 'email', 'b@example.org', context);
  await rules.onRemoveUserThirdPartyIdentifier?.('@alice:x', 'email', 'a@example.org', {
    ...context,
    userId: '@admin:x',
  });
  const { entries } = (await read('@alice:x')) as { entries: { change: string }[] };
  expect(entries).toHaveLength(2);
  expect(entries.find(({ change }) => change === 'added')).toEqual({
    ts: 1_000 * dayMs,
    user_id: '@alice:x',
    change: 'added',
    medium: 'email',
    address: 'a@example.org',
    by: '@alice:x',
    ip: '192.0.2.7',
  });
  expect(entries.find(({ change }) => change === 'removed')).toMatchObject({ by: '@admin:x' });
  expect(await read('@nobody:x')).toEqual({ entries: [] });
});

it('shows nothing to others', async () => {
  const { read } = load();
  await expect(read('@alice:x', 'somebody')).rejects.toMatchObject({ status: 403 });
  await expect(read('@alice:x', 'admin', 'POST')).rejects.toMatchObject({ status: 405 });
});

it('has keys that fit for the longest id', async () => {
  const { rules, documents } = load();
  await rules.onAddUserThirdPartyIdentifier?.(`@${'a'.repeat(252)}:x`, 'email', 'a@example.org', context);
  for (const key of documents.keys()) expect(Buffer.byteLength(key)).toBeLessThanOrEqual(255);
});

it('deletes what is too old, and nothing else, however much there is', async () => {
  const { rules, documents, setTime, purge } = load({ retention_days: 30 });
  for (let i = 0; i < 1500; i++) await rules.onAddUserThirdPartyIdentifier?.(`@u${i}:x`, 'email', 'old', context);
  setTime(1_031 * dayMs);
  await rules.onAddUserThirdPartyIdentifier?.('@alice:x', 'email', 'new', context);
  await purge();
  expect([...documents.values()]).toMatchObject([{ address: 'new' }]);
});

it('allows addresses of some domains only, where told to', async () => {
  const { auth } = load({ email_domains: ['Example.org'] });
  expect(await auth.is3pidAllowed?.('email', 'a@EXAMPLE.org', true, context)).toBe(true);
  expect(await auth.is3pidAllowed?.('msisdn', '4912345', true, context)).toBe(true);
  expect(await auth.is3pidAllowed?.('email', 'a@sub.example.org', true, context)).toMatchObject({
    errcode: 'M_THREEPID_DENIED',
  });
  expect(await auth.is3pidAllowed?.('email', 'a@example.org@evil.example', true, context)).toMatchObject({
    errcode: 'M_THREEPID_DENIED',
  });
  expect(load().auth.is3pidAllowed).toBeUndefined();
});

it.each([
  [7, []],
  [{ retention_days: 0 }, ['retention_days']],
  [{ email_domains: 'example.org' }, ['email_domains']],
  [{ email_domains: ['example.org', '@'] }, ['email_domains', 1]],
  [{ other: 1 }, ['other']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    threepidAudit.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
