import { createHmac } from 'node:crypto';
import {
  type AuthChecker,
  type CallbackContext,
  ConfigError,
  type ModuleApi,
  type PasswordAuthProviderCallbacks,
} from '@rookery/module-api';
import sharedSecretAuth from '../src/index.js';

const secret = 'a secret of more than thirty-two characters';
const context: CallbackContext = { source: 'client', isAdmin: false, duringRoomCreation: false };
const proofOf = (userId: string, key = secret): string => createHmac('sha512', key).update(userId).digest('hex');

function checkers(config: object = {}): readonly AuthChecker[] {
  let callbacks: PasswordAuthProviderCallbacks = {};
  const api = {
    registerPasswordAuthProviderCallbacks: (given: PasswordAuthProviderCallbacks) => void (callbacks = given),
    getQualifiedUserId: (name: string) => (name.startsWith('@') ? name : `@${name}:example.org`),
    isMine: (id: string) => id.endsWith(':example.org'),
    checkUserExists: async (userId: string) => (/^@(alice|Bob):/.test(userId) ? userId : undefined),
    log: { info: () => {} },
  } as unknown as ModuleApi;
  void sharedSecretAuth.register(api, sharedSecretAuth.parseConfig({ shared_secret: secret, ...config }));
  return callbacks.authCheckers ?? [];
}
const login = async (username: string, token: unknown): Promise<unknown> =>
  checkers()[0]?.check(username, 'com.devture.shared_secret_auth', { token }, context);

it.each(['alice', '@alice:example.org'])('lets %s in with the proof for the full id', async (username) => {
  expect(await login(username, proofOf('@alice:example.org'))).toEqual({ userId: '@alice:example.org' });
});

it.each([
  ['another user’s proof', 'alice', proofOf('@Bob:example.org')],
  ['a proof with another secret', 'alice', proofOf('@alice:example.org', 'x'.repeat(40))],
  ['a shortened proof', 'alice', proofOf('@alice:example.org').slice(2)],
  ['no hexadecimal', 'alice', 'password'],
  ['no text', 'alice', 42],
  ['an empty proof', 'alice', ''],
  ['an account that does not exist', 'nobody', proofOf('@nobody:example.org')],
  ['a user of another server', '@alice:elsewhere.example', proofOf('@alice:elsewhere.example')],
])('lets nobody in with %s', async (_, username, token) => {
  expect(await login(username, token)).toBeUndefined();
});

it('stands in for passwords only when told to', async () => {
  expect(checkers().map(({ loginType }) => loginType)).toEqual(['com.devture.shared_secret_auth']);
  const [, password] = checkers({ as_password: true });
  expect(password).toMatchObject({ loginType: 'm.login.password', fields: ['password'] });
  const proof = proofOf('@alice:example.org');
  expect(await password?.check('alice', 'm.login.password', { password: proof }, context)).toEqual({
    userId: '@alice:example.org',
  });
});

it.each([
  [undefined, []],
  [{}, ['shared_secret']],
  [{ shared_secret: 'short' }, ['shared_secret']],
  [{ shared_secret: secret, as_password: 'yes' }, ['as_password']],
  [{ shared_secret: secret, other: 1 }, ['other']],
])('points to what is wrong in %j', (config, path) => {
  let thrown: unknown;
  try {
    sharedSecretAuth.parseConfig(config);
  } catch (error) {
    thrown = error;
  }
  expect(ConfigError.is(thrown) && thrown.path).toEqual(path);
});
