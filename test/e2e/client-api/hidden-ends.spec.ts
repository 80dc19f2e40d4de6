import type { TestHomeserver, TestUser } from '@rookery/testing';
import { createRoom, databases, join, nextTransaction, ok, say, startHomeserver } from '../rooms/rooms-client.js';

interface WireEvent {
  readonly event_id: string;
}

interface Page {
  readonly chunk: WireEvent[];
  readonly next_batch?: string;
}

interface Timeline {
  readonly events: WireEvent[];
  readonly limited: boolean;
  readonly prev_batch: string;
}

/** Lists whose first entries are nothing for their reader: what lies behind those counts, not they. */
describe.each(databases)('ends that are hidden (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let mallory: TestUser;
  let roomId: string;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, {});
    [alice, bob, mallory] = [
      await homeserver.registerUser('alice'),
      await homeserver.registerUser('bob'),
      await homeserver.registerUser('mallory'),
    ];
    await ok(bob, 'PUT', `/user/${encodeURIComponent(bob.userId)}/account_data/m.ignored_user_list`, {
      ignored_users: { [mallory.userId]: {} },
    });
  });
  afterAll(() => homeserver?.stop());

  beforeEach(async () => {
    roomId = await createRoom(alice, { preset: 'public_chat' });
    for (const user of [bob, mallory]) await join(user, roomId);
  });

  const idsOf = (events: readonly WireEvent[]): string[] => events.map((event) => event.event_id);
  const sayOften = async (user: TestUser, times: number): Promise<string[]> => {
    const sent: string[] = [];
    for (let i = 0; i < times; i++) sent.push(await say(user, roomId, `${i}`));
    return sent;
  };
  const relate = async (user: TestUser, to: string, rel_type: string): Promise<string> =>
    (
      await ok<WireEvent>(user, 'PUT', `/rooms/${roomId}/send/m.room.message/${nextTransaction()}`, {
        ...{ msgtype: 'm.text', body: 'a reply', 'm.relates_to': { rel_type, event_id: to } },
      })
    ).event_id;
  const sync = async (
    user: TestUser,
    limit: number,
    since?: string,
  ): Promise<{ next: string; timeline?: Timeline }> => {
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit } } }));
    const { next_batch: next, rooms } = await ok<{
      next_batch: string;
      rooms?: { join?: Record<string, { timeline: Timeline }> };
    }>(user, 'GET', `/sync?timeout=0&filter=${filter}${since === undefined ? '' : `&since=${since}`}`);
    const timeline = rooms?.join?.[roomId]?.timeline;
    return { next, ...(timeline && { timeline }) };
  };
  const earlier = async (user: TestUser, from: string): Promise<string[]> =>
    idsOf((await ok<Page>(user, 'GET', `/rooms/${roomId}/messages?dir=b&limit=100&from=${from}`)).chunk);

  it.each([1, 3])('are passed over by a sync of %i events', async (limit) => {
    const before = (await sync(bob, limit)).next;
    const sent = await sayOften(alice, 4);
    await sayOften(mallory, 4);
    for (const since of [undefined, before]) {
      const { timeline } = await sync(bob, limit, since);
      expect(idsOf(timeline!.events)).toEqual(sent.slice(-limit));
      expect(timeline!.limited).toBe(true);
      const rest = await earlier(bob, timeline!.prev_batch);
      expect(rest.slice(0, 4 - limit)).toEqual(sent.slice(0, 4 - limit).reverse());
    }
    expect(idsOf((await sync(mallory, limit)).timeline!.events)).toHaveLength(limit);
  });

  it('are no reason to say that there is more than there is', async () => {
    const before = (await sync(bob, 2)).next;
    const sent = await say(alice, roomId, 'one');
    await sayOften(mallory, 3);
    const { timeline } = await sync(bob, 2, before);
    expect(idsOf(timeline!.events)).toEqual([sent]);
    expect(timeline!.limited).toBe(false);
  });

  it('are passed over by a sliding sync of one event', async () => {
    const slide = async (pos?: string): Promise<{ pos: string; rooms: Record<string, { timeline: WireEvent[] }> }> =>
      ok(
        bob,
        'POST',
        `/_matrix/client/unstable/org.matrix.simplified_msc3575/sync?timeout=0${pos === undefined ? '' : `&pos=${pos}`}`,
        { room_subscriptions: { [roomId]: { timeline_limit: 1, required_state: [] } } },
      );
    await say(alice, roomId, 'the first');
    const first = await say(alice, roomId, 'the last');
    await sayOften(mallory, 3);
    const answer = await slide();
    expect(idsOf(answer.rooms[roomId]!.timeline)).toEqual([first]);
    const second = await say(alice, roomId, 'another');
    await sayOften(mallory, 3);
    const next = await slide(answer.pos);
    expect(idsOf(next.rooms[roomId]!.timeline)).toEqual([second]);
    expect(next.rooms[roomId]).toMatchObject({ limited: false, num_live: 1 });
  });

  it('are passed over in lists of relations', async () => {
    const root = await say(alice, roomId, 'what do you think?');
    const own = await relate(alice, root, 'm.reference');
    for (let i = 0; i < 4; i++) await relate(mallory, root, 'm.reference');
    const page = await ok<Page>(
      bob,
      'GET',
      `/_matrix/client/v1/rooms/${roomId}/relations/${encodeURIComponent(root)}?limit=1`,
    );
    expect(idsOf(page.chunk)).toEqual([own]);
    expect(page.next_batch).toBeUndefined();
  });

  it('are passed over in lists of threads', async () => {
    const closed = await createRoom(alice, {
      ...{ preset: 'public_chat' },
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: 'joined' } }],
    });
    roomId = closed;
    const early = await sayOften(alice, 3);
    await join(bob, closed);
    const late = await say(alice, closed, 'a new one');
    await relate(alice, late, 'm.thread');
    for (const root of early) await relate(alice, root, 'm.thread');
    const page = await ok<Page>(bob, 'GET', `/_matrix/client/v1/rooms/${closed}/threads?limit=1`);
    expect(idsOf(page.chunk)).toEqual([late]);
  });
});
