import { type TestHomeserver, type TestUser } from '@rookery/testing';
import {
  act,
  createRoom,
  databases,
  join,
  nextTransaction,
  ok,
  outcome,
  say,
  setState,
  startHomeserver,
  type WireEvent,
} from './rooms-client.js';

interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join?: Record<
      string,
      { readonly timeline: { readonly events: WireEvent[] }; readonly state: { readonly events: WireEvent[] } }
    >;
    readonly invite?: Record<string, unknown>;
  };
}
type Chunk = { readonly chunk: WireEvent[] };

const v1 = '/_matrix/client/v1';
const bodies = (events: readonly WireEvent[] = []): unknown[] =>
  events.filter((event) => event.type === 'm.room.message').map((event) => event.content['body'] ?? 'pruned');

describe.each(databases)('ignored and erased users (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let users = 0;

  const newUser = (name: string): Promise<TestUser> => homeserver.registerUser(`${name}${(users += 1)}`);
  const syncOf = (user: TestUser, roomId: string, since?: string): Promise<Sync> => {
    const filter = encodeURIComponent(JSON.stringify({ room: { rooms: [roomId], timeline: { limit: 50 } } }));
    return ok(user, 'GET', `/sync?filter=${filter}${since === undefined ? '' : `&since=${since}`}`);
  };
  const ignore = (user: TestUser, ...others: TestUser[]): Promise<unknown> =>
    ok(user, 'PUT', `/user/${user.userId}/account_data/m.ignored_user_list`, {
      ignored_users: Object.fromEntries(others.map((other) => [other.userId, {}])),
    });
  const react = (user: TestUser, roomId: string, eventId: string, key: string): Promise<unknown> =>
    ok(user, 'PUT', `/rooms/${roomId}/send/m.reaction/${nextTransaction()}`, {
      'm.relates_to': { rel_type: 'm.annotation', event_id: eventId, key },
    });

  beforeAll(async () => {
    homeserver = await startHomeserver(database);
    alice = await newUser('alice');
    bob = await newUser('bob');
  });
  afterAll(() => homeserver?.stop());

  it('leaves out what ignored users say, not what they do to the room, until they are heard again', async () => {
    const pest = await newUser('pest');
    const roomId = await createRoom(alice, {
      preset: 'public_chat',
      power_level_content_override: { state_default: 0 },
    });
    await join(bob, roomId);
    await join(pest, roomId);
    const root = await say(alice, roomId, 'root');
    const noise = await say(pest, roomId, 'noise');
    await say(alice, roomId, 'a reply', { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    await say(pest, roomId, 'noise in a thread', { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    await say(pest, roomId, 'noise about it', { 'm.relates_to': { rel_type: 'm.reference', event_id: root } });
    await react(pest, roomId, root, '👎');
    await react(alice, roomId, root, '👍');
    await setState(pest, roomId, 'm.room.topic', { topic: 'the pest was here' });

    const everything = ['root', 'noise', 'a reply', 'noise in a thread', 'noise about it'];
    const look = async (): Promise<object> => {
      const { chunk } = await ok<Chunk>(bob, 'GET', `/rooms/${roomId}/messages?dir=f&limit=100`);
      const context = await ok<{ events_before: WireEvent[]; events_after: WireEvent[] }>(
        bob,
        'GET',
        `/rooms/${roomId}/context/${root}?limit=100`,
      );
      const event = await ok<WireEvent>(bob, 'GET', `/rooms/${roomId}/event/${root}`);
      const relations = event.unsigned?.['m.relations'] as {
        'm.thread': { latest_event: WireEvent; count: number };
        'm.reference'?: { chunk: object[] };
      };
      const related = await ok<Chunk>(bob, 'GET', `${v1}/rooms/${roomId}/relations/${root}?limit=50&dir=f`);
      const threads = await ok<Chunk>(bob, 'GET', `${v1}/rooms/${roomId}/threads`);
      const room = (await syncOf(bob, roomId)).rooms?.join?.[roomId];
      return {
        messages: bodies(chunk),
        sync: bodies(room?.timeline.events),
        context: ['root', ...bodies(context.events_after)],
        topics: chunk.filter((each) => each.type === 'm.room.topic').map((each) => each.content['topic']),
        relations: related.chunk.map((each) => each.sender === pest.userId),
        latest: relations['m.thread'].latest_event.content['body'],
        replies: relations['m.thread'].count,
        references: relations['m.reference']?.chunk.length ?? 0,
        threads: bodies(threads.chunk),
      };
    };
    const loud = {
      messages: everything,
      sync: everything,
      context: everything,
      topics: ['the pest was here'],
      relations: [false, true, true, true, false],
      latest: 'noise in a thread',
      replies: 2,
      references: 1,
      threads: ['root'],
    };
    expect(await look()).toEqual(loud);
    const { next_batch: since } = await syncOf(bob, roomId);
    await ignore(bob, pest);
    const quiet = ['root', 'a reply'];
    expect(await look()).toEqual({
      ...loud,
      messages: quiet,
      sync: quiet,
      context: quiet,
      relations: [false, false],
      latest: 'a reply',
      replies: 1,
      references: 0,
    });
    await say(pest, roomId, 'more noise');
    await say(alice, roomId, 'not noise');
    expect(bodies((await syncOf(bob, roomId, since)).rooms?.join?.[roomId]?.timeline.events)).toEqual(['not noise']);
    // Somebody who follows a link to it means to read it.
    expect(outcome(await bob.request('GET', `/rooms/${roomId}/event/${noise}`))).toBe('200');

    const { next_batch: before } = await syncOf(bob, roomId);
    const invitation = await createRoom(pest, { invite: [bob.userId] });
    expect((await syncOf(bob, invitation, before)).rooms?.invite).toBeUndefined();

    await ignore(bob);
    expect(await look()).toMatchObject({ messages: [...everything, 'more noise', 'not noise'], references: 1 });
    expect(Object.keys((await syncOf(bob, invitation)).rooms?.invite ?? {})).toEqual([invitation]);
  });

  it('hides what erased users said from all who were not there', async () => {
    const ghost = await newUser('ghost');
    const late = await newUser('late');
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    await join(ghost, roomId);
    const root = await say(ghost, roomId, 'my secret');
    const edit = { 'm.new_content': { msgtype: 'm.text', body: 'my real secret' } };
    await say(ghost, roomId, '* my real secret', {
      ...edit,
      'm.relates_to': { rel_type: 'm.replace', event_id: root },
    });
    await say(alice, roomId, 'well', { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    await say(ghost, roomId, 'in a thread', { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    await join(late, roomId);

    const look = async (user: TestUser): Promise<object> => {
      const { chunk } = await ok<Chunk>(user, 'GET', `/rooms/${roomId}/messages?dir=f&limit=100`);
      const room = (await syncOf(user, roomId)).rooms?.join?.[roomId];
      const event = await ok<WireEvent>(user, 'GET', `/rooms/${roomId}/event/${root}`);
      const context = await ok<{ event: WireEvent; events_after: WireEvent[] }>(
        user,
        'GET',
        `/rooms/${roomId}/context/${root}?limit=100`,
      );
      const related = await ok<Chunk>(user, 'GET', `${v1}/rooms/${roomId}/relations/${root}?limit=50&dir=f`);
      const threads = await ok<Chunk>(user, 'GET', `${v1}/rooms/${roomId}/threads`);
      const everything = [chunk, room?.timeline.events, event, context, related, threads];
      return {
        messages: bodies(chunk),
        event: bodies([event])[0],
        knowsSecret: /secret/.test(JSON.stringify(everything)),
        knowsThread: /in a thread/.test(JSON.stringify(everything)),
      };
    };
    const all = { messages: ['my secret', '* my real secret', 'well', 'in a thread'], event: 'my secret' };
    expect(await look(late)).toEqual({ ...all, knowsSecret: true, knowsThread: true });
    const gone = await ghost.request('POST', '/account/deactivate', {
      erase: true,
      auth: {
        type: 'm.login.password',
        identifier: { type: 'm.id.user', user: ghost.userId },
        password: `password of ${ghost.userId.slice(1).split(':')[0]}`,
      },
    });
    expect(outcome(gone)).toBe('200');
    expect(await look(bob)).toEqual({ ...all, knowsSecret: true, knowsThread: true });
    expect(await look(late)).toEqual({
      messages: ['pruned', 'pruned', 'well', 'pruned'],
      event: 'pruned',
      knowsSecret: false,
      knowsThread: false,
    });
    await act(alice, 'ban', roomId, late);
    expect(await look(bob)).toMatchObject({ event: 'my secret' });
  });
});
