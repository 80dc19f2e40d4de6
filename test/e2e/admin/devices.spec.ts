import type { TestHomeserver, TestUser } from '@rookery/testing';
import { type AdminRequest, type Json, startAdminWorld } from './support.js';

describe.each(['sqlite', 'postgres'] as const)('the admin API of devices (%s)', (database) => {
  let homeserver: TestHomeserver;
  let admin: AdminRequest;
  let alice: TestUser;
  let path: string;

  beforeAll(async () => {
    ({ homeserver, admin } = await startAdminWorld({
      database,
      settings: { experimental_features: { msc3814_enabled: true } },
    }));
    alice = await homeserver.registerUser('alice');
    path = `v2/users/${alice.userId}/devices`;
  });
  afterAll(() => homeserver?.stop());

  const loginAgain = async (deviceId: string): Promise<string> =>
    (
      await homeserver.request<{ access_token: string }>('POST', '/login', {
        type: 'm.login.password',
        identifier: { type: 'm.id.user', user: 'alice' },
        password: 'password of alice',
        device_id: deviceId,
      })
    ).body.access_token;
  const isValid = async (token: string): Promise<boolean> =>
    (await homeserver.request('GET', '/account/whoami', undefined, token)).status === 200;

  it('lists them, and shows one', async () => {
    await alice.request('GET', '/account/whoami');
    const device = {
      user_id: alice.userId,
      device_id: alice.deviceId,
      display_name: null,
      last_seen_ip: '127.0.0.1',
      last_seen_user_agent: expect.any(String),
      last_seen_ts: expect.any(Number),
    };
    expect((await admin('GET', path)).body).toEqual({ devices: [device], total: 1 });
    expect((await admin('GET', `${path}/${alice.deviceId}`)).body).toEqual(device);
  });

  it('makes one, which is there already the second time', async () => {
    expect(await admin('POST', path, { device_id: 'MADE' })).toMatchObject({ status: 201, body: {} });
    expect(await admin('POST', path, { device_id: 'MADE' })).toMatchObject({ status: 201, body: {} });
    expect((await admin('GET', `${path}/MADE`)).body).toEqual({
      user_id: alice.userId,
      device_id: 'MADE',
      display_name: null,
      last_seen_ip: null,
      last_seen_user_agent: null,
      last_seen_ts: null,
    });
  });

  it('a device gets a new display name', async () => {
    await admin('POST', path, { device_id: 'NAMED' });
    expect(await admin('PUT', `${path}/NAMED`, { display_name: 'Phone' })).toMatchObject({ status: 200, body: {} });
    expect((await admin('GET', `${path}/NAMED`)).body['display_name']).toBe('Phone');
    expect((await admin('PUT', `${path}/NAMED`)).status).toBe(200);
    expect((await admin('GET', `${path}/NAMED`)).body['display_name']).toBe('Phone');
    const tooLong = await admin('PUT', `${path}/NAMED`, { display_name: 'x'.repeat(101) });
    expect(tooLong).toMatchObject({ status: 400, body: { errcode: 'M_TOO_LARGE' } });
    expect((await admin('PUT', `${path}/NAMED`, { display_name: 5 })).body['errcode']).toBe('M_BAD_JSON');
  });

  it('deletes one with its session', async () => {
    const token = await loginAgain('GOING');
    expect(await isValid(token)).toBe(true);
    expect(await admin('DELETE', `${path}/GOING`)).toMatchObject({ status: 200, body: {} });
    expect(await isValid(token)).toBe(false);
    expect((await admin('GET', `${path}/GOING`)).status).toBe(404);
    expect(await admin('DELETE', `${path}/GOING`)).toMatchObject({ status: 200, body: {} });
  });

  it('several devices are deleted with their sessions, others stay', async () => {
    const tokens = [await loginAgain('ONE'), await loginAgain('TWO'), await loginAgain('STAYS')];
    const several = `v2/users/${alice.userId}/delete_devices`;
    expect(await admin('POST', several, { devices: ['ONE', 'TWO', 'NONE'] })).toMatchObject({ status: 200, body: {} });
    expect(await Promise.all(tokens.map(isValid))).toEqual([false, false, true]);
    expect((await admin('POST', several, {})).body['errcode']).toBe('M_MISSING_PARAM');
    expect((await admin('POST', several, { devices: 'ONE' })).body['errcode']).toBe('M_BAD_JSON');
  });

  it('says which one is dehydrated', async () => {
    const bob = await homeserver.registerUser('bob');
    const keys = { 'curve25519:DRY': 'c29tZSBrZXk', 'ed25519:DRY': 'c29tZSBrZXk' };
    const stored = await bob.request('PUT', '/_matrix/client/unstable/org.matrix.msc3814.v1/dehydrated_device', {
      device_id: 'DRY',
      device_data: { algorithm: 'x' },
      device_keys: { user_id: bob.userId, device_id: 'DRY', algorithms: [], keys, signatures: {} },
    });
    expect(stored.status).toBe(200);
    const { body } = await admin<{ devices: Json[] }>('GET', `v2/users/${bob.userId}/devices`);
    expect(Object.fromEntries(body.devices.map((one) => [one['device_id'], one['dehydrated']]))).toEqual({
      DRY: true,
      [bob.deviceId]: false,
    });
  });

  it.each([
    ['POST', '', { device_id: 17 }, 'M_BAD_JSON'],
    ['POST', '', {}, 'M_MISSING_PARAM'],
    ['POST', '', { device_id: 'x'.repeat(300) }, 'M_INVALID_PARAM'],
  ])('refuses %s%s with %j', async (method, suffix, body, errcode) =>
    expect(await admin(method, path + suffix, body)).toMatchObject({ status: 400, body: { errcode } }),
  );

  it.each([
    ['GET', 'devices', undefined],
    ['POST', 'devices', { device_id: 'X' }],
    ['GET', 'devices/X', undefined],
    ['PUT', 'devices/X', { display_name: 'x' }],
    ['DELETE', 'devices/X', undefined],
    ['POST', 'delete_devices', { devices: [] }],
  ])('%s %s only of users who are there', async (method, what, body) => {
    expect(await admin(method, `v2/users/@nobody:rookery.test/${what}`, body)).toMatchObject({
      status: 404,
      body: { errcode: 'M_NOT_FOUND' },
    });
    expect(await admin(method, `v2/users/@x:elsewhere.test/${what}`, body)).toMatchObject({
      status: 400,
      body: { errcode: 'M_UNKNOWN' },
    });
    expect(await admin(method, `v2/users/nobody/${what}`, body)).toMatchObject({
      status: 400,
      body: { errcode: 'M_INVALID_PARAM' },
    });
  });

  it.each(['GET', 'PUT'])('%s of a device that is not there', async (method) =>
    expect((await admin(method, `${path}/UNKNOWN`, method === 'PUT' ? { display_name: 'x' } : undefined)).status).toBe(
      404,
    ),
  );
});
