import { Appservice, type IAppserviceRegistration } from 'matrix-bot-sdk';
import '../../support/bot-client.js';
import { createTestHomeserver, eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { createRoom, ok, say } from '../rooms/rooms-client.js';
import { databases, pause, RegistrationFiles } from './support.js';

interface Message {
  readonly type: string;
  readonly sender: string;
  readonly content: { readonly body?: string };
}

describe.each(databases)('a bridge written with a library of the field (%s)', (database) => {
  const files = new RegistrationFiles();
  let homeserver: TestHomeserver;
  let bridge: Appservice;
  let alice: TestUser;
  const seen: { roomId: string; event: Message }[] = [];
  const typing: unknown[] = [];
  const asked: string[] = [];
  let isOver = false;

  beforeAll(async () => {
    const port = await freePort();
    const registration = {
      ...{
        id: 'echo',
        url: `http://127.0.0.1:${port}`,
        as_token: 'as-echo',
        hs_token: 'hs-echo',
        sender_localpart: 'echobot',
      },
      namespaces: {
        users: [{ regex: '@echo_.*', exclusive: true }],
        aliases: [{ regex: '#echo_.*', exclusive: true }],
        rooms: [],
      },
      'de.sorunome.msc2409.push_ephemeral': true,
    } satisfies IAppserviceRegistration;
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: { app_service_config_files: [files.write('echo', registration)] },
    });
    bridge = new Appservice({
      ...{
        port,
        bindAddress: '127.0.0.1',
        homeserverName: 'rookery.test',
        homeserverUrl: homeserver.baseUrl,
        registration,
      },
    });
    bridge.on('query.user', (userId: string, create: (answer: object | false) => void) => {
      asked.push(userId);
      create({ display_name: 'Made on demand' });
    });
    bridge.on('query.room', (alias: string, create: (answer: object | false) => void) => {
      asked.push(alias);
      create({ preset: 'public_chat', room_alias_name: alias.slice(1).split(':')[0] });
    });
    bridge.on('room.message', (roomId: string, event: Message) => seen.push({ roomId, event }));
    bridge.on('ephemeral.event', (event: unknown) => typing.push(event));
    const library = bridge as unknown as { processMembershipEvent(event: object): Promise<void> };
    const process = library.processMembershipEvent.bind(bridge);
    library.processMembershipEvent = (event) =>
      process(event).catch((error: unknown) => {
        if (!isOver) throw error;
      });
    await bridge.begin();
    alice = await homeserver.registerUser('alice');
  });
  afterAll(async () => {
    // The library makes requests of its own after each transaction, and does not catch their failures.
    isOver = true;
    bridge?.stop();
    await pause(500);
    await homeserver?.stop();
    files.remove();
  });

  it('registers its users, who join and speak', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const ghost = bridge.getIntentForSuffix('bob');
    await ghost.ensureRegisteredAndJoined(roomId);
    await ghost.underlyingClient.setDisplayName('Bob on the other side');
    await say(alice, roomId, 'is anybody there?');
    await eventually(() => seen.some(({ event }) => event.content.body === 'is anybody there?'));
    await ghost.sendText(roomId, 'yes', 'm.notice');
    const { chunk } = await ok<{ chunk: Message[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=5`);
    expect(chunk.map(({ sender, content }) => [sender, content.body])).toContainEqual([
      '@echo_bob:rookery.test',
      'yes',
    ]);
    const { joined } = await ok<{ joined: Record<string, { display_name?: string }> }>(
      alice,
      'GET',
      `/rooms/${roomId}/joined_members`,
    );
    expect(joined['@echo_bob:rookery.test']?.display_name).toBe('Bob on the other side');
    await ok(alice, 'PUT', `/rooms/${roomId}/typing/${alice.userId}`, { typing: true });
    await eventually(() => typing.length > 0);
    expect(typing).toMatchObject([{ type: 'm.typing', room_id: roomId, content: { user_ids: [alice.userId] } }]);
  });

  it('makes users and rooms when somebody looks for them', async () => {
    await ok(alice, 'POST', `/join/${encodeURIComponent('#echo_portal:rookery.test')}`, {});
    const roomId = await createRoom(alice);
    await ok(alice, 'POST', `/rooms/${roomId}/invite`, { user_id: '@echo_lazy:rookery.test' });
    await eventually(() => asked.includes('@echo_lazy:rookery.test'));
    expect(asked).toContain('#echo_portal:rookery.test');
    const profile = await eventually(async () => {
      const { status, body } = await alice.request('GET', '/profile/@echo_lazy:rookery.test');
      return status === 200 && body['displayname'] === 'Made on demand' && body;
    });
    expect(profile).toMatchObject({ displayname: 'Made on demand' });
  });

  it('its own user makes a room and reads its state', async () => {
    const bot = bridge.botIntent;
    await bot.ensureRegistered();
    const roomId = await bot.underlyingClient.createRoom({ preset: 'public_chat', name: 'Of the bot' });
    expect(await bot.underlyingClient.getJoinedRooms()).toContain(roomId);
    expect(await bot.underlyingClient.getUserId()).toBe('@echobot:rookery.test');
    expect(await bot.underlyingClient.getRoomStateEvent(roomId, 'm.room.name', '')).toEqual({ name: 'Of the bot' });
  });
});
