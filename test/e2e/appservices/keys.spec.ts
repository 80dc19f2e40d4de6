import type { JsonObject } from '@rookery/matrix-types';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { FederationWorld } from '../federation/federation-world.js';
import { Visit } from '../federation/visiting-server.js';
import { createRoom, ok, say } from '../rooms/rooms-client.js';
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
      THEIRS: { ...identity('THEIRS', 'theirs'), unsigned: {} },
      STORED: { ...identity('STORED', 'newer'), unsigned: {} },
      FALLBACK: { ...identity('FALLBACK', 'uploaded'), unsigned: expect.any(Object) },
    });
    expect(await query('THEIRS')).toEqual({ THEIRS: { ...identity('THEIRS', 'theirs'), unsigned: {} } });
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

  it('are told to other servers as well as they can be, and hold up nothing', async () => {
    const world = await FederationWorld.create();
    const ownFiles = new RegistrationFiles();
    const own = await FakeService.start();
    try {
      const home = await world.homeserver('home.test', {
        database,
        settings: {
          experimental_features: { msc3984_appservice_key_query: true },
          allow_device_name_lookup_over_federation: true,
          app_service_config_files: [ownFiles.write('e2e', { url: own.url })],
        },
      });
      const bot = await registerGhost(home, 'e2e', 'e2e_bot');
      const bare = (deviceId: string) => ({
        ...{ user_id: bot.userId, device_id: deviceId, keys: {}, algorithms: [] },
        signatures: { [bot.userId]: { [`ed25519:${deviceId}`]: 's' } },
      });
      own.onRequest = ({ path }) =>
        path === queryPath
          ? {
              status: 200,
              // Only whole numbers can be signed.
              body: { device_keys: { [bot.userId]: { PLAIN: bare('PLAIN'), HALF: { ...bare('HALF'), half: 0.5 } } } },
            }
          : undefined;
      const played = await world.played('played.test');
      played.answer = (_, response) => void response.end('{"pdus":{}}');
      const roomId = await createRoom(bot, { preset: 'public_chat' });
      await Visit.join(played, home, roomId, '@zoe:played.test');
      for (const deviceId of ['PLAIN', 'HALF']) await bot.request('PUT', `/devices/${deviceId}`, {});
      for (const deviceId of ['PLAIN', 'HALF'])
        await ok(bot, 'POST', `/keys/upload?device_id=${deviceId}`, {
          device_keys: bare(deviceId),
        });
      await say(bot, roomId, 'hello');
      const sent = () => played.asked.filter(({ url }) => url.includes('/v1/send/')).map(({ body }) => body);
      await eventually(() => sent().some((body) => body.includes('"hello"')));
      const told = () =>
        sent()
          .flatMap((body) => (JSON.parse(body) as { edus: { content: JsonObject }[] }).edus)
          .map(({ content }) => content);
      const last = (deviceId: string) => told().findLast((content) => content['device_id'] === deviceId);
      await eventually(() => last('PLAIN')?.['keys'] !== undefined && last('HALF') !== undefined);
      expect(last('HALF')).not.toHaveProperty('deleted');
      const path = `/_matrix/federation/v1/user/devices/${encodeURIComponent(bot.userId)}`;
      const { status, body } = await played.request(home, 'GET', path);
      expect(status).toBe(200);
      const devices = body['devices'] as { device_id: string }[];
      expect(devices.map(({ device_id }) => device_id).sort()).toEqual(['HALF', 'PLAIN']);
    } finally {
      await world.stop();
      await own.down();
      ownFiles.remove();
    }
  });
});
