import { createHmac } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';

const secret = 'a secret of more than thirty-two characters';
const loginType = 'com.devture.shared_secret_auth';
let homeserver: TestHomeserver;
beforeAll(async () => {
  const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  homeserver = await createTestHomeserver({ settings: { modules: [{ module, config: { shared_secret: secret } }] } });
});
afterAll(() => homeserver.stop());

it('lets a service log in as a user who exists, and offers its login type', async () => {
  const { userId } = await homeserver.registerUser('alice');
  const { body } = await homeserver.request<{ flows: { type: string }[] }>('GET', '/login');
  expect(body.flows).toContainEqual({ type: loginType });

  const login = (user: string, token: string): ReturnType<typeof homeserver.request> =>
    homeserver.request('POST', '/login', { type: loginType, identifier: { type: 'm.id.user', user }, token });
  const proofOf = (id: string): string => createHmac('sha512', secret).update(id).digest('hex');
  expect(await login('alice', proofOf(userId))).toMatchObject({ status: 200, body: { user_id: userId } });
  expect(await login('alice', proofOf('@bob:rookery.test'))).toMatchObject({
    status: 403,
    body: { errcode: 'M_FORBIDDEN' },
  });
  expect((await login('nobody', proofOf('@nobody:rookery.test'))).status).toBe(403);
});
