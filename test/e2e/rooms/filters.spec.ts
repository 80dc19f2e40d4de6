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
  type WireEvent,
} from './rooms-client.js';

interface Page {
  readonly start: string;
  readonly end?: string;
  readonly chunk: readonly WireEvent[];
  readonly state?: readonly WireEvent[];
}
interface Context {
  readonly start: string;
  readonly end: string;
  readonly event: WireEvent;
  readonly events_before: readonly WireEvent[];
  readonly events_after: readonly WireEvent[];
  readonly state: readonly WireEvent[];
}
interface Found {
  readonly search_categories: {
    readonly room_events: { readonly count: number; readonly results: readonly { readonly result: WireEvent }[] };
  };
}

describe.each(databases)('filters of room events (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let roomId: string;
  let otherId: string;
  const sent: Record<string, string> = {};

  const namesOf = (events: readonly WireEvent[]): string[] =>
    events.flatMap(({ event_id: eventId }) => Object.keys(sent).find((name) => sent[name] === eventId) ?? []);
  const send = async (user: TestUser, name: string, content: object = {}, type = 'm.room.message'): Promise<void> => {
    const path = `/rooms/${roomId}/send/${type}/${nextTransaction()}`;
    const body = { msgtype: 'm.text', body: `corvid ${name}`, ...content };
    sent[name] = (await ok<{ event_id: string }>(user, 'PUT', path, body)).event_id;
  };
  const related = (relType: string, to: string): object => ({
    'm.relates_to': { rel_type: relType, event_id: sent[to] },
  });
  const encoded = (filter: object): string => encodeURIComponent(JSON.stringify(filter));
  const messages = (filter: object, more = 'dir=b&limit=50'): Promise<Page> =>
    ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?${more}&filter=${encoded(filter)}`);
  const context = (filter: object, eventId = sent['c']!): Promise<Context> =>
    ok<Context>(alice, 'GET', `/rooms/${roomId}/context/${eventId}?limit=50&filter=${encoded(filter)}`);
  const search = async (filter: object, orderBy = 'recent'): Promise<{ names: string[]; count: number }> => {
    const criteria = { search_term: 'corvid', order_by: orderBy, filter: { limit: 50, ...filter } };
    const body = await ok<Found>(alice, 'POST', '/search', { search_categories: { room_events: criteria } });
    const { results, count } = body.search_categories.room_events;
    return { names: namesOf(results.map(({ result }) => result)).sort(), count };
  };
  /** What of the messages that can be searched a filter lets through, by every way there is. */
  const everywhere = async (filter: object): Promise<string[]> => {
    const page = namesOf((await messages({ ...filter, types: ['m.room.message'] })).chunk).sort();
    const around = await context({ ...filter, types: ['m.room.message'] }, sent['start']);
    expect(namesOf([...around.events_before, ...around.events_after]).sort()).toEqual(page);
    for (const orderBy of ['recent', 'rank']) {
      const found = await search(filter, orderBy);
      expect(found).toEqual({ names: page, count: page.length });
    }
    const timeline = { ...filter, types: ['m.room.message'], limit: 50 };
    const sync = await ok<{ rooms: { join?: Record<string, { timeline?: { events: WireEvent[] } }> } }>(
      alice,
      'GET',
      `/sync?filter=${encoded({ room: { rooms: [roomId], timeline } })}`,
    );
    expect(namesOf(sync.rooms.join?.[roomId]?.timeline?.events ?? []).sort()).toEqual(page);
    return page;
  };

  beforeAll(async () => {
    homeserver = await startHomeserver(database);
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    roomId = await createRoom(alice, { preset: 'public_chat', name: 'Rookery' });
    await join(bob, roomId);
    await send(alice, 'start', {}, 'org.example.start');
    await send(alice, 'a');
    await send(bob, 'b', { url: 'mxc://rookery.test/b' });
    await send(alice, 'c', related('m.thread', 'a'));
    await send(bob, 'd', related('m.reference', 'b'));
    await send(alice, 'e', { url: 7 });
    await send(alice, 'f');
    // What is said elsewhere about an event here is none of its readers' business.
    const elsewhere = await createRoom(bob);
    await say(bob, elsewhere, 'elsewhere', related('m.reference', 'f'));
    otherId = await createRoom(alice);
    await say(alice, otherId, 'other');
  });
  afterAll(() => homeserver?.stop());

  it.each<[string, () => object, readonly string[]]>([
    ['nothing', () => ({}), ['a', 'b', 'c', 'd', 'e', 'f']],
    ['this room', () => ({ rooms: [roomId, otherId] }), ['a', 'b', 'c', 'd', 'e', 'f']],
    ['another room', () => ({ rooms: [otherId] }), []],
    ['no room', () => ({ rooms: [] }), []],
    ['not this room', () => ({ not_rooms: [roomId] }), []],
    ['this room and not', () => ({ rooms: [roomId], not_rooms: [roomId] }), []],
    ['not another room', () => ({ not_rooms: [otherId] }), ['a', 'b', 'c', 'd', 'e', 'f']],
    ['a sender', () => ({ senders: [bob.userId] }), ['b', 'd']],
    ['a sender and not', () => ({ senders: [bob.userId], not_senders: [bob.userId] }), []],
    ['not a sender', () => ({ not_senders: [bob.userId] }), ['a', 'c', 'e', 'f']],
    ['no sender', () => ({ senders: [] }), []],
    ['nobody who could be', () => ({ senders: ['@\0:y', '@x\ud800:y'], related_by_rel_types: ['\0'] }), []],
    [
      'not what cannot be',
      () => ({ not_senders: ['@\0:y'], not_types: ['\0', '\0*'], 'org.matrix.msc3874.not_rel_types': ['\0'] }),
      ['a', 'b', 'c', 'd', 'e', 'f'],
    ],
    ['not nobody', () => ({ not_senders: [], not_rooms: [], not_types: [] }), ['a', 'b', 'c', 'd', 'e', 'f']],
    ['not a type', () => ({ not_types: ['m.room.mess*'] }), []],
    [
      'not other types',
      () => ({ not_types: ['m.room.message_', 'm_room%', 'M.ROOM.*'] }),
      ['a', 'b', 'c', 'd', 'e', 'f'],
    ],
    ['with an address', () => ({ contains_url: true }), ['b']],
    ['without an address', () => ({ contains_url: false }), ['a', 'c', 'd', 'e', 'f']],
    ['with a thread', () => ({ related_by_rel_types: ['m.thread'] }), ['a']],
    ['with any relation', () => ({ related_by_rel_types: ['m.thread', 'm.reference'] }), ['a', 'b']],
    ['with no relation', () => ({ related_by_rel_types: [] }), []],
    ['answered by one', () => ({ related_by_senders: [bob.userId] }), ['b']],
    ['answered by one so', () => ({ related_by_senders: [bob.userId], related_by_rel_types: ['m.thread'] }), []],
  ])('let through the same by every way: %s', async (_, filter, names) => {
    expect(await everywhere(filter())).toEqual(names);
  });

  it('take wildcards in types literally but for the asterisk', async () => {
    for (const [types, count] of [
      [['*'], 50],
      [['org.*.start'], 1],
      [['*start'], 1],
      [['org.exampl_.start'], 0],
      [['ORG.EXAMPLE.START'], 0],
      [['org.example.start*'], 1],
      [['org.exampl?.*'], 0],
      [['org.[e]xample.*'], 0],
      [['org\\.example.*'], 0],
      [[`${'*'.repeat(5_000)}start`], 1],
      [[`*${'start'.repeat(1_000)}`], 0],
      [['\0*', 'org.example.start'], 1],
      [['**'], 50],
      [['org.example.start*', ...Array.from({ length: 999 }, (_, n) => `${n.toString(36)}*`)], 50],
      [['*', 'x'], 50],
    ] as const) {
      const { chunk } = await messages({ types });
      if (count === 50) expect(chunk.length).toBeGreaterThan(10);
      else expect([types, chunk.length]).toEqual([types, count]);
    }
    const tooLong = ['*'.repeat(60_000), `*${'x'.repeat(60_000)}`];
    expect((await search({ types: tooLong })).count).toBe(6);
    expect(await search({ types: tooLong.slice(1) })).toEqual({ names: [], count: 0 });
  });

  it('that leave a room out leave the tokens in order, and still ask who reads', async () => {
    const page = await messages({ not_rooms: [roomId] });
    expect(page).toEqual({ start: expect.any(String) as string, chunk: [] });
    const again = await messages({ not_rooms: [roomId] }, `dir=b&from=${page.start}`);
    expect(again).toEqual({ start: page.start, chunk: [] });
    const around = await context({ rooms: [otherId] });
    expect(around).toMatchObject({ event: { event_id: sent['c'] }, events_before: [], events_after: [], state: [] });
    expect(namesOf((await messages({}, `dir=b&limit=1&from=${around.start}`)).chunk)).toEqual(['b']);
    expect(namesOf((await messages({}, `dir=f&limit=1&from=${around.end}`)).chunk)).toEqual(['d']);
    const carol = await homeserver.registerUser('carol');
    const path = `/rooms/${roomId}/messages?dir=b&filter=${encoded({ not_rooms: [roomId] })}`;
    expect(await carol.request('GET', path)).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
  });

  it('hold for the state that goes with a context', async () => {
    const typesOf = async (filter: object): Promise<string[]> =>
      [...new Set((await context(filter)).state.map(({ type }) => type))].sort();
    expect(await typesOf({})).toContain('m.room.create');
    expect(await typesOf({ types: ['m.room.name', 'm.room.member'] })).toEqual(['m.room.member', 'm.room.name']);
    expect(await typesOf({ types: ['m.room.*'], not_types: ['m.room.[a-z]*', 'm.room.m*'] })).not.toContain(
      'm.room.member',
    );
    const members = async (filter: object): Promise<unknown[]> =>
      (await context(filter)).state.filter(({ type }) => type === 'm.room.member').map((each) => each.state_key);
    expect(await members({ lazy_load_members: true, senders: [alice.userId] })).toEqual([alice.userId]);
  });

  it('load the members that a page needs, again and again', async () => {
    await setState(bob, roomId, 'm.room.member', { membership: 'join', 'org.example.mood': 'loud' }, bob.userId);
    for (const redundant of [true, false, undefined]) {
      const filter = { lazy_load_members: true, include_redundant_members: redundant, senders: [bob.userId], limit: 1 };
      const page = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&filter=${encoded(filter)}`);
      expect(page.chunk).toHaveLength(1);
      expect(page.state?.map((event) => event.state_key)).toEqual([bob.userId]);
    }
    expect((await messages({ lazy_load_members: false })).state).toBeUndefined();
    // Forwards the last of a page is the newest: whoever spoke there was in the room by then.
    const club = await createRoom(alice, { preset: 'public_chat' });
    await say(alice, club, 'alone');
    await join(bob, club);
    await say(bob, club, 'not any more');
    for (const dir of ['f&from=s0', 'b']) {
      const filter = encoded({ lazy_load_members: true, types: ['m.room.message'] });
      const page = await ok<Page>(alice, 'GET', `/rooms/${club}/messages?dir=${dir}&limit=50&filter=${filter}`);
      const shown = page.state?.map((event) => event.state_key).sort();
      expect([dir, shown]).toEqual([dir, [alice.userId, bob.userId].sort()]);
    }
  });

  it.each([
    [{ limit: -1 }],
    [{ limit: 'x' }],
    [{ types: 'm.room.message' }],
    [{ not_senders: [1] }],
    [{ contains_url: 'yes' }],
    [{ lazy_load_members: 1 }],
    [{ rooms: {} }],
    [[]],
    ['x'],
    [1],
  ])('are refused where they are none: %j', async (filter) => {
    for (const path of ['messages?dir=b', `context/${sent['c']}?limit=1`]) {
      const answer = await alice.request('GET', `/rooms/${roomId}/${path}&filter=${encoded(filter as object)}`);
      expect(answer).toMatchObject({ status: 400, body: { errcode: 'M_BAD_JSON' } });
    }
    const criteria = { search_term: 'corvid', filter };
    const found = await alice.request('POST', '/search', { search_categories: { room_events: criteria } });
    expect(found).toMatchObject({ status: 400, body: { errcode: 'M_BAD_JSON' } });
  });
});
