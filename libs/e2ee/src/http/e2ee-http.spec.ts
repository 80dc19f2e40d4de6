import { canonicalJson, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { openApiValidator } from '../../../../test/support/openapi.js';

const faults: string[] = [];

/** A `fetch` that holds every exchange against the specification's data. */
const checked: typeof fetch = async (input, init) => {
  const response = await fetch(input, init);
  const text = await response.clone().text();
  const responseBody = text === '' ? undefined : (JSON.parse(text) as JsonObject);
  // The data does not know that this endpoint may ask for confirmation.
  if (response.status === 401 && responseBody?.['flows'] !== undefined) return response;
  faults.push(
    ...openApiValidator().check({
      method: init?.method ?? 'GET',
      path: new URL(String(input)).pathname,
      requestBody: typeof init?.body === 'string' ? (JSON.parse(init.body) as unknown) : undefined,
      status: response.status,
      responseBody,
    }),
  );
  return response;
};

const algorithm = 'm.megolm_backup.v1.curve25519-aes-sha2';

describe('end-to-end encryption over HTTP', () => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;

  const id = encodeURIComponent;
  const ok = async (user: TestUser, method: string, path: string, body?: unknown): Promise<JsonObject> => {
    const answer = await user.request<JsonObject>(method, path, body);
    expect({ method, path, status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
    return answer.body;
  };
  const refused = async (user: TestUser, method: string, path: string, body?: unknown): Promise<string> => {
    const answer = await user.request<JsonObject>(method, path, body);
    return `${answer.status} ${String(answer.body['errcode'])}`;
  };
  const deviceKeys = (user: TestUser): JsonObject => ({
    user_id: user.userId,
    device_id: user.deviceId,
    algorithms: ['m.olm.v1.curve25519-aes-sha2'],
    keys: { [`ed25519:${user.deviceId}`]: 'e', [`curve25519:${user.deviceId}`]: 'c' },
    signatures: { [user.userId]: { [`ed25519:${user.deviceId}`]: 's' } },
  });

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ fetch: checked });
    alice = await homeserver.registerUser('alice', 'alice-s password');
    bob = await homeserver.registerUser('bob');
    const { room_id: roomId } = await ok(alice, 'POST', '/createRoom', { preset: 'public_chat' });
    await ok(bob, 'POST', `/rooms/${id(roomId as string)}/join`, {});
  });
  afterAll(() => homeserver.stop());

  it('uploads, queries and claims keys', async () => {
    const { next_batch: from } = await ok(bob, 'GET', '/sync');
    const counts = await ok(alice, 'POST', '/keys/upload', {
      device_keys: deviceKeys(alice),
      one_time_keys: { 'signed_curve25519:A': { key: 'a', signatures: {} } },
      fallback_keys: { 'signed_curve25519:F': { key: 'f', fallback: true, signatures: {} } },
    });
    expect(counts).toEqual({ one_time_key_counts: { signed_curve25519: 1 } });
    expect(await ok(alice, 'POST', `/keys/upload/${alice.deviceId}`, {})).toEqual(counts);
    expect(await refused(alice, 'POST', '/keys/upload/OTHER', {})).toBe('403 M_FORBIDDEN');
    const keys = await ok(bob, 'POST', '/keys/query', { device_keys: { [alice.userId]: [] }, timeout: 1_000 });
    expect(keys).toMatchObject({ device_keys: { [alice.userId]: { [alice.deviceId]: { user_id: alice.userId } } } });
    expect(await refused(bob, 'POST', '/keys/query', {})).toBe('400 M_MISSING_PARAM');
    const claim = { one_time_keys: { [alice.userId]: { [alice.deviceId]: 'signed_curve25519' } } };
    expect(await ok(bob, 'POST', '/keys/claim', claim)).toMatchObject({
      one_time_keys: { [alice.userId]: { [alice.deviceId]: { 'signed_curve25519:A': { key: 'a' } } } },
    });
    const { next_batch: to, device_lists: lists } = await ok(bob, 'GET', `/sync?since=${String(from)}&timeout=5000`);
    expect(lists).toEqual({ changed: [alice.userId], left: [] });
    expect(await ok(bob, 'GET', `/keys/changes?from=${String(from)}&to=${String(to)}`)).toEqual(lists);
    expect(await refused(bob, 'GET', `/keys/changes?from=${String(from)}`)).toBe('400 M_MISSING_PARAM');
    expect(await refused(bob, 'GET', '/keys/changes?from=x&to=y')).toBe('400 M_INVALID_PARAM');
    const own = await ok(alice, 'GET', '/sync');
    expect(own).toMatchObject({
      device_one_time_keys_count: { signed_curve25519: 0 },
      device_unused_fallback_key_types: ['signed_curve25519'],
    });
  });

  it('sends to devices', async () => {
    const { next_batch: since } = await ok(bob, 'GET', '/sync');
    const body = { messages: { [bob.userId]: { '*': { hello: 'bob' } } } };
    await ok(alice, 'PUT', '/sendToDevice/m.test/1', body);
    await ok(alice, 'PUT', '/sendToDevice/m.test/1', body);
    const synced = await ok(bob, 'GET', `/sync?since=${String(since)}&timeout=5000`);
    expect(synced['to_device']).toEqual({
      events: [{ type: 'm.test', sender: alice.userId, content: { hello: 'bob' } }],
    });
    await homeserver.restart();
    const later = await ok(bob, 'GET', `/sync?since=${String(synced['next_batch'])}&timeout=0`);
    expect(later['to_device']).toBeUndefined();
    expect(await refused(alice, 'PUT', '/sendToDevice/m.test/2', {})).toBe('400 M_MISSING_PARAM');
  });

  it('cross-signing keys are uploaded, signed and found by queries', async () => {
    const keys = { master: SigningKey.generate(), self: SigningKey.generate() };
    const object = (key: SigningKey, usage: string): JsonObject => ({
      user_id: alice.userId,
      usage: [usage],
      keys: { [`ed25519:${key.publicKey}`]: key.publicKey },
    });
    const signed = (value: JsonObject, key: SigningKey): JsonObject => ({
      ...value,
      signatures: {
        [alice.userId]: { [`ed25519:${key.publicKey}`]: key.sign(canonicalJson({ ...value, signatures: undefined })) },
      },
    });
    const upload = {
      master_key: object(keys.master, 'master'),
      self_signing_key: signed(object(keys.self, 'self_signing'), keys.master),
    };
    await ok(alice, 'POST', '/keys/device_signing/upload', upload);
    await ok(alice, 'POST', '/_matrix/client/unstable/keys/device_signing/upload', upload);
    const other = { master_key: object(SigningKey.generate(), 'master') };
    const asked = await alice.request<JsonObject>('POST', '/keys/device_signing/upload', other);
    expect(asked).toMatchObject({ status: 401, body: { flows: [{ stages: ['m.login.password'] }] } });
    const auth = { type: 'm.login.password', session: asked.body['session'], password: 'wrong' };
    const wrong = { ...auth, identifier: { type: 'm.id.user', user: alice.userId } };
    expect((await alice.request('POST', '/keys/device_signing/upload', { ...other, auth: wrong })).status).toBe(401);
    const { next_batch: since } = await ok(bob, 'GET', '/sync');
    const device = signed(deviceKeys(alice), keys.self);
    const signatures = { [alice.userId]: { [alice.deviceId]: device, UNKNOWN: device } };
    expect(await ok(alice, 'POST', '/keys/signatures/upload', signatures)).toMatchObject({
      failures: { [alice.userId]: { UNKNOWN: { errcode: 'M_NOT_FOUND' } } },
    });
    const seen = await ok(bob, 'POST', '/keys/query', { device_keys: { [alice.userId]: [] } });
    expect(seen).toMatchObject({
      master_keys: { [alice.userId]: upload.master_key },
      device_keys: { [alice.userId]: { [alice.deviceId]: { signatures: { [alice.userId]: expect.any(Object) } } } },
    });
    const heard = await ok(bob, 'GET', `/sync?since=${String(since)}&timeout=5000`);
    expect(heard['device_lists']).toEqual({ changed: [alice.userId], left: [] });
    const right = { ...wrong, password: 'alice-s password' };
    await ok(alice, 'POST', '/keys/device_signing/upload', { ...other, auth: right });
    const replaced = await ok(bob, 'POST', '/keys/query', { device_keys: { [alice.userId]: [] } });
    expect(replaced).toMatchObject({ master_keys: { [alice.userId]: other.master_key }, self_signing_keys: {} });
  });

  it('a key backup is made, filled, read and deleted', async () => {
    const session = { first_message_index: 1, forwarded_count: 0, is_verified: true, session_data: { c: 'x' } };
    const made = { algorithm, auth_data: { public_key: 'abc', signatures: {} } };
    expect(await refused(alice, 'GET', '/room_keys/version')).toBe('404 M_NOT_FOUND');
    expect(await ok(alice, 'POST', '/room_keys/version', made)).toEqual({ version: '1' });
    await ok(alice, 'PUT', '/room_keys/version/1', { ...made, version: '1' });
    expect(await refused(alice, 'PUT', '/room_keys/version/1', { ...made, version: '2' })).toBe('400 M_INVALID_PARAM');
    const rooms = { '!a:x': { sessions: { s1: session } }, '!b:x': { sessions: { s2: session } } };
    expect(await ok(alice, 'PUT', '/room_keys/keys?version=1', { rooms })).toEqual({ etag: '1', count: 2 });
    await ok(alice, 'PUT', `/room_keys/keys/${id('!a:x')}?version=1`, { sessions: { s3: session } });
    await ok(alice, 'PUT', `/room_keys/keys/${id('!a:x')}/s4?version=1`, session);
    expect(await ok(alice, 'GET', '/room_keys/version')).toEqual({ ...made, version: '1', etag: '3', count: 4 });
    expect(await ok(alice, 'GET', '/room_keys/version/1')).toMatchObject({ count: 4 });
    expect(await ok(alice, 'GET', '/room_keys/keys?version=1')).toEqual({
      rooms: { '!a:x': { sessions: { s1: session, s3: session, s4: session } }, '!b:x': { sessions: { s2: session } } },
    });
    expect(await ok(alice, 'GET', `/room_keys/keys/${id('!z:x')}?version=1`)).toEqual({ sessions: {} });
    expect(await ok(alice, 'GET', `/room_keys/keys/${id('!a:x')}/s1?version=1`)).toEqual(session);
    expect(await refused(alice, 'GET', `/room_keys/keys/${id('!a:x')}/none?version=1`)).toBe('404 M_NOT_FOUND');
    expect(await refused(alice, 'GET', '/room_keys/keys?version=2')).toBe('404 M_NOT_FOUND');
    expect(await refused(alice, 'GET', '/room_keys/keys')).toBe('400 M_MISSING_PARAM');
    expect(await ok(alice, 'DELETE', `/room_keys/keys/${id('!a:x')}/s1?version=1`)).toEqual({ etag: '4', count: 3 });
    expect(await ok(alice, 'DELETE', `/room_keys/keys/${id('!a:x')}?version=1`)).toEqual({ etag: '5', count: 1 });
    expect(await ok(alice, 'DELETE', '/room_keys/keys?version=1')).toEqual({ etag: '6', count: 0 });
    await ok(alice, 'POST', '/room_keys/version', made);
    expect(await refused(alice, 'PUT', '/room_keys/keys?version=1', { rooms })).toBe('403 M_WRONG_ROOM_KEYS_VERSION');
    await ok(alice, 'DELETE', '/room_keys/version/2');
    await ok(alice, 'DELETE', '/room_keys/version/2');
    expect(await refused(alice, 'DELETE', '/room_keys/version/3')).toBe('404 M_NOT_FOUND');
  });

  it('has dehydrated devices only where they are switched on', async () => {
    const path = '/_matrix/client/unstable/org.matrix.msc3814.v1/dehydrated_device';
    expect(await refused(alice, 'GET', path)).toBe('404 M_UNRECOGNIZED');
  });

  it('keeps to the specification', () => {
    expect(faults).toEqual([]);
  });
});
