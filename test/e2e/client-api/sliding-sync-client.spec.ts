import 'fake-indexeddb/auto';
import { EventType, type MatrixClient, MsgType, NotificationCountType, Preset, ReceiptType } from 'matrix-js-sdk';
import { SlidingSync } from 'matrix-js-sdk/lib/sliding-sync.js';
import { eventually, createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { registerClient, type RegisteredClient, startSyncing } from '../../support/sdk-client.js';

const ignore = (): void => {};
const levels = ['debug', 'info', 'log', 'warn', 'error'] as const;

const text = (body: string) => ({ msgtype: MsgType.Text, body }) as const;

const bodies = (client: MatrixClient, roomId: string): unknown[] =>
  (client.getRoom(roomId)?.getLiveTimeline().getEvents() ?? [])
    .filter((event) => event.getType() === 'm.room.message')
    .map((event) => event.getContent()['body'] as unknown);

describe.each(['sqlite', 'postgres'] as const)('a client that lives on sliding sync (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: RegisteredClient;
  let bob: RegisteredClient;
  let sliding: SlidingSync;
  let roomId: string;
  const console = { ...globalThis.console };

  beforeAll(async () => {
    // This part of the library has a log of its own, that cannot be given another place.
    for (const level of levels) globalThis.console[level] = ignore;
    homeserver = await createTestHomeserver({ database });
    alice = await registerClient(homeserver.baseUrl, 'alice');
    bob = await registerClient(homeserver.baseUrl, 'bob');
    await alice.client.initRustCrypto({ useIndexedDB: false });
    await startSyncing(alice.client);
    await bob.client.initRustCrypto({ useIndexedDB: false });
    const list = {
      ranges: [[0, 20]],
      timeline_limit: 5,
      required_state: [
        ['m.room.create', ''],
        ['m.room.encryption', ''],
        ['m.room.member', '$LAZY'],
        ['m.room.member', '$ME'],
        ['m.room.topic', ''],
      ],
    };
    sliding = new SlidingSync(
      homeserver.baseUrl,
      new Map([['all', list]]),
      { timeline_limit: 50, required_state: [['*', '*']] },
      bob.client,
      5_000,
    );
    void bob.client.startClient({ slidingSync: sliding });
  });
  afterAll(async () => {
    alice?.client.stopClient();
    bob?.client.stopClient();
    await homeserver?.stop();
    Object.assign(globalThis.console, console);
  });

  it('is invited, joins and hears what is said', async () => {
    const room = await alice.client.createRoom({ preset: Preset.PrivateChat, name: 'Sliding', invite: [bob.userId] });
    roomId = room.room_id;
    await eventually(() => bob.client.getRoom(roomId)?.getMyMembership() === 'invite' || undefined);
    expect(bob.client.getRoom(roomId)?.name).toBe('Sliding');
    await bob.client.joinRoom(roomId);
    await eventually(() => bob.client.getRoom(roomId)?.getMyMembership() === 'join' || undefined);
    for (let n = 0; n < 8; n++) await alice.client.sendMessage(roomId, text(`line ${n}`));
    await eventually(() => bodies(bob.client, roomId).includes('line 7') || undefined);
    await eventually(() => bob.client.getRoom(roomId)?.getMember(alice.userId)?.membership === 'join' || undefined);
    expect(sliding.getListData('all')?.joinedCount).toBe(1);
  });

  it('counts what is unread, also once it was read', async () => {
    const room = bob.client.getRoom(roomId);
    await eventually(() => room?.getUnreadNotificationCount(NotificationCountType.Total) === 8 || undefined);
    const last = room?.getLiveTimeline().getEvents().at(-1);
    await bob.client.sendReadReceipt(last ?? null, ReceiptType.Read);
    await eventually(() => room?.getUnreadNotificationCount(NotificationCountType.Total) === 0 || undefined);
  });

  it('sees typing, receipts, account data and its own messages', async () => {
    await alice.client.sendTyping(roomId, true, 20_000);
    await eventually(() => bob.client.getRoom(roomId)?.getMember(alice.userId)?.typing || undefined);
    const sent = await bob.client.sendMessage(roomId, text('mine'));
    await eventually(() => bodies(bob.client, roomId).includes('mine') || undefined);
    expect(bodies(bob.client, roomId).filter((body) => body === 'mine')).toHaveLength(1);
    const event = await eventually(() => alice.client.getRoom(roomId)?.findEventById(sent.event_id));
    await alice.client.sendReadReceipt(event, ReceiptType.Read);
    await eventually(() => bob.client.getRoom(roomId)?.getEventReadUpTo(alice.userId) === sent.event_id || undefined);
    await bob.client.setRoomTag(roomId, 'm.favourite', { order: 0.5 });
    await eventually(() => 'm.favourite' in (bob.client.getRoom(roomId)?.tags ?? {}) || undefined);
  });

  it('opens a room and gets more of it', async () => {
    const other = await alice.client.createRoom({ preset: Preset.PrivateChat, topic: 'long', invite: [bob.userId] });
    for (let n = 0; n < 12; n++) await alice.client.sendMessage(other.room_id, text(`old ${n}`));
    await alice.client.sendStateEvent(other.room_id, EventType.RoomPinnedEvents, { pinned: ['$one'] });
    await bob.client.joinRoom(other.room_id);
    await eventually(() => bodies(bob.client, other.room_id).includes('old 11') || undefined);
    sliding.modifyRoomSubscriptions(new Set([other.room_id]));
    const state = () =>
      bob.client
        .getRoom(other.room_id)
        ?.getLiveTimeline()
        .getState('f' as never);
    await eventually(() => state()?.getStateEvents('m.room.pinned_events', '') ?? undefined);
  });

  it('exchanges encrypted messages', async () => {
    const secret = await alice.client.createRoom({
      preset: Preset.PrivateChat,
      invite: [bob.userId],
      initial_state: [
        { type: EventType.RoomEncryption, state_key: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } },
      ],
    });
    await eventually(() => bob.client.getRoom(secret.room_id) ?? undefined);
    await bob.client.joinRoom(secret.room_id);
    await eventually(
      () => alice.client.getRoom(secret.room_id)?.getMember(bob.userId)?.membership === 'join' || undefined,
    );
    await eventually(() => bob.client.getRoom(secret.room_id)?.hasEncryptionStateEvent() || undefined);
    await alice.client.sendMessage(secret.room_id, text('for your eyes'));
    await eventually(() => bodies(bob.client, secret.room_id).includes('for your eyes') || undefined);
    await bob.client.sendMessage(secret.room_id, text('seen'));
    await eventually(() => bodies(alice.client, secret.room_id).includes('seen') || undefined);
  });

  it('goes on when the server was restarted', async () => {
    await homeserver.restart();
    await eventually(async () => {
      await alice.client.sendMessage(roomId, text('after the restart'));
      return true;
    });
    await eventually(() => bodies(bob.client, roomId).includes('after the restart') || undefined);
    expect(bodies(bob.client, roomId).filter((body) => body === 'after the restart')).toHaveLength(1);
  });
});
