import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

describe.each(['sqlite', 'postgres'] as const)('relations that are refused (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let count = 0;

  const newRoom = async (): Promise<string> => {
    const room = String((await alice.request('POST', '/createRoom', { preset: 'public_chat' })).body['room_id']);
    expect((await bob.request('POST', `/rooms/${room}/join`, {})).status).toBe(200);
    return room;
  };
  const put = (user: TestUser, type: string, content: object, txnId = String((count += 1))) =>
    user.request('PUT', `/rooms/${roomId}/send/${type}/${txnId}`, content);
  const say = async (relation?: object): Promise<string> => {
    const content = { msgtype: 'm.text', body: 'words', ...(relation && { 'm.relates_to': relation }) };
    return String((await put(alice, 'm.room.message', content)).body['event_id']);
  };
  const react = (user: TestUser, eventId: string, key: string, txnId?: string) =>
    put(user, 'm.reaction', { 'm.relates_to': { rel_type: 'm.annotation', event_id: eventId, key } }, txnId);
  const reply = (root: string) =>
    put(alice, 'm.room.message', {
      msgtype: 'm.text',
      body: 'reply',
      'm.relates_to': { rel_type: 'm.thread', event_id: root },
    });

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    roomId = await newRoom();
  });
  afterAll(() => homeserver?.stop());

  it('the same reaction twice, until the first is taken back', async () => {
    const eventId = await say();
    const first = await react(alice, eventId, '👍', 'first');
    expect(first.status).toBe(200);
    expect(await react(alice, eventId, '👍')).toMatchObject({
      status: 400,
      body: { errcode: 'M_DUPLICATE_ANNOTATION' },
    });
    expect((await react(alice, eventId, '👍', 'first')).body).toEqual(first.body);
    expect((await react(alice, eventId, '👎')).status).toBe(200);
    expect((await react(bob, eventId, '👍')).status).toBe(200);
    expect((await react(alice, await say(), '👍')).status).toBe(200);
    const redaction = `/rooms/${roomId}/redact/${String(first.body['event_id'])}/taken-back`;
    expect((await alice.request('PUT', redaction, {})).status).toBe(200);
    expect((await react(alice, eventId, '👍')).status).toBe(200);
  });

  it('a thread on an event that relates to another; a plain reply may be its root', async () => {
    const root = await say();
    expect((await reply(root)).status).toBe(200);
    expect((await reply(root)).status).toBe(200);
    const inThread = await say({ rel_type: 'm.thread', event_id: root });
    const edit = await say({ rel_type: 'm.replace', event_id: root });
    const reaction = String((await react(bob, root, '👍')).body['event_id']);
    for (const eventId of [inThread, edit, reaction])
      expect(await reply(eventId)).toMatchObject({ status: 400, body: { errcode: 'M_UNKNOWN' } });
    expect((await reply(await say({ 'm.in_reply_to': { event_id: root } }))).status).toBe(200);
    expect((await reply('$never-seen')).status).toBe(200);
  });
});
