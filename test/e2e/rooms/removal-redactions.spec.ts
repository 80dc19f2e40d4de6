import type { TestHomeserver, TestUser } from '@rookery/testing';
import { createRoom, databases, join, ok, say, setState, startHomeserver, type WireEvent } from './rooms-client.js';

describe.each(databases)('who is removed with what they said (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { experimental_features: { msc4293_enabled: true } });
    [alice, bob, carol] = [
      await homeserver.registerUser('alice'),
      await homeserver.registerUser('bob'),
      await homeserver.registerUser('carol'),
    ];
  });
  afterAll(() => homeserver?.stop());

  const remove = (by: TestUser, verb: string, roomId: string, target: TestUser, more: object): Promise<string> =>
    setState(by, roomId, 'm.room.member', { membership: verb, ...more }, target.userId);
  const bodyOf = async (roomId: string, eventId: string): Promise<unknown> =>
    (await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${eventId}`)).content['body'];
  const makeRoom = async (more: object = {}): Promise<string> => {
    const roomId = await createRoom(alice, { preset: 'public_chat', ...more });
    await join(bob, roomId);
    await join(carol, roomId);
    return roomId;
  };

  it('loses all of it with a ban that says so, and gets none of it back', async () => {
    const roomId = await makeRoom();
    const said = await say(bob, roomId, 'spam');
    const others = await say(carol, roomId, 'no spam');
    expect(await bodyOf(roomId, said)).toBe('spam');
    const ban = await remove(alice, 'ban', roomId, bob, { redact_events: true });
    const event = await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${said}`);
    expect(event.content).toEqual({});
    expect(event.unsigned?.['redacted_because']).toMatchObject({ event_id: ban, sender: alice.userId });
    expect(await bodyOf(roomId, others)).toBe('no spam');
    const page = await ok<{ chunk: WireEvent[] }>(carol, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    expect(JSON.stringify(page.chunk)).not.toContain('"spam"');
    await remove(alice, 'leave', roomId, bob, {});
    await join(bob, roomId);
    const later = await say(bob, roomId, 'sorry');
    expect(await bodyOf(roomId, later)).toBe('sorry');
    await homeserver.restart();
    expect([await bodyOf(roomId, said), await bodyOf(roomId, later)]).toEqual([undefined, 'sorry']);
  });

  it('loses what there was with a kick, by the name before it was specified, too', async () => {
    const roomId = await makeRoom();
    const said = await say(bob, roomId, 'noise');
    await remove(alice, 'leave', roomId, bob, { 'org.matrix.msc4293.redact_events': true });
    expect(await bodyOf(roomId, said)).toBeUndefined();
    await join(bob, roomId);
    expect(await bodyOf(roomId, await say(bob, roomId, 'music'))).toBe('music');
  });

  it('keeps what was said without the wish, or where whoever removes may not redact', async () => {
    const roomId = await makeRoom({
      room_version: '11',
      power_level_content_override: { users: { [alice.userId]: 100, [carol.userId]: 50 }, redact: 75 },
    });
    const said = await say(bob, roomId, 'opinion');
    await remove(alice, 'leave', roomId, bob, {});
    expect(await bodyOf(roomId, said)).toBe('opinion');
    await remove(carol, 'ban', roomId, bob, { redact_events: true });
    expect(await bodyOf(roomId, said)).toBe('opinion');
  });

  it('leaves the room as it was set up', async () => {
    const roomId = await makeRoom({
      room_version: '11',
      power_level_content_override: { users: { [alice.userId]: 100, [bob.userId]: 50 } },
    });
    await setState(bob, roomId, 'm.room.topic', { topic: 'Birds' });
    await remove(alice, 'ban', roomId, bob, { redact_events: true });
    expect(await ok(alice, 'GET', `/rooms/${roomId}/state/m.room.topic`)).toEqual({ topic: 'Birds' });
  });
});
