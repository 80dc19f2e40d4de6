import { type TestHomeserver, type TestUser } from '@rookery/testing';
import {
  act,
  createRoom,
  databases,
  join,
  leave,
  nextTransaction,
  ok,
  outcome,
  say,
  setState,
  startHomeserver,
  type WireEvent,
} from './rooms-client.js';

const v1 = '/_matrix/client/v1';
const id = encodeURIComponent;

interface Page {
  readonly chunk: WireEvent[];
  readonly start?: string;
  readonly end?: string;
  readonly next_batch?: string;
  readonly prev_batch?: string;
}
interface Listed {
  readonly chunk: { readonly room_id: string; readonly name?: string }[];
  readonly next_batch?: string;
  readonly prev_batch?: string;
  readonly total_room_count_estimate?: number;
}

describe.each(databases)('the rooms API (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let carol: TestUser;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { room_list_publication_rules: [{ action: 'allow' }] });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
    carol = await homeserver.registerUser('carol');
  });
  afterAll(() => homeserver?.stop());

  const state = (user: TestUser, roomId: string, type: string, key = ''): Promise<Record<string, unknown>> =>
    ok(user, 'GET', `/rooms/${roomId}/state/${type}/${id(key)}`);
  const bodies = (page: Page): unknown[] => page.chunk.map((event) => event.content['body']);
  const membership = async (roomId: string, of: TestUser): Promise<unknown> =>
    (await state(alice, roomId, 'm.room.member', of.userId))['membership'];

  it.each([
    ['private_chat', 'invite', 'shared', 'can_join', false],
    ['trusted_private_chat', 'invite', 'shared', 'can_join', true],
    ['public_chat', 'public', 'shared', 'forbidden', false],
  ])('makes rooms as the preset %s says', async (preset, joinRule, visibility, guests, equals) => {
    for (const version of ['11', '12']) {
      const roomId = await createRoom(alice, { preset, room_version: version, invite: [bob.userId], is_direct: true });
      expect(await state(alice, roomId, 'm.room.join_rules')).toEqual({ join_rule: joinRule });
      expect(await state(alice, roomId, 'm.room.history_visibility')).toEqual({ history_visibility: visibility });
      const access = await alice.request('GET', `/rooms/${roomId}/state/m.room.guest_access`);
      // Forbidden is what holds without an event.
      if (guests === 'forbidden') expect(outcome(access)).toBe('404 M_NOT_FOUND');
      else expect(access.body).toEqual({ guest_access: guests });
      const { events } = await state(alice, roomId, 'm.room.power_levels');
      expect((events as Record<string, number>)['m.call.invite']).toBe(joinRule === 'public' ? 50 : undefined);
      expect(await state(alice, roomId, 'm.room.member', bob.userId)).toMatchObject({
        membership: 'invite',
        is_direct: true,
      });
      await join(bob, roomId);
      const mayRename = await bob.request(
        'PUT',
        `/rooms/${roomId}/state/m.room.power_levels`,
        await state(bob, roomId, 'm.room.power_levels'),
      );
      expect({ version, outcome: outcome(mayRename) }).toEqual({
        version,
        outcome: equals ? '200' : '403 M_FORBIDDEN',
      });
    }
  });

  it('makes rooms as asked for, what is asked for last winning', async () => {
    const roomId = await createRoom(alice, {
      preset: undefined,
      visibility: 'public',
      room_alias_name: 'everything',
      name: 'The name',
      topic: 'The topic',
      room_version: '11',
      creation_content: { type: 'm.space', 'm.federate': false, room_version: '1', creator: bob.userId },
      initial_state: [
        { type: 'm.room.history_visibility', state_key: '', content: { history_visibility: 'joined' } },
        { type: 'm.room.name', state_key: '', content: { name: 'Another name' } },
        { type: 'org.example', state_key: 'key', content: { a: 1 } },
      ],
      power_level_content_override: { ban: 77, events: { 'org.example': 12 } },
    });
    expect(await state(alice, roomId, 'm.room.create')).toMatchObject({
      type: 'm.space',
      'm.federate': false,
      room_version: '11',
    });
    expect(await state(alice, roomId, 'm.room.create')).not.toHaveProperty('creator');
    expect(await state(alice, roomId, 'm.room.join_rules')).toEqual({ join_rule: 'public' });
    expect(await state(alice, roomId, 'm.room.history_visibility')).toEqual({ history_visibility: 'joined' });
    expect(await state(alice, roomId, 'm.room.name')).toEqual({ name: 'The name' });
    expect(await state(alice, roomId, 'm.room.topic')).toMatchObject({ topic: 'The topic' });
    expect(await state(alice, roomId, 'org.example', 'key')).toEqual({ a: 1 });
    expect(await state(alice, roomId, 'm.room.canonical_alias')).toEqual({ alias: '#everything:rookery.test' });
    expect(await state(alice, roomId, 'm.room.power_levels')).toMatchObject({
      ban: 77,
      events: { 'org.example': 12 },
      users: { [alice.userId]: 100 },
    });
    const found = await ok(bob, 'GET', `/directory/room/${id('#everything:rookery.test')}`);
    expect(found).toEqual({ room_id: roomId, servers: ['rookery.test'] });
    expect(await ok(bob, 'GET', `/directory/list/room/${roomId}`)).toEqual({ visibility: 'public' });
    expect(await ok(alice, 'GET', `/rooms/${roomId}/aliases`)).toEqual({ aliases: ['#everything:rookery.test'] });
  });

  it('moves members from state to state, and only where the rules lead', async () => {
    const roomId = await createRoom(alice, { room_alias_name: 'moves' });
    expect(outcome(await bob.request('POST', `/rooms/${roomId}/leave`, {}))).toMatch(/^(200|403 M_FORBIDDEN)$/);
    await act(alice, 'invite', roomId, bob);
    await leave(bob, roomId);
    expect(await membership(roomId, bob)).toBe('leave');
    expect(outcome(await bob.request('POST', `/rooms/${roomId}/join`, {}))).toBe('403 M_FORBIDDEN');
    await act(alice, 'invite', roomId, bob);
    const joined = await ok(bob, 'POST', `/join/${id('#moves:rookery.test')}`, { reason: 'because' });
    expect(joined).toEqual({ room_id: roomId });
    expect(await state(alice, roomId, 'm.room.member', bob.userId)).toMatchObject({
      membership: 'join',
      reason: 'because',
    });
    // To join again changes nothing.
    const before = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=1`);
    await join(bob, roomId);
    const after = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=1`);
    expect(after.chunk[0]?.event_id).toBe(before.chunk[0]?.event_id);

    await ok(alice, 'POST', `/rooms/${roomId}/kick`, { user_id: bob.userId, reason: 'out' });
    expect(await state(alice, roomId, 'm.room.member', bob.userId)).toEqual({ membership: 'leave', reason: 'out' });
    expect(outcome(await alice.request('POST', `/rooms/${roomId}/kick`, { user_id: bob.userId }))).toBe(
      '403 M_FORBIDDEN',
    );
    expect(outcome(await alice.request('POST', `/rooms/${roomId}/unban`, { user_id: bob.userId }))).toBe(
      '403 M_FORBIDDEN',
    );
    await act(alice, 'ban', roomId, bob);
    expect(outcome(await alice.request('POST', `/rooms/${roomId}/invite`, { user_id: bob.userId }))).toBe(
      '403 M_FORBIDDEN',
    );
    await act(alice, 'unban', roomId, bob);
    expect(await membership(roomId, bob)).toBe('leave');

    await setState(alice, roomId, 'm.room.join_rules', { join_rule: 'knock' });
    await ok(bob, 'POST', `/knock/${id('#moves:rookery.test')}`, { reason: 'please' });
    expect(await state(alice, roomId, 'm.room.member', bob.userId)).toMatchObject({
      membership: 'knock',
      reason: 'please',
    });
    await act(alice, 'invite', roomId, bob);
    await join(bob, roomId);
    expect(outcome(await bob.request('POST', `/knock/${roomId}`, {}))).toBe('403 M_FORBIDDEN');

    const inner = await createRoom(alice, {
      initial_state: [
        {
          type: 'm.room.join_rules',
          state_key: '',
          content: { join_rule: 'restricted', allow: [{ type: 'm.room_membership', room_id: roomId }] },
        },
      ],
    });
    expect(outcome(await carol.request('POST', `/rooms/${inner}/join`, {}))).toBe('403 M_FORBIDDEN');
    await join(bob, inner);
    expect((await state(alice, inner, 'm.room.member', bob.userId))['membership']).toBe('join');

    expect(outcome(await bob.request('POST', `/rooms/${roomId}/forget`, {}))).toBe('400 M_UNKNOWN');
    await leave(bob, roomId);
    expect(outcome(await bob.request('GET', `/rooms/${roomId}/messages?dir=b`))).toBe('200');
    await ok(bob, 'POST', `/rooms/${roomId}/forget`, {});
    expect(outcome(await bob.request('GET', `/rooms/${roomId}/messages?dir=b`))).toBe('403 M_FORBIDDEN');
    expect((await ok<{ joined_rooms: string[] }>(bob, 'GET', '/joined_rooms')).joined_rooms).toContain(inner);
    const mutual = await ok<{ joined: string[] }>(bob, 'GET', `${v1}/mutual_rooms?user_id=${id(alice.userId)}`);
    expect(mutual.joined).toContain(inner);
    expect(mutual.joined).not.toContain(roomId);
  });

  it('applies a transaction once, whatever has become of the room since', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    const path = `/rooms/${roomId}/send/m.room.message/${nextTransaction()}`;
    const first = await ok(bob, 'PUT', path, { msgtype: 'm.text', body: 'once' });
    expect(await ok(bob, 'PUT', path, { msgtype: 'm.text', body: 'once' })).toEqual(first);
    const own = await ok(alice, 'PUT', path, { msgtype: 'm.text', body: 'mine' });
    expect(own).not.toEqual(first);
    const redaction = `/rooms/${roomId}/redact/${String(first['event_id'])}/${nextTransaction()}`;
    const redacted = await ok(bob, 'PUT', redaction, { reason: 'oops' });
    await act(alice, 'ban', roomId, bob);
    await homeserver.restart();
    expect(await ok(bob, 'PUT', path, { msgtype: 'm.text', body: 'once' })).toEqual(first);
    expect(await ok(bob, 'PUT', redaction, { reason: 'oops' })).toEqual(redacted);
    const { chunk } = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=50`);
    expect(chunk.filter((event) => event.sender === bob.userId && event.state_key === undefined).length).toBe(2);
  });

  it.each(['10', '12'])('redacts what one may, and shows by what (version %s)', async (version) => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: version });
    await join(bob, roomId);
    const [byAlice, byBob, byBobToo] = [
      await say(alice, roomId, 'a'),
      await say(bob, roomId, 'b'),
      await say(bob, roomId, 'c'),
    ];
    const redact = (user: TestUser, eventId: string) =>
      user.request<{ event_id: string }>('PUT', `/rooms/${roomId}/redact/${eventId}/${nextTransaction()}`, {
        reason: 'why',
      });
    expect(outcome(await redact(bob, byAlice))).toBe('403 M_FORBIDDEN');
    // What is not there yet can come; whether it may be redacted then can be said only of those who may redact everything.
    expect(outcome(await redact(bob, '$unknown'))).toBe('404 M_NOT_FOUND');
    expect(outcome(await redact(alice, '$unknown'))).toBe('200');
    const own = await redact(bob, byBob);
    const other = await redact(alice, byBobToo);
    for (const [eventId, redaction] of [
      [byBob, own],
      [byBobToo, other],
    ] as const) {
      const event = await ok<WireEvent>(bob, 'GET', `/rooms/${roomId}/event/${eventId}`);
      expect(event.content).toEqual({});
      expect(event.unsigned?.['redacted_because']).toMatchObject({
        event_id: redaction.body.event_id,
        content: { reason: 'why' },
      });
      const told = await ok<WireEvent & { redacts?: string }>(
        bob,
        'GET',
        `/rooms/${roomId}/event/${redaction.body.event_id}`,
      );
      expect([told.redacts, told.content['redacts']]).toContain(eventId);
    }
    expect((await ok<WireEvent>(bob, 'GET', `/rooms/${roomId}/event/${byAlice}`)).content['body']).toBe('a');
  });

  it('pages through a room in both directions, with every step of every size', async () => {
    const roomId = await createRoom(alice);
    for (let n = 0; n < 17; n++) await say(alice, roomId, `line ${n}`);
    const walk = async (direction: string, limit: number, filter = ''): Promise<string[]> => {
      const ids: string[] = [];
      for (let from = ''; ;) {
        const page = await ok<Page>(
          alice,
          'GET',
          `/rooms/${roomId}/messages?dir=${direction}&limit=${limit}${from}${filter}`,
        );
        ids.push(...page.chunk.map((event) => event.event_id));
        if (page.end === undefined) return ids;
        from = `&from=${page.end}`;
      }
    };
    const whole = await walk('f', 1000);
    expect(new Set(whole).size).toBe(whole.length);
    expect(whole.length).toBeGreaterThan(20);
    for (const limit of [1, 2, 5, 16, 50]) {
      expect({ limit, ids: await walk('f', limit) }).toEqual({ limit, ids: whole });
      expect({ limit, ids: await walk('b', limit) }).toEqual({ limit, ids: whole.toReversed() });
    }
    const ahead = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?limit=3`);
    expect(ahead.chunk.map((event) => event.event_id)).toEqual(whole.slice(0, 3));
    const messages = await walk('f', 4, `&filter=${id('{"types":["m.room.message"]}')}`);
    expect(messages.length).toBe(17);
    expect(await walk('b', 3, `&filter=${id('{"not_types":["m.room.message"]}')}`)).toEqual(
      whole.filter((each) => !messages.includes(each)).toReversed(),
    );
    // From a place to a place, and back the same way.
    const first = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=3`);
    const second = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=4&from=${first.end}`);
    const between = await ok<Page>(
      alice,
      'GET',
      `/rooms/${roomId}/messages?dir=b&limit=50&from=${first.end}&to=${second.end}`,
    );
    expect(bodies(between)).toEqual(bodies(second));
    const back = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=f&limit=4&from=${second.end}`);
    expect(bodies(back)).toEqual(bodies(second).toReversed());
    // Around an event, and on from there.
    const middle = messages[8] ?? '';
    const context = await ok<{
      event: WireEvent;
      events_before: WireEvent[];
      events_after: WireEvent[];
      start: string;
      end: string;
    }>(alice, 'GET', `/rooms/${roomId}/context/${middle}?limit=4`);
    const around = [...context.events_before.toReversed(), context.event, ...context.events_after].map(
      (event) => event.event_id,
    );
    expect(around).toEqual(messages.slice(6, 11));
    const onwards = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=f&limit=2&from=${context.end}`);
    expect(onwards.chunk.map((event) => event.event_id)).toEqual(messages.slice(11, 13));
    const backwards = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=2&from=${context.start}`);
    expect(backwards.chunk.map((event) => event.event_id)).toEqual([messages[5], messages[4]]);
    const at = context.event.origin_server_ts;
    for (const direction of ['f', 'b']) {
      const found = await ok<{ origin_server_ts: number }>(
        alice,
        'GET',
        `${v1}/rooms/${roomId}/timestamp_to_event?ts=${at}&dir=${direction}`,
      );
      expect(found.origin_server_ts).toBe(at);
    }
  });

  it('pages through relations and threads', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    const relate = (type: string, eventId: string): object => ({
      'm.relates_to': { rel_type: type, event_id: eventId },
    });
    const roots = [await say(alice, roomId, 'one'), await say(alice, roomId, 'two'), await say(bob, roomId, 'three')];
    const [one = '', two = '', three = ''] = roots;
    const replies: string[] = [];
    for (let n = 0; n < 7; n++) replies.push(await say(alice, roomId, `reply ${n}`, relate('m.thread', one)));
    await say(alice, roomId, 'to two', relate('m.thread', two));
    await say(alice, roomId, 'to three', relate('m.thread', three));
    await say(bob, roomId, 'to one again', relate('m.thread', one));
    const reaction = await ok<{ event_id: string }>(
      bob,
      'PUT',
      `/rooms/${roomId}/send/m.reaction/${nextTransaction()}`,
      {
        'm.relates_to': { rel_type: 'm.annotation', event_id: replies[0], key: '👍' },
      },
    );
    for (const direction of ['f', 'b']) {
      const ids: string[] = [];
      for (let from = ''; ;) {
        const page = await ok<Page>(
          alice,
          'GET',
          `${v1}/rooms/${roomId}/relations/${one}/m.thread?limit=3&dir=${direction}${from}`,
        );
        ids.push(...page.chunk.map((event) => event.event_id));
        if (page.next_batch === undefined) break;
        from = `&from=${page.next_batch}`;
      }
      if (direction === 'b') ids.reverse();
      expect(ids.slice(0, 7)).toEqual(replies);
      expect(ids.length).toBe(8);
    }
    const deep = await ok<Page>(alice, 'GET', `${v1}/rooms/${roomId}/relations/${one}?recurse=true&limit=50`);
    expect(deep.chunk.map((event) => event.event_id)).toContain(reaction.event_id);
    const flat = await ok<Page>(alice, 'GET', `${v1}/rooms/${roomId}/relations/${one}?limit=50`);
    expect(flat.chunk.map((event) => event.event_id)).not.toContain(reaction.event_id);
    const shallow = await ok<Page>(alice, 'GET', `${v1}/rooms/${roomId}/relations/${one}?recurse=false&limit=50`);
    expect(shallow.chunk.map((event) => event.event_id)).toEqual(flat.chunk.map((event) => event.event_id));
    // Told to whoever says something of it, and to nobody else.
    expect(deep).toHaveProperty('recursion_depth', 3);
    expect(shallow).toHaveProperty('recursion_depth', 1);
    expect(flat).not.toHaveProperty('recursion_depth');
    expect((await ok<Page>(alice, 'GET', `${v1}/rooms/${roomId}/relations/${one}/m.thread/m.sticker`)).chunk).toEqual(
      [],
    );

    const listed: string[] = [];
    for (let from = ''; ;) {
      const page = await ok<Page>(bob, 'GET', `${v1}/rooms/${roomId}/threads?limit=1${from}`);
      listed.push(...page.chunk.map((event) => event.event_id));
      if (page.next_batch === undefined) break;
      from = `&from=${page.next_batch}`;
    }
    expect(listed).toEqual([one, three, two]);
    const mine = await ok<Page>(bob, 'GET', `${v1}/rooms/${roomId}/threads?include=participated`);
    expect(mine.chunk.map((event) => event.event_id)).toEqual([one, three]);
    expect(mine.chunk[0]?.unsigned?.['m.relations']).toMatchObject({
      'm.thread': { count: 8, current_user_participated: true, latest_event: { content: { body: 'to one again' } } },
    });
  });

  it('finds rooms of the directory whichever case a term has, also of letters that English does not have', async () => {
    const named = { preset: 'public_chat', visibility: 'public', name: 'Übungsraum' };
    const room = await createRoom(alice, named);
    for (const term of ['übungsraum', 'ÜBUNGSRAUM', 'Übungsraum', 'bungs']) {
      const body = { filter: { generic_search_term: term } };
      expect((await ok<Listed>(bob, 'POST', '/publicRooms', body)).chunk.map(({ room_id }) => room_id)).toEqual([room]);
    }
  });

  it('lists rooms and spaces, page by page', async () => {
    const names = ['Ottersworth one', 'Ottersworth two', 'Ottersworth three', 'Ottersworth four'];
    const rooms: string[] = [];
    for (const name of names)
      rooms.push(await createRoom(alice, { preset: 'public_chat', visibility: 'public', name }));
    const hidden = await createRoom(alice, { name: 'Ottersworth hidden' });
    const space = await createRoom(alice, {
      preset: 'public_chat',
      visibility: 'public',
      name: 'Ottersworth space',
      creation_content: { type: 'm.space' },
    });
    const list = (body: object): Promise<Listed> => ok(bob, 'POST', '/publicRooms', body);
    const all = await list({ filter: { generic_search_term: 'OTTERSWORTH' } });
    expect(all.chunk.map((room) => room.name).sort()).toEqual([...names, 'Ottersworth space'].sort());
    const plain = await list({ filter: { generic_search_term: 'ottersworth', room_types: [null] } });
    expect(plain.chunk.length).toBe(4);
    expect(
      (await list({ filter: { generic_search_term: 'ottersworth', room_types: ['m.space'] } })).chunk.map(
        (room) => room.room_id,
      ),
    ).toEqual([space]);
    const seen: string[] = [];
    let page = await list({ limit: 2, filter: { generic_search_term: 'ottersworth' } });
    const firstPage = page.chunk.map((room) => room.room_id);
    for (;;) {
      seen.push(...page.chunk.map((room) => room.room_id));
      if (page.next_batch === undefined) break;
      page = await list({ limit: 2, since: page.next_batch, filter: { generic_search_term: 'ottersworth' } });
    }
    expect(seen).toEqual(all.chunk.map((room) => room.room_id));
    while (page.prev_batch !== undefined) {
      page = await list({ limit: 2, since: page.prev_batch, filter: { generic_search_term: 'ottersworth' } });
    }
    expect(page.chunk.map((room) => room.room_id)).toEqual(firstPage);
    await ok(alice, 'PUT', `/directory/list/room/${rooms[0]}`, { visibility: 'private' });
    expect((await list({ filter: { generic_search_term: 'ottersworth' } })).chunk.length).toBe(4);

    for (const [index, child] of [...rooms, hidden].entries()) {
      await setState(
        alice,
        space,
        'm.space.child',
        { via: ['rookery.test'], order: `${index}`, suggested: index < 2 },
        child,
      );
    }
    const walk = async (user: TestUser, query: string): Promise<string[]> => {
      const found: string[] = [];
      for (let from = ''; ;) {
        const { rooms: some, next_batch: next } = await ok<{ rooms: { room_id: string }[]; next_batch?: string }>(
          user,
          'GET',
          `${v1}/rooms/${space}/hierarchy?limit=2${query}${from}`,
        );
        found.push(...some.map((room) => room.room_id));
        if (next === undefined) return found;
        from = `&from=${next}`;
      }
    };
    expect(await walk(bob, '')).toEqual([space, ...rooms]);
    expect(await walk(alice, '')).toEqual([space, ...rooms, hidden]);
    expect(await walk(bob, '&suggested_only=true')).toEqual([space, rooms[0], rooms[1]]);
    expect(await walk(bob, '&max_depth=0')).toEqual([space]);
  });

  it('upgrades a room, and everything moves along', async () => {
    const roomId = await createRoom(alice, {
      preset: 'public_chat',
      visibility: 'public',
      name: 'Old',
      room_version: '10',
      room_alias_name: 'old',
    });
    await join(bob, roomId);
    await act(alice, 'ban', roomId, carol);
    await setState(alice, roomId, 'm.room.topic', { topic: 'the topic' });
    const last = await say(bob, roomId, 'last words');
    const { replacement_room: next } = await ok<{ replacement_room: string }>(
      alice,
      'POST',
      `/rooms/${roomId}/upgrade`,
      { new_version: '12' },
    );
    expect(await state(bob, roomId, 'm.room.tombstone')).toMatchObject({ replacement_room: next });
    expect(
      outcome(
        await bob.request('PUT', `/rooms/${roomId}/send/m.room.message/${nextTransaction()}`, {
          msgtype: 'm.text',
          body: 'x',
        }),
      ),
    ).toBe('403 M_FORBIDDEN');
    await join(bob, next);
    expect(await state(bob, next, 'm.room.create')).toMatchObject({
      room_version: '12',
      predecessor: { room_id: roomId },
    });
    expect(await state(bob, next, 'm.room.name')).toEqual({ name: 'Old' });
    expect(await state(bob, next, 'm.room.topic')).toMatchObject({ topic: 'the topic' });
    expect(await state(alice, next, 'm.room.member', carol.userId)).toMatchObject({ membership: 'ban' });
    expect(await ok(bob, 'GET', `/directory/room/${id('#old:rookery.test')}`)).toMatchObject({ room_id: next });
    expect(await ok(bob, 'GET', `/directory/list/room/${next}`)).toEqual({ visibility: 'public' });
    expect(await ok(bob, 'GET', `/directory/list/room/${roomId}`)).toEqual({ visibility: 'private' });
    expect(outcome(await bob.request('GET', `/rooms/${roomId}/event/${last}`))).toBe('200');
  });

  it('upgrades a space with more rooms in it than a new one can be given, without those that were taken out', async () => {
    const childOf = (n: number): string => `!child${n}:rookery.test`;
    const type = 'm.space.child';
    const content = { via: ['rookery.test'] };
    const space = await createRoom(alice, {
      room_version: '11',
      creation_content: { type: 'm.space' },
      initial_state: Array.from({ length: 1_000 }, (_, n) => ({ type, state_key: childOf(n), content })),
    });
    for (let n = 1_000; n < 1_020; n++) await setState(alice, space, type, content, childOf(n));
    await setState(alice, space, type, {}, childOf(7));
    const path = `/rooms/${space}/upgrade`;
    const { replacement_room: next } = await ok<{ replacement_room: string }>(alice, 'POST', path, {
      new_version: '12',
    });
    const children = (await ok<WireEvent[]>(alice, 'GET', `/rooms/${next}/state`)).filter((each) => each.type === type);
    expect(children).toHaveLength(1_019);
    expect(children.map((each) => each.state_key)).not.toContain(childOf(7));
  });

  it.each(['11', '12'])(
    'leaves everybody the power they had when a room is upgraded to version %s',
    async (version) => {
      const roomId = await createRoom(alice, {
        preset: 'public_chat',
        room_version: '9',
        power_level_content_override: {
          users: { [alice.userId]: '100', [bob.userId]: 50 },
          events: { 'm.room.tombstone': 50 },
          kick: '60',
        },
      });
      await join(bob, roomId);
      const path = `/rooms/${roomId}/upgrade`;
      const { replacement_room: next } = await ok<{ replacement_room: string }>(bob, 'POST', path, {
        new_version: version,
      });
      const users = { [alice.userId]: 100, ...(version === '11' && { [bob.userId]: 50 }) };
      expect(await state(bob, next, 'm.room.power_levels')).toMatchObject({ users, kick: 60 });
      expect((await state(bob, next, 'm.room.power_levels'))['users']).toEqual(users);
      await join(alice, next);
      const kick = await bob.request('POST', `/rooms/${next}/kick`, { user_id: alice.userId });
      expect(outcome(kick)).toBe(version === '11' ? '403 M_FORBIDDEN' : '200');
    },
  );

  it('tells members as of now and of then', async () => {
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    const { end } = await ok<Page>(alice, 'GET', `/rooms/${roomId}/messages?dir=f&limit=100`);
    const { next_batch: then } = await ok<{ next_batch: string }>(alice, 'GET', '/sync');
    await join(bob, roomId);
    await join(carol, roomId);
    await leave(carol, roomId);
    const members = async (query: string): Promise<string[]> => {
      const { chunk } = await ok<Page>(alice, 'GET', `/rooms/${roomId}/members${query}`);
      return chunk.map((event) => `${event.state_key} ${String(event.content['membership'])}`).sort();
    };
    expect(await members(`?at=${end}`)).toEqual([`${alice.userId} join`]);
    expect(await members('')).toEqual([`${alice.userId} join`, `${bob.userId} join`, `${carol.userId} leave`]);
    expect(await members('?membership=join')).toEqual([`${alice.userId} join`, `${bob.userId} join`]);
    expect(await members('?not_membership=join')).toEqual([`${carol.userId} leave`]);
    expect(await members(`?at=${then}`)).toEqual([`${alice.userId} join`]);
  });
});
