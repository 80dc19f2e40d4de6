import { Database } from '@rookery/database';
import { eventually, createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { createRoom, join, nextTransaction, ok, say } from '../rooms/rooms-client.js';
import {
  acting,
  databases,
  FakeService,
  pause,
  type PushedEvent,
  registerGhost,
  RegistrationFiles,
} from './support.js';

const unstableEphemeral = 'de.sorunome.msc2409.ephemeral';
const unstableToDevice = 'de.sorunome.msc2409.to_device';

describe.each(databases)('what is not in the timeline reaches application services (%s)', (database) => {
  const files = new RegistrationFiles();
  let stable: FakeService;
  let unstable: FakeService;
  let plain: FakeService;
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let ghost: TestUser;
  let roomId: string;
  let farRoom: string;

  const ofType = (service: FakeService, key: string, type: string): PushedEvent[] =>
    service.part(key).filter((one) => one.type === type);
  const readMarker = (user: TestUser, room: string, eventId: string, type = 'm.read') =>
    ok(user, 'POST', `/rooms/${room}/receipt/${type}/${encodeURIComponent(eventId)}`, {});
  const device = async (user: TestUser, name: string): Promise<void> => {
    expect((await user.request('PUT', `/devices/${name}`, {})).status).toBe(201);
  };

  beforeAll(async () => {
    [stable, unstable, plain] = await Promise.all([FakeService.start(), FakeService.start(), FakeService.start()]);
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: {
        experimental_features: { msc2409_to_device_messages_enabled: true, msc3202_transaction_extensions: true },
        app_service_config_files: [
          files.write('stable', { url: stable.url, receive_ephemeral: true }),
          files.write('unstable', {
            url: unstable.url,
            'de.sorunome.msc2409.push_ephemeral': true,
            'org.matrix.msc3202': true,
          }),
          files.write('plain', { url: plain.url }),
        ],
      },
    });
    alice = await homeserver.registerUser('alice');
    ghost = await registerGhost(homeserver, 'stable', 'stable_bob');
    roomId = await createRoom(alice, { preset: 'public_chat' });
    farRoom = await createRoom(alice, { preset: 'public_chat' });
    for (const user of [ghost, acting(homeserver, 'unstable'), acting(homeserver, 'plain')]) await join(user, roomId);
  });
  afterAll(async () => {
    await homeserver?.stop();
    await Promise.all([stable?.down(), unstable?.down(), plain?.down()]);
    files.remove();
  });

  it('typing, under the names that each asked for', async () => {
    await ok(alice, 'PUT', `/rooms/${farRoom}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    const typing = { type: 'm.typing', room_id: roomId, content: { user_ids: [alice.userId] } };
    await eventually(() => ofType(stable, 'ephemeral', 'm.typing').length > 0);
    expect(ofType(stable, 'ephemeral', 'm.typing')).toEqual([typing]);
    await eventually(() => ofType(unstable, unstableEphemeral, 'm.typing').length > 0);
    expect(ofType(unstable, unstableEphemeral, 'm.typing')).toEqual([typing]);
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: false });
    const over = await eventually(() => ofType(stable, 'ephemeral', 'm.typing')[1]);
    expect(over.content).toEqual({ user_ids: [] });
    expect(stable.part(unstableEphemeral)).toEqual([]);
    expect(unstable.part('ephemeral')).toEqual([]);
  });

  it('receipts, but private ones of its own users only', async () => {
    const eventId = await say(alice, roomId, 'read this');
    const far = await say(alice, farRoom, 'and this');
    await readMarker(alice, farRoom, far);
    await readMarker(alice, roomId, eventId);
    const content = (user: TestUser, type: string) => ({
      [eventId]: { [type]: { [user.userId]: { ts: expect.any(Number) } } },
    });
    await eventually(() => ofType(stable, 'ephemeral', 'm.receipt').length > 0);
    expect(ofType(stable, 'ephemeral', 'm.receipt')).toEqual([
      { type: 'm.receipt', room_id: roomId, content: content(alice, 'm.read') },
    ]);
    const next = await say(alice, roomId, 'and that');
    await readMarker(alice, roomId, next, 'm.read.private');
    await readMarker(ghost, roomId, next, 'm.read.private');
    const own = await eventually(() => ofType(stable, 'ephemeral', 'm.receipt')[1]);
    expect(own.content).toEqual({ [next]: { 'm.read.private': { [ghost.userId]: { ts: expect.any(Number) } } } });
    await readMarker(ghost, roomId, next);
    await eventually(() => ofType(unstable, unstableEphemeral, 'm.receipt').length >= 2);
    expect(JSON.stringify(unstable.part(unstableEphemeral))).not.toContain('m.read.private');
  });

  it('presence of who shares a room', async () => {
    const far = await homeserver.registerUser('far');
    await ok(far, 'PUT', `/presence/${far.userId}/status`, { presence: 'online', status_msg: 'unseen' });
    await ok(alice, 'PUT', `/presence/${alice.userId}/status`, { presence: 'online', status_msg: 'here' });
    const seen = await eventually(() =>
      ofType(stable, 'ephemeral', 'm.presence').find(({ content }) => content['status_msg'] === 'here'),
    );
    expect(seen).toMatchObject({ type: 'm.presence', sender: alice.userId, content: { presence: 'online' } });
    expect(ofType(stable, 'ephemeral', 'm.presence').some(({ sender }) => sender === far.userId)).toBe(false);
  });

  it('none of it to a service that does not ask for it', async () => {
    await say(alice, roomId, 'for all');
    await eventually(() => plain.texts.includes('for all'));
    const keys = new Set(plain.transactions.flatMap(({ body }) => Object.keys(body)));
    expect(keys).toEqual(new Set(['events']));
  });

  it('to-device messages, which are lost by nothing and stay in no inbox', async () => {
    await device(ghost, 'GHOST1');
    await device(ghost, 'GHOST2');
    const send = (type: string, messages: object) =>
      ok(alice, 'PUT', `/sendToDevice/${type}/${nextTransaction()}`, { messages });
    await stable.down();
    await send('m.first', { [ghost.userId]: { '*': { n: 1 } } });
    await send('m.second', { [ghost.userId]: { GHOST1: { n: 2 } }, [alice.userId]: { '*': { n: 3 } } });
    await pause(300);
    await homeserver.restart();
    await stable.listen();
    await ok(acting(homeserver, 'stable'), 'POST', '/_matrix/client/v1/appservice/stable/ping', {});
    const received = () => stable.part(unstableToDevice);
    await eventually(() => received().length >= 3);
    const message = (type: string, deviceId: string, n: number) => ({
      ...{ type, sender: alice.userId, content: { n }, to_user_id: ghost.userId, to_device_id: deviceId },
    });
    expect(received()).toEqual([
      message('m.first', 'GHOST1', 1),
      message('m.first', 'GHOST2', 1),
      message('m.second', 'GHOST1', 2),
    ]);
    const session = await homeserver.request<{ access_token: string }>(
      'POST',
      '/login',
      {
        type: 'm.login.application_service',
        identifier: { type: 'm.id.user', user: ghost.userId },
        device_id: 'GHOST1',
      },
      'as-stable',
    );
    const sync = await homeserver.request<{ to_device?: { events: object[] } }>(
      'GET',
      '/sync',
      undefined,
      session.body.access_token,
    );
    expect(sync.body.to_device?.events ?? []).toEqual([]);
    const own = await ok<{ to_device: { events: object[] } }>(alice, 'GET', '/sync');
    expect(own.to_device.events).toMatchObject([{ type: 'm.second', content: { n: 3 } }]);
  });

  it('changed devices and what is left of keys', async () => {
    const bot = acting(homeserver, 'unstable');
    await device(bot, 'BOT');
    const keys = (user: TestUser, deviceId: string) => ({
      device_keys: {
        ...{ user_id: user.userId, device_id: deviceId, algorithms: ['m.megolm.v1.aes-sha2'] },
        ...{ keys: { [`ed25519:${deviceId}`]: 'e' }, signatures: { [user.userId]: { [`ed25519:${deviceId}`]: 's' } } },
      },
    });
    await ok(alice, 'POST', '/keys/upload', keys(alice, alice.deviceId));
    const lists = () =>
      unstable.transactions.flatMap(({ body }) => {
        const list = body['org.matrix.msc3202.device_lists'] as { changed: string[]; left: string[] } | undefined;
        return list?.changed ?? [];
      });
    await eventually(() => lists().includes(alice.userId));
    const key = { key: 'k', signatures: { [bot.userId]: { 'ed25519:BOT': 's' } } };
    await ok(bot, 'POST', '/keys/upload?device_id=BOT', {
      ...keys(bot, 'BOT'),
      one_time_keys: { 'signed_curve25519:A': key, 'signed_curve25519:B': key },
      fallback_keys: { 'signed_curve25519:F': { ...key, fallback: true } },
    });
    await say(alice, roomId, 'count your keys');
    const { body } = await eventually(() =>
      unstable.transactions.find((one) => one.body.events.some(({ content }) => content['body'] === 'count your keys')),
    );
    for (const name of ['device_one_time_keys_count', 'device_one_time_key_counts'])
      expect(body[`org.matrix.msc3202.${name}`]).toEqual({ [bot.userId]: { BOT: { signed_curve25519: 2 } } });
    expect(body['org.matrix.msc3202.device_unused_fallback_key_types']).toEqual({
      [bot.userId]: { BOT: ['signed_curve25519'] },
    });
    expect(stable.transactions.some((one) => 'org.matrix.msc3202.device_lists' in one.body)).toBe(false);
  });

  it('not what is old by the time that the service is back', async () => {
    await stable.down();
    await say(alice, roomId, 'while it was away');
    await eventually(async () => {
      const row = await homeserver.server
        .service(Database)
        .get<{ state: string }>("SELECT state FROM application_services_state WHERE as_id = 'stable'");
      return row?.state === 'down';
    });
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: false });
    await pause(500);
    const before = ofType(stable, 'ephemeral', 'm.typing').length;
    await stable.listen();
    await ok(acting(homeserver, 'stable'), 'POST', '/_matrix/client/v1/appservice/stable/ping', {});
    await eventually(() => stable.texts.includes('while it was away'));
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true, timeout: 30_000 });
    await eventually(() => ofType(stable, 'ephemeral', 'm.typing').length > before);
    expect(ofType(stable, 'ephemeral', 'm.typing').slice(before)).toHaveLength(1);
  });
});
