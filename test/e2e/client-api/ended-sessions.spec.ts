import { Database } from '@rookery/database';
import { Invalidations, Notifier } from '@rookery/replication';
import {
  createTestHomeserver,
  eventually,
  type TestHomeserver,
  type TestResponse,
  type TestUser,
} from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { registerWithSecret } from '../../support/shared-secret.js';

type Answer = TestResponse<Record<string, unknown>>;

const sliding = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';
const everything = { lists: { all: { ranges: [[0, 9]], required_state: [], timeline_limit: 1 } } };
/** Longer than any test may take: what ends within the test was ended. */
const long = 'timeout=600000';

describe.each(['sqlite', 'postgres'] as const)('requests that wait (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: TestUser;
  let alice: TestUser;
  let count = 0;

  beforeAll(async () => {
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: { presence: { enabled: false } },
    });
    root = await registerWithSecret(homeserver, 'root', true);
  });
  beforeEach(async () => {
    alice = await homeserver.registerUser(`alice${(count += 1)}`);
  });
  afterAll(() => homeserver?.stop());

  const password = (): string => `password of alice${count}`;
  const proven = async (method: string, path: string, body: object): Promise<void> => {
    const asked = await alice.request(method, path, body);
    expect(asked.status).toBe(401);
    const identifier = { type: 'm.id.user', user: alice.userId };
    const auth = { type: 'm.login.password', identifier, password: password(), session: asked.body['session'] };
    expect((await alice.request(method, path, { ...body, auth })).status).toBe(200);
  };
  const login = async (): Promise<TestUser> => {
    const identifier = { type: 'm.id.user', user: alice.userId };
    const answer = await homeserver.request<Record<string, string>>('POST', '/login', {
      type: 'm.login.password',
      identifier,
      password: password(),
    });
    const { access_token: accessToken = '', device_id: deviceId = '' } = answer.body;
    return {
      userId: alice.userId,
      deviceId,
      accessToken,
      request: (method, path, body) => homeserver.request(method, path, body, accessToken),
    };
  };
  const waitingNow = (): number =>
    homeserver.servers.reduce((sum, server) => sum + server.service(Notifier).waiting, 0);
  const waiting = (requests: number): Promise<boolean> => eventually(() => waitingNow() === requests);
  /** All kinds of waiting of one session, which wait when this is done. */
  const wait = async (user: TestUser): Promise<Promise<Answer>[]> => {
    const before = waitingNow();
    const since = String((await user.request('GET', '/sync')).body['next_batch']);
    const { body } = await user.request('POST', `${sliding}?timeout=0`, everything);
    const requests = [
      user.request('GET', `/sync?${long}&since=${since}`),
      user.request('POST', `${sliding}?${long}&pos=${encodeURIComponent(String(body['pos']))}`, everything),
      user.request('GET', `/events?${long}&from=${since}`),
    ];
    // A test that fails leaves them to the end of the server.
    for (const request of requests) request.catch(() => undefined);
    await waiting(before + requests.length);
    return requests;
  };

  it.each<[string, string, (phone: TestUser) => Promise<unknown>]>([
    ['its logout', 'M_UNKNOWN_TOKEN', (phone) => phone.request('POST', '/logout', {})],
    ['a logout of all', 'M_UNKNOWN_TOKEN', () => alice.request('POST', '/logout/all', {})],
    ['the end of its device', 'M_UNKNOWN_TOKEN', (phone) => proven('DELETE', `/devices/${phone.deviceId}`, {})],
    ['a new password', 'M_UNKNOWN_TOKEN', () => proven('POST', '/account/password', { new_password: 'another one 1' })],
    ['the end of the account', 'M_UNKNOWN_TOKEN', () => proven('POST', '/account/deactivate', {})],
    [
      'a lock',
      'M_USER_LOCKED',
      () => root.request('PUT', `/_synapse/admin/v2/users/${alice.userId}`, { locked: true }),
    ],
  ])('end with their session: %s', async (_, errcode, end) => {
    const phone = await login();
    const requests = await wait(phone);
    await end(phone);
    for (const request of requests) expect(await request).toMatchObject({ status: 401, body: { errcode } });
  });

  it.each<[string, (token: TestUser, admin: TestUser) => Promise<unknown>]>([
    ['logs out', (token) => token.request('POST', '/logout', {})],
    ['logs out everywhere', (_, admin) => admin.request('POST', '/logout/all', {})],
    [
      'is none any more',
      (_, admin) => root.request('PUT', `/_synapse/admin/v2/users/${admin.userId}`, { admin: false }),
    ],
  ])('end with the session of an administrator who acts as a user and %s', async (_, end) => {
    const admin = await registerWithSecret(homeserver, `admin${count}`, true);
    const { body } = await admin.request('POST', `/_synapse/admin/v1/users/${alice.userId}/login`, {});
    const accessToken = String(body['access_token']);
    const acting: TestUser = {
      ...{ userId: alice.userId, deviceId: '', accessToken },
      request: (method, path, content) => homeserver.request(method, path, content, accessToken),
    };
    const since = String((await acting.request('GET', '/sync')).body['next_batch']);
    const before = waitingNow();
    const sync = acting.request('GET', `/sync?${long}&since=${since}`);
    sync.catch(() => undefined);
    await waiting(before + 1);
    await end(acting, admin);
    // The user's own news would wake it up, too.
    await alice.request('POST', '/createRoom', {});
    expect(await sync).toMatchObject({ status: 401, body: { errcode: 'M_UNKNOWN_TOKEN' } });
  });

  it('have no answer where their session was ended by another process that was not heard', async () => {
    const phone = await login();
    const requests = await wait(phone);
    await homeserver.server
      .service(Database)
      .write((tx) => tx.run('DELETE FROM access_tokens WHERE device_id = ?', [phone.deviceId]), { anyProcess: true });
    for (const server of homeserver.servers) server.service(Invalidations).forgetAll();
    await alice.request('POST', '/createRoom', {});
    for (const request of requests)
      expect(await request).toMatchObject({ status: 401, body: { errcode: 'M_UNKNOWN_TOKEN' } });
  });

  it('go on when another session of the user ends', async () => {
    const phone = await login();
    const [sync, slidingSync, events] = await wait(alice);
    await phone.request('POST', '/logout', {});
    const { body } = await alice.request('POST', '/createRoom', {});
    expect(await sync).toMatchObject({ status: 200 });
    expect(await slidingSync).toMatchObject({ status: 200 });
    const { chunk } = (await events)!.body as { chunk: { room_id: unknown }[] };
    expect(chunk[0]?.room_id).toBe(body['room_id']);
  });
});
