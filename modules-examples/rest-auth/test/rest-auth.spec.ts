import {
  type CallbackContext,
  ConfigError,
  MatrixError,
  type ModuleApi,
  type PasswordAuthProviderCallbacks,
} from '@rookery/module-api';
import restAuth from '../src/index.js';

const context: CallbackContext = { source: 'client', isAdmin: false, duringRoomCreation: false };
const url = 'https://id.example/check';

/** The module, with a service that answers what it is told to. */
function load(
  answer: () => unknown,
  config: object = {},
): { callbacks: PasswordAuthProviderCallbacks; asked: unknown[][] } {
  let callbacks: PasswordAuthProviderCallbacks = {};
  const asked: unknown[][] = [];
  const api = {
    registerPasswordAuthProviderCallbacks: (given: PasswordAuthProviderCallbacks) => void (callbacks = given),
    getQualifiedUserId: (name: string) => (name.startsWith('@') ? name : `@${name}:example.org`),
    isMine: (id: string) => id.endsWith(':example.org'),
    checkUserExists: async (userId: string) => (userId === '@alice:example.org' ? userId : undefined),
    log: { error: () => {} },
    httpClient: {
      async postJsonGetJson(...args: unknown[]) {
        asked.push(args);
        return answer();
      },
    },
  } as unknown as ModuleApi;
  void restAuth.register(api, restAuth.parseConfig({ url, ...config }));
  return { callbacks, asked };
}

const login = async (
  answer: unknown,
  username = 'alice',
  config: object = {},
  password: unknown = 'pw',
): Promise<unknown> =>
  load(() => answer, config).callbacks.authCheckers?.[0]?.check(username, 'm.login.password', { password }, context);

it('asks with the full id, the password and the token', async () => {
  const { callbacks, asked } = load(() => ({ success: true, localpart: 'alice' }), { token: 't', timeout_ms: 700 });
  const check = callbacks.authCheckers?.[0]?.check;
  expect(await check?.('Alice', 'm.login.password', { password: 'pw' }, context)).toEqual({
    userId: '@alice:example.org',
  });
  expect(asked).toEqual([
    [
      url,
      { user_id: '@alice:example.org', password: 'pw' },
      { headers: { authorization: 'Bearer t' }, timeoutMs: 700 },
    ],
  ]);
});

it.each([
  ['says no', { success: false }, 'alice'],
  ['says neither yes nor no', {}, 'alice'],
  ['means nothing', null, 'alice'],
  ['says yes as a text', { success: 'true', localpart: 'alice' }, 'alice'],
  ['names nobody', { success: true }, 'alice'],
  ['names nonsense', { success: true, localpart: 'Alice Smith' }, 'alice'],
  ['names somebody else', { success: true, localpart: 'alice' }, 'bob'],
  ['names somebody without account', { success: true, localpart: 'carol' }, 'carol'],
])('lets nobody in when the service %s', async (_, answer, username) => {
  expect(await login(answer, username)).toBeUndefined();
});

it('does not ask about users of other servers, nor without a password', async () => {
  const { callbacks, asked } = load(() => ({ success: true, localpart: 'alice' }));
  const check = callbacks.authCheckers?.[0]?.check;
  expect(await check?.('@alice:elsewhere.example', 'm.login.password', { password: 'pw' }, context)).toBeUndefined();
  expect(await check?.('alice', 'm.login.password', { password: 7 }, context)).toBeUndefined();
  expect(asked).toEqual([]);
});

it('makes accounts only where told to', async () => {
  const answer = { success: true, localpart: 'carol' };
  expect(await login(answer, 'carol', { create_accounts: true })).toEqual({ userId: '@carol:example.org' });
});

it('checks logins by address', async () => {
  const { callbacks, asked } = load(() => ({ success: true, localpart: 'alice' }));
  expect(await callbacks.check3pidAuth?.('email', 'a@example.org', 'pw', context)).toEqual({
    userId: '@alice:example.org',
  });
  expect(asked[0]?.[1]).toEqual({ medium: 'email', address: 'a@example.org', password: 'pw' });
});

it('refuses the login when the service is away, so that nobody else decides', async () => {
  const { callbacks } = load(() => {
    throw new Error('refused');
  });
  const check = callbacks.authCheckers?.[0]?.check;
  const trying = async (): Promise<unknown> => check?.('alice', 'm.login.password', { password: 'pw' }, context);
  await expect(trying()).rejects.toBeInstanceOf(MatrixError);
  await expect(trying()).rejects.toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
});

it.each([
  [undefined, []],
  [{}, ['url']],
  [{ url: 'http://id.example/' }, ['url']],
  [{ url, token: '' }, ['token']],
  [{ url, create_accounts: 1 }, ['create_accounts']],
  [{ url, timeout_ms: 0 }, ['timeout_ms']],
  [{ url, other: 1 }, ['other']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    restAuth.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});

it('takes http on this machine', () => {
  expect(restAuth.parseConfig({ url: 'http://127.0.0.1:9000/check' })).toMatchObject({ createAccounts: false });
});
