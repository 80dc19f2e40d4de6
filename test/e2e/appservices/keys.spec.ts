import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { ok } from '../rooms/rooms-client.js';
import { databases, FakeService, registerGhost, RegistrationFiles } from './support.js';

const claimPath = '/_matrix/app/unstable/org.matrix.msc3983/keys/claim';
const queryPath = '/_matrix/app/unstable/org.matrix.msc3984/keys/query';

describe.each(databases)('keys that application services keep themselves (%s)', (database) => {
  const files = new RegistrationFiles();
  let service: FakeService;
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let ghost: TestUser;

  const identity = (deviceId: string, key: string) => ({
    ...{ user_id: ghost.userId, device_id: deviceId, algorithms: ['m.megolm.v1.aes-sha2'] },
    ...{ keys: { [`ed25519:${deviceId}`]: key }, signatures: { [ghost.userId]: { [`ed25519:${deviceId}`]: 's' } } },
  });
  const oneTime = (key: string) => ({ key, signatures: { [ghost.userId]: { 'ed25519:X': 's' } } });
  const claim = async (...devices: string[]) =>
    (
      await ok<{ one_time_keys: Record<string, Record<string, object>> }>(alice, 'POST', '/keys/claim', {
        one_time_keys: { [ghost.userId]: Object.fromEntries(devices.map((one) => [one, 'signed_curve25519'])) },
      })
    ).one_time_keys[ghost.userId];
  const query = async (...devices: string[]) =>
    (
      await ok<{ device_keys: Record<string, Record<string, object>> }>(alice, 'POST', '/keys/query', {
        device_keys: { [ghost.userId]: devices, [alice.userId]: [] },
      })
    ).device_keys[ghost.userId];

  beforeAll(async () => {
    service = await FakeService.start();
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: {
        experimental_features: { msc3983_appservice_otk_claims: true, msc3984_appservice_key_query: true },
        app_service_config_files: [files.write('e2e', { url: service.url })],
      },
    });
    alice = await homeserver.registerUser('alice');
    ghost = await registerGhost(homeserver, 'e2e', 'e2e_bob');
    for (const deviceId of ['STORED', 'FALLBACK']) {
      await ghost.request('PUT', `/devices/${deviceId}`, {});
      await ok(ghost, 'POST', `/keys/upload?device_id=${deviceId}`, {
        device_keys: identity(deviceId, 'uploaded'),
        ...(deviceId === 'STORED' ? { one_time_keys: { 'signed_curve25519:A': oneTime('stored') } } : {}),
        fallback_keys: { 'signed_curve25519:F': { ...oneTime('fallback'), fallback: true } },
      });
    }
  });
  afterAll(async () => {
    await homeserver?.stop();
    await service?.down();
    files.remove();
  });

  it('are claimed from them before a fallback key is used', async () => {
    service.onRequest = ({ path, method }) =>
      path === claimPath && method === 'POST'
        ? {
            status: 200,
            body: {
              [ghost.userId]: {
                THEIRS: { 'signed_curve25519:T': oneTime('theirs'), 'signed_curve25519:U': oneTime('more') },
                FALLBACK: { 'other:T': oneTime('of another kind') },
                UNASKED: { 'signed_curve25519:T': oneTime('nobody wants it') },
              },
              [alice.userId]: { [alice.deviceId]: { 'signed_curve25519:T': oneTime('not their user') } },
            },
          }
        : undefined;
    expect(await claim('STORED', 'THEIRS', 'FALLBACK')).toEqual({
      STORED: { 'signed_curve25519:A': oneTime('stored') },
      THEIRS: { 'signed_curve25519:T': oneTime('theirs') },
      FALLBACK: { 'signed_curve25519:F': { ...oneTime('fallback'), fallback: true } },
    });
    expect(service.requests.filter(({ path }) => path === claimPath).map(({ body }) => body)).toEqual([
      { [ghost.userId]: { THEIRS: ['signed_curve25519'], FALLBACK: ['signed_curve25519'] } },
    ]);
  });

  it('are asked for, and those of others are not believed', async () => {
    service.onRequest = ({ path }) =>
      path === queryPath
        ? {
            status: 200,
            body: {
              device_keys: {
                [ghost.userId]: {
                  THEIRS: identity('THEIRS', 'theirs'),
                  STORED: identity('STORED', 'newer'),
                  FALSE: identity('ANOTHER', 'false'),
                  RUBBISH: 5,
                },
                [alice.userId]: { EVIL: identity('EVIL', 'evil') },
              },
            },
          }
        : undefined;
    expect(await query()).toEqual({
      THEIRS: identity('THEIRS', 'theirs'),
      STORED: identity('STORED', 'newer'),
      FALLBACK: { ...identity('FALLBACK', 'uploaded'), unsigned: expect.any(Object) },
    });
    expect(await query('THEIRS')).toEqual({ THEIRS: identity('THEIRS', 'theirs') });
  });

  it('are what was uploaded where a service does not answer', async () => {
    for (const answer of [
      { status: 404, body: '' },
      { status: 500, body: {} },
      { status: 200, body: 'rubbish' },
    ]) {
      service.onRequest = () => answer;
      expect(Object.keys((await query()) ?? {}).sort()).toEqual(['FALLBACK', 'STORED']);
      expect(await claim('THEIRS', 'FALLBACK')).toMatchObject({ FALLBACK: { 'signed_curve25519:F': {} } });
    }
    await service.down();
    expect(Object.keys((await query()) ?? {}).sort()).toEqual(['FALLBACK', 'STORED']);
  });
});
