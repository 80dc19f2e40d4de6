import { eventually } from '@rookery/testing';
import { EventType, MatrixError, type MatrixEvent, MsgType, Preset, RoomMemberEvent } from 'matrix-js-sdk';
import { join } from 'node:path';
import {
  loginClient,
  nextEvent,
  registerClient,
  startSyncing,
  type RegisteredClient,
} from '../../support/sdk-client.js';
import { databaseKinds, ServerProcess } from '../../support/server-process.js';

const text = (body: string) => ({ msgtype: MsgType.Text, body }) as const;
const saying = (body: string) => (event: MatrixEvent) => event.getContent()['body'] === body;

describe.each(databaseKinds)('two people talk through a server started from the command line (%s)', (kind) => {
  let server: ServerProcess;
  let alice: RegisteredClient;
  let bob: RegisteredClient;
  let roomId: string;

  beforeAll(async () => {
    server = await ServerProcess.prepare(kind, {
      modules: [{ module: join(process.cwd(), 'modules-examples/word-filter'), config: { words: ['turnip'] } }],
    });
    await server.start();
  });

  afterAll(async () => {
    alice?.client.stopClient();
    bob?.client.stopClient();
    await server?.remove();
  });

  it('they register and sync', async () => {
    alice = await registerClient(server.baseUrl, 'alice');
    bob = await registerClient(server.baseUrl, 'bob');
    expect(alice.userId).toBe('@alice:rookery.test');
    await startSyncing(alice.client);
    await startSyncing(bob.client);
    expect(await alice.client.whoami()).toMatchObject({ user_id: alice.userId, device_id: alice.deviceId });
  });

  it('one makes a room, the other is invited and joins', async () => {
    const invited = new Promise<string>((resolve) => {
      bob.client.on(RoomMemberEvent.Membership, (event, member) => {
        if (member.userId === bob.userId && member.membership === 'invite') resolve(event.getRoomId() ?? '');
      });
    });
    const room = await alice.client.createRoom({ preset: Preset.PrivateChat, name: 'The nest', invite: [bob.userId] });
    roomId = room.room_id;
    expect(await invited).toBe(roomId);
    await eventually(() => bob.client.getRoom(roomId)?.name.includes('The nest') || undefined);
    await bob.client.joinRoom(roomId);
    const joined = await eventually(async () => {
      const members = await alice.client.getJoinedRoomMembers(roomId);
      return Object.keys(members.joined).length === 2 ? members : undefined;
    });
    expect(Object.keys(joined.joined).sort()).toEqual([alice.userId, bob.userId]);
    const create = await alice.client.getStateEvent(roomId, EventType.RoomCreate, '');
    expect(create).toMatchObject({ room_version: '12' });
  });

  it('each sees what the other says', async () => {
    const heardByBob = nextEvent(bob.client, saying('hello, bob'));
    const heardByAlice = nextEvent(alice.client, saying('hello, alice'));
    const sent = await alice.client.sendMessage(roomId, text('hello, bob'));
    await bob.client.sendMessage(roomId, text('hello, alice'));
    const event = await heardByBob;
    expect(event.getId()).toBe(sent.event_id);
    expect(event.getSender()).toBe(alice.userId);
    expect((await heardByAlice).getSender()).toBe(bob.userId);
  });

  it('the module refuses a word, and the sender sees why', async () => {
    const refused = await bob.client.sendMessage(roomId, text('have a Turnip')).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(MatrixError);
    expect((refused as MatrixError).httpStatus).toBe(403);
    expect((refused as MatrixError).errcode).toBe('M_FORBIDDEN');
    expect((refused as MatrixError).data.error).toMatch(/word that is not welcome/);
    const said = nextEvent(alice.client, saying('have a swede'));
    await bob.client.sendMessage(roomId, text('have a swede'));
    await said;
    const bodies = (await alice.client.createMessagesRequest(roomId, null, 20, 'b' as never)).chunk.map(
      (event) => event.content['body'],
    );
    expect(bodies).toContain('have a swede');
    expect(bodies.filter((body) => /turnip/i.test(String(body)))).toEqual([]);
  });

  it('a client that asks for little of the timeline knows the room, also when members come one by one', async () => {
    for (let i = 0; i < 5; i++) await alice.client.sendMessage(roomId, text(`message ${i}`));
    for (const lazyLoadMembers of [false, true]) {
      const second = await loginClient(server.baseUrl, 'bob');
      await startSyncing(second.client, 1, lazyLoadMembers);
      const room = second.client.getRoom(roomId);
      expect(room?.name).toBe('The nest');
      expect(room?.getVersion()).toBe('12');
      expect(room?.getMyMembership()).toBe('join');
      expect(room?.getLiveTimeline().getEvents()).toHaveLength(1);
      expect(room?.getMember(alice.userId)?.membership).toBe('join');
      second.client.stopClient();
      await second.client.logout(true);
    }
  });

  it('one is banned and can neither talk nor come back', async () => {
    await alice.client.ban(roomId, bob.userId, 'too many vegetables');
    await eventually(() => bob.client.getRoom(roomId)?.getMyMembership() === 'ban' || undefined);
    await expect(bob.client.sendMessage(roomId, text('but'))).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    await expect(bob.client.joinRoom(roomId)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
  });

  it('everything is still there after a restart', async () => {
    const before = await alice.client.createMessagesRequest(roomId, null, 50, 'b' as never);
    alice.client.stopClient();
    bob.client.stopClient();
    expect(await server.stop()).toBe(0);
    await server.start();
    const again = await alice.client.createMessagesRequest(roomId, null, 50, 'b' as never);
    expect(again.chunk.map((event) => event.event_id)).toEqual(before.chunk.map((event) => event.event_id));
    expect((await alice.client.whoami()).user_id).toBe(alice.userId);
    const second = await loginClient(server.baseUrl, 'alice');
    expect(second.deviceId).not.toBe(alice.deviceId);
    await startSyncing(second.client);
    const room = second.client.getRoom(roomId);
    expect(room?.name).toBe('The nest');
    expect(room?.getMember(bob.userId)?.membership).toBe('ban');
    expect(room?.getLiveTimeline().getEvents().some(saying('hello, alice'))).toBe(true);
    second.client.stopClient();
    await second.client.logout(true);
    await expect(second.client.whoami()).rejects.toMatchObject({ errcode: 'M_UNKNOWN_TOKEN' });
  });
});
