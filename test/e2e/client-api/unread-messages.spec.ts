import type { TestHomeserver, TestUser } from '@rookery/testing';
import {
  createRoom,
  databases,
  join,
  nextTransaction,
  ok,
  say,
  setState,
  startHomeserver,
} from '../rooms/rooms-client.js';

/** Numbers of unread messages in `/sync` (MSC2654). */
describe.each(databases)('unread messages (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { experimental_features: { msc2654_enabled: true } });
    [alice, bob] = [await homeserver.registerUser('alice'), await homeserver.registerUser('bob')];
    roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
  });
  afterAll(() => homeserver?.stop());

  const unread = async (user: TestUser): Promise<unknown> => {
    type Sync = { rooms: { join: Record<string, Record<string, unknown>> } };
    const sync = await ok<Sync>(user, 'GET', '/sync?timeout=0');
    return sync.rooms.join[roomId]?.['org.matrix.msc2654.unread_count'];
  };
  const read = (eventId: string): Promise<unknown> =>
    ok(bob, 'POST', `/rooms/${roomId}/receipt/m.read/${encodeURIComponent(eventId)}`, {});

  it('are counted whether or not they notify', async () => {
    expect(await unread(bob)).toBe(0);
    await ok(bob, 'PUT', `/pushrules/global/room/${roomId}`, { actions: [] });
    await say(alice, roomId, 'one');
    const two = await say(alice, roomId, 'two');
    await ok(alice, 'PUT', `/rooms/${roomId}/send/m.room.encrypted/${nextTransaction()}`, {
      ...{ algorithm: 'm.megolm.v1.aes-sha2', ciphertext: 'x', session_id: 's' },
    });
    await setState(alice, roomId, 'm.room.topic', { topic: 'New' });
    expect(await unread(bob)).toBe(4);
    expect(await unread(alice)).toBe(0);
    await read(two);
    expect(await unread(bob)).toBe(2);
  });

  it('are not what ignored users send', async () => {
    await read(await say(alice, roomId, 'here we are'));
    const mallory = await homeserver.registerUser('mallory');
    await join(mallory, roomId);
    await say(mallory, roomId, 'buy!');
    const ignore = (users: object): Promise<unknown> =>
      ok(bob, 'PUT', `/user/${encodeURIComponent(bob.userId)}/account_data/m.ignored_user_list`, {
        ignored_users: users,
      });
    expect(await unread(bob)).toBe(1);
    await ignore({ [mallory.userId]: {} });
    await say(mallory, roomId, 'buy more!');
    await say(alice, roomId, 'who was that?');
    expect(await unread(bob)).toBe(1);
    await ignore({});
    expect(await unread(bob)).toBe(3);
  });

  it('are not notices, edits, reactions, what was redacted and what one said oneself', async () => {
    const last = await say(alice, roomId, 'the last word');
    await read(last);
    await say(alice, roomId, 'beep', { msgtype: 'm.notice' });
    await say(alice, roomId, '* the very last word', {
      'm.new_content': { msgtype: 'm.text', body: 'the very last word' },
      'm.relates_to': { rel_type: 'm.replace', event_id: last },
    });
    await ok(alice, 'PUT', `/rooms/${roomId}/send/m.reaction/${nextTransaction()}`, {
      'm.relates_to': { rel_type: 'm.annotation', event_id: last, key: 'A' },
    });
    const regretted = await say(alice, roomId, 'oops');
    await ok(alice, 'PUT', `/rooms/${roomId}/redact/${regretted}/${nextTransaction()}`, {});
    await setState(alice, roomId, 'm.room.pinned_events', { pinned: [] });
    expect(await unread(bob)).toBe(0);
    await say(alice, roomId, 'A text about "msgtype":"m.notice" is no notice');
    expect(await unread(bob)).toBe(1);
  });
});
