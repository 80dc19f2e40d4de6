import { type TestHomeserver, type TestUser } from '@rookery/testing';
import {
  act,
  createRoom,
  databases,
  join,
  leave,
  ok,
  outcome,
  say,
  setState,
  startHomeserver,
  type WireEvent,
} from './rooms-client.js';

/**
 * What becomes of each reader while five messages are sent; alice, who sends them, is in the room all the time. A reader
 * who joins later on was invited just before.
 */
const readers = {
  member: ['join', 'join', 'join', 'join', 'join'],
  left: ['none', 'invite', 'join', 'leave', 'leave'],
  banned: ['none', 'invite', 'join', 'ban', 'ban'],
  exiled: ['none', 'invite', 'join', 'leave', 'ban'],
  returned: ['none', 'invite', 'join', 'leave', 'join'],
  late: ['none', 'none', 'none', 'none', 'join'],
  invited: ['none', 'invite', 'invite', 'invite', 'invite'],
  uninvited: ['none', 'invite', 'leave', 'leave', 'leave'],
  shunned: ['none', 'none', 'ban', 'ban', 'ban'],
  never: ['none', 'none', 'none', 'none', 'none'],
} as const;
type Reader = keyof typeof readers;
const readerNames = Object.keys(readers) as Reader[];

/** Which messages each reader may see. @spec client-server-api#room-history-visibility */
const visible: Readonly<Record<string, Readonly<Record<Reader, string>>>> = {
  world_readable: {
    member: '01234',
    left: '01234',
    banned: '01234',
    exiled: '01234',
    returned: '01234',
    late: '01234',
    invited: '01234',
    uninvited: '01234',
    shunned: '01234',
    never: '01234',
  },
  shared: {
    member: '01234',
    left: '012',
    banned: '012',
    exiled: '012',
    returned: '01234',
    late: '01234',
    invited: '',
    uninvited: '',
    shunned: '',
    never: '',
  },
  invited: {
    member: '01234',
    left: '12',
    banned: '12',
    exiled: '12',
    returned: '124',
    late: '4',
    invited: '1234',
    uninvited: '1',
    shunned: '',
    never: '',
  },
  joined: {
    member: '01234',
    left: '2',
    banned: '2',
    exiled: '2',
    returned: '24',
    late: '4',
    invited: '',
    uninvited: '',
    shunned: '',
    never: '',
  },
};

/** How much of the room a reader may list, beside what single events say. */
type Access = 'current' | 'past' | 'none';
const accessOf = (visibility: string, reader: Reader): Access => {
  if (visibility === 'world_readable' || readers[reader].at(-1) === 'join') return 'current';
  return reader === 'left' || reader === 'banned' || reader === 'exiled' ? 'past' : 'none';
};
const isJoined = (reader: Reader): boolean => readers[reader].at(-1) === 'join';

interface Story {
  readonly roomId: string;
  /** Ids of the messages. */
  readonly ids: readonly string[];
  /** Message number by event id; an event that belongs to a message has its number. */
  readonly numbers: ReadonlyMap<string, number>;
  readonly times: readonly number[];
  readonly memberEvents: string;
}

interface Relations {
  readonly 'm.replace'?: WireEvent;
  readonly 'm.reference'?: { readonly chunk: { readonly event_id: string }[] };
  readonly 'm.thread'?: { readonly latest_event: WireEvent };
}

interface SyncRoom {
  readonly timeline: { readonly events: WireEvent[] };
  readonly state_after?: { readonly events: WireEvent[] };
}

interface Sync {
  readonly rooms?: {
    readonly join?: Record<string, SyncRoom>;
    readonly leave?: Record<string, SyncRoom>;
    readonly invite?: Record<string, unknown>;
  };
}

interface Search {
  readonly search_categories?: {
    readonly room_events: {
      readonly results: {
        readonly result: WireEvent;
        readonly context: Record<'events_before' | 'events_after', WireEvent[]>;
      }[];
    };
  };
}

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));
const v1 = '/_matrix/client/v1';

describe.each(databases)('history visibility (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  const users = {} as Record<Reader, TestUser>;

  beforeAll(async () => {
    homeserver = await startHomeserver(database, { rc_reports: { per_second: 1000, burst_count: 1000 } });
    alice = await homeserver.registerUser('alice');
    for (const reader of readerNames) users[reader] = await homeserver.registerUser(reader);
  });
  afterAll(() => homeserver?.stop());

  const moveTo = async (roomId: string, reader: Reader, step: number): Promise<void> => {
    const was = step === 0 ? 'none' : readers[reader][step - 1];
    const is = readers[reader][step];
    const user = users[reader];
    if (was === is) return;
    if (is === 'invite' || (is === 'join' && was !== 'invite')) await act(alice, 'invite', roomId, user);
    if (is === 'join') await join(user, roomId);
    if (is === 'ban') await act(alice, 'ban', roomId, user);
    if (is === 'leave' && was === 'join') await leave(user, roomId);
    if (is === 'leave' && was === 'invite') await act(alice, 'kick', roomId, user);
  };

  /** A room in which all of it has happened. */
  const tell = async (visibility: string): Promise<Story> => {
    const content = { history_visibility: visibility };
    const roomId = await createRoom(alice, {
      name: 'name 0',
      initial_state: [{ type: 'm.room.history_visibility', content }],
    });
    const ids: string[] = [];
    const times: number[] = [];
    const numbers = new Map<string, number>();
    const keep = (eventId: string, step: number): string => {
      numbers.set(eventId, step);
      return eventId;
    };
    for (let step = 0; step < 5; step++) {
      for (const reader of readerNames) await moveTo(roomId, reader, step);
      await setState(alice, roomId, 'm.room.name', { name: `name ${step}` });
      // Times must differ from message to message.
      await pause();
      const id = keep(await say(alice, roomId, `message ${step}`), step);
      ids.push(id);
      times.push((await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${id}`)).origin_server_ts);
      await pause();
      const about = ids[2] ?? id;
      // What is said about the message of step 2, or before it about the message itself.
      keep(
        await say(alice, roomId, `reference ${step}`, { 'm.relates_to': { rel_type: 'm.reference', event_id: about } }),
        step,
      );
      if (step > 2) {
        const edit = { 'm.new_content': { msgtype: 'm.text', body: `edit ${step}` } };
        keep(
          await say(alice, roomId, `* edit ${step}`, {
            ...edit,
            'm.relates_to': { rel_type: 'm.replace', event_id: about },
          }),
          step,
        );
      }
      const root = ids[0] ?? id;
      keep(
        await say(alice, roomId, `reply ${step}`, { 'm.relates_to': { rel_type: 'm.thread', event_id: root } }),
        step,
      );
    }
    const members = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/members`);
    return { roomId, ids, numbers, times, memberEvents: members.chunk.map((event) => event.event_id).join() };
  };

  /** The numbers of the plain messages among events, in order, and a complaint about anything hidden beside them. */
  const told = (story: Story, wanted: string, events: readonly WireEvent[] = []): string => {
    const plain: string[] = [];
    const check = (event: WireEvent): void => {
      const number = story.numbers.get(event.event_id);
      if (number !== undefined && !wanted.includes(String(number)))
        plain.push(`hidden ${String(event.content['body'])}`);
      const relations = event.unsigned?.['m.relations'] as Relations | undefined;
      if (relations?.['m.replace']) check(relations['m.replace']);
      if (relations?.['m.thread']) check(relations['m.thread'].latest_event);
      for (const { event_id } of relations?.['m.reference']?.chunk ?? []) {
        const which = story.numbers.get(event_id);
        if (which !== undefined && !wanted.includes(String(which))) plain.push(`hidden reference ${which}`);
      }
    };
    for (const event of events) {
      check(event);
      if (/^message \d$/.test(String(event.content['body']))) plain.push(String(story.numbers.get(event.event_id)));
    }
    return plain.join(' ');
  };
  const spaced = (numbers: string): string => [...numbers].join(' ');
  const reversed = (numbers: string): string => [...numbers].reverse().join(' ');

  describe.each(Object.keys(visible))('%s', (visibility) => {
    let story: Story;
    beforeAll(async () => {
      story = await tell(visibility);
    });

    it.each(readerNames)('shows each message to %s by every way, or by none', async (reader) => {
      const user = users[reader];
      const wanted = visible[visibility]?.[reader] ?? '';
      const access = accessOf(visibility, reader);
      const { roomId, ids } = story;
      const list = (numbers: string): string => (access === 'none' ? '403 M_FORBIDDEN' : numbers);
      const get = <T>(path: string) => user.request<T>('GET', path);
      const all: Record<string, string> = {};
      const expected: Record<string, string> = {};

      for (const [number, id] of ids.entries()) {
        const may = wanted.includes(String(number));
        const single = may ? '200' : '404 M_NOT_FOUND';
        const event = await get<WireEvent>(`/rooms/${roomId}/event/${id}`);
        all[`event ${number}`] = event.status === 200 ? `200 ${told(story, wanted, [event.body])}` : outcome(event);
        expected[`event ${number}`] = may ? `200 ${number}` : single;
        const context = await get<{ events_before: WireEvent[]; events_after: WireEvent[]; state: WireEvent[] }>(
          `/rooms/${roomId}/context/${id}?limit=100`,
        );
        all[`context ${number}`] =
          context.status === 200
            ? `200 ${told(story, wanted, [...context.body.events_before.toReversed(), ...context.body.events_after])}`
            : outcome(context);
        expected[`context ${number}`] = may ? `200 ${spaced(wanted.replace(String(number), ''))}` : single;
        const relations = await get<{ chunk: WireEvent[] }>(`${v1}/rooms/${roomId}/relations/${id}`);
        all[`relations ${number}`] =
          relations.status === 200 ? `200 ${told(story, wanted, relations.body.chunk)}` : outcome(relations);
        expected[`relations ${number}`] = may ? '200 ' : single;
        const report = await user.request('POST', `/rooms/${roomId}/report/${id}`, { reason: 'why not' });
        all[`report ${number}`] = outcome(report);
        // Whoever is not in the room cannot report, whatever can be seen from outside.
        expected[`report ${number}`] = isJoined(reader) ? single : '404 M_NOT_FOUND';
        const byTime = await get<{ event_id: string }>(
          `${v1}/rooms/${roomId}/timestamp_to_event?dir=f&ts=${story.times[number]}`,
        );
        const found = story.numbers.get(byTime.body.event_id);
        all[`time ${number}`] =
          byTime.status === 200 && (found === undefined || wanted.includes(String(found))) ? '200' : outcome(byTime);
        if (access === 'none') expected[`time ${number}`] = '403 M_FORBIDDEN';
        else
          expected[`time ${number}`] = [...wanted].some((each) => Number(each) >= number)
            ? '200'
            : (all[`time ${number}`] ?? '');
      }

      for (const [direction, order] of [
        ['b', reversed(wanted)],
        ['f', spaced(wanted)],
      ] as const) {
        const events: WireEvent[] = [];
        let refused: string | undefined;
        for (let from = ''; ;) {
          const page = await get<{ chunk: WireEvent[]; end?: string }>(
            `/rooms/${roomId}/messages?dir=${direction}&limit=9${from}`,
          );
          if (page.status !== 200) refused = outcome(page);
          events.push(...(page.body.chunk ?? []));
          if (page.body.end === undefined) break;
          from = `&from=${page.body.end}`;
        }
        all[`messages ${direction}`] = refused ?? told(story, wanted, events);
        expected[`messages ${direction}`] = list(order);
      }

      const threads = await get<{ chunk: WireEvent[] }>(`${v1}/rooms/${roomId}/threads`);
      all['threads'] = threads.status === 200 ? told(story, wanted, threads.body.chunk) : outcome(threads);
      expected['threads'] = list(wanted.includes('0') ? '0' : '');

      const filter = { room: { rooms: [roomId], include_leave: true, timeline: { limit: 100 } } };
      const now = readers[reader].at(-1);
      // With the state of before it, a timeline would begin behind hidden changes of what it shows.
      const query = `filter=${encodeURIComponent(JSON.stringify(filter))}&use_state_after=true`;
      const { rooms } = await ok<Sync>(user, 'GET', `/sync?${query}`);
      const room = now === 'join' ? rooms?.join?.[roomId] : rooms?.leave?.[roomId];
      all['sync'] = told(story, wanted, room?.timeline.events);
      if (now === 'join') expected['sync'] = spaced(wanted);
      // What was said after the reader's last move is not told here, whoever may read it otherwise.
      else {
        const moved = readers[reader].findLastIndex((each, step) => each !== (readers[reader][step - 1] ?? 'none'));
        const wasIn = readers[reader].some((each) => each === 'join');
        expected['sync'] = spaced([...wanted].filter((each) => Number(each) < moved).join(''));
        if (!wasIn) expected['sync'] = all['sync'].includes('hidden') ? 'nothing hidden' : all['sync'];
      }

      const criteria = {
        search_term: 'message',
        order_by: 'recent',
        filter: { rooms: [roomId], limit: 100 },
        event_context: { before_limit: 20, after_limit: 20 },
        include_state: access !== 'none',
      };
      const search = await user.request<Search>('POST', '/search', { search_categories: { room_events: criteria } });
      const results = search.body.search_categories?.room_events.results ?? [];
      const hits = told(
        story,
        wanted,
        results.map((each) => each.result),
      );
      const around = results.flatMap(({ context }) => [...context.events_before, ...context.events_after]);
      all['search'] = search.status === 200 ? hits : outcome(search);
      all['search context'] = told(story, wanted, around).includes('hidden') ? 'hidden' : 'fine';
      expected['search context'] = 'fine';
      // Whether rooms are searched that one is not, or no longer, in is for the server to say.
      expected['search'] = isJoined(reader) || hits.includes('hidden') ? reversed(wanted) : hits;

      const names = (events: readonly WireEvent[] | undefined): string =>
        (events ?? [])
          .flatMap((event) => (event.type === 'm.room.name' ? [String(event.content['name'])] : []))
          .at(-1) ?? 'no name';
      const lastName = access === 'current' ? 'name 4' : 'name 2';
      const state = await get<WireEvent[]>(`/rooms/${roomId}/state`);
      all['state'] = state.status === 200 ? names(state.body) : outcome(state);
      expected['state'] = list(lastName);
      const oneState = await get<{ name: string }>(`/rooms/${roomId}/state/m.room.name`);
      all['one state'] = oneState.status === 200 ? oneState.body.name : outcome(oneState);
      expected['one state'] = list(lastName);
      const initial = await get<{ state: WireEvent[]; messages: { chunk: WireEvent[] } }>(
        `/rooms/${roomId}/initialSync?limit=100`,
      );
      all['initialSync'] =
        initial.status === 200
          ? `${names(initial.body.state)} ${told(story, wanted, initial.body.messages.chunk)}`
          : outcome(initial);
      expected['initialSync'] = list(`${lastName} ${spaced(wanted)}`);
      if (room && access !== 'current') {
        // A stranger is told nothing but what was said to an invited one.
        all['state of sync'] = names(room.state_after?.events ?? []);
        expected['state of sync'] = access === 'past' ? 'name 2' : 'no name';
      }

      const members = await get<{ chunk: WireEvent[] }>(`/rooms/${roomId}/members`);
      const lateIsIn = (events: readonly WireEvent[]): string =>
        events.some((event) => event.state_key === users.late.userId) ? 'now' : 'then';
      all['members'] = members.status === 200 ? lateIsIn(members.body.chunk) : outcome(members);
      expected['members'] = list(access === 'current' ? 'now' : 'then');
      const joined = await get(`/rooms/${roomId}/joined_members`);
      all['joined members'] = outcome(joined);
      expected['joined members'] = isJoined(reader) ? '200' : '403 M_FORBIDDEN';

      const mayKnow = visibility === 'world_readable' || isJoined(reader) || reader === 'invited';
      all['summary'] = outcome(await get(`${v1}/room_summary/${roomId}`));
      expected['summary'] = mayKnow ? '200' : '404 M_NOT_FOUND';
      all['hierarchy'] = outcome(await get(`${v1}/rooms/${roomId}/hierarchy`));
      expected['hierarchy'] = mayKnow ? '200' : '403 M_FORBIDDEN';
      all['aliases'] = outcome(await get(`/rooms/${roomId}/aliases`));
      expected['aliases'] = access === 'current' ? '200' : '403 M_FORBIDDEN';

      expect(all).toEqual(expected);
    });
  });

  it('shows a change of the setting to whom it was or becomes open', async () => {
    const roomId = await createRoom(alice, {
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: 'joined' } }],
    });
    const set = (value: string) => setState(alice, roomId, 'm.room.history_visibility', { history_visibility: value });
    const hidden = await say(alice, roomId, 'hidden');
    const opening = await set('world_readable');
    const open = await say(alice, roomId, 'open');
    const closing = await set('joined');
    const closed = await say(alice, roomId, 'closed');
    const see = async (id: string) => outcome(await users.never.request('GET', `/rooms/${roomId}/event/${id}`));
    expect(await Promise.all([hidden, opening, open, closing, closed].map(see))).toEqual([
      '404 M_NOT_FOUND',
      '200',
      '200',
      '200',
      '404 M_NOT_FOUND',
    ]);
    expect(outcome(await users.never.request('GET', `/rooms/${roomId}/messages?dir=b`))).toBe('403 M_FORBIDDEN');
  });

  it('treats an unknown setting, and none, as shared', async () => {
    const roomId = await createRoom(alice);
    await setState(alice, roomId, 'm.room.history_visibility', { history_visibility: 'everyone!' });
    const id = await say(alice, roomId, 'before');
    expect(outcome(await users.never.request('GET', `/rooms/${roomId}/event/${id}`))).toBe('404 M_NOT_FOUND');
    await act(alice, 'invite', roomId, users.never);
    expect(outcome(await users.never.request('GET', `/rooms/${roomId}/event/${id}`))).toBe('404 M_NOT_FOUND');
    await join(users.never, roomId);
    expect(outcome(await users.never.request('GET', `/rooms/${roomId}/event/${id}`))).toBe('200');
  });

  it('does not tell through another room what this one hides', async () => {
    const hidden = await createRoom(alice);
    const open = await createRoom(alice, {
      preset: 'public_chat',
      initial_state: [{ type: 'm.room.history_visibility', content: { history_visibility: 'world_readable' } }],
    });
    const id = await say(alice, hidden, 'secret');
    const here = await say(alice, open, 'open');
    await say(alice, open, 'about it', { 'm.relates_to': { rel_type: 'm.thread', event_id: id } });
    const reader = users.shunned;
    for (const path of [
      `/rooms/${open}/event/${id}`,
      `/rooms/${open}/context/${id}`,
      `${v1}/rooms/${open}/relations/${id}`,
    ]) {
      expect({ path, outcome: outcome(await reader.request('GET', path)) }).toEqual({
        path,
        outcome: '404 M_NOT_FOUND',
      });
    }
    expect(outcome(await reader.request('POST', `/rooms/${open}/report/${id}`, {}))).toBe('404 M_NOT_FOUND');
    const threads = await ok<{ chunk: WireEvent[] }>(reader, 'GET', `${v1}/rooms/${open}/threads`);
    expect(threads.chunk).toEqual([]);
    expect(outcome(await reader.request('GET', `/rooms/${open}/event/${here}`))).toBe('200');
  });

  it('tells nothing of a room with the event by which somebody knocked, was invited or was kept out', async () => {
    const [knocking, invited, withdrawn, banned] = await Promise.all(
      ['knocking', 'invited', 'withdrawn', 'banned'].map((name) => homeserver.registerUser(`only-${name}`)),
    );
    const roomId = await createRoom(alice, {
      ...{ preset: 'private_chat', topic: 'secret', room_version: '11' },
      initial_state: [{ type: 'm.room.join_rules', content: { join_rule: 'knock' } }],
    });
    const member = async (by: TestUser, of: TestUser, membership: string): Promise<string> => {
      const path = `/rooms/${roomId}/state/m.room.member/${of.userId}`;
      return (await ok<{ event_id: string }>(by, 'PUT', path, { membership })).event_id;
    };
    const own: [TestUser, string][] = [
      [knocking!, await member(knocking!, knocking!, 'knock')],
      [invited!, await member(alice, invited!, 'invite')],
      [banned!, await member(alice, banned!, 'ban')],
    ];
    await member(alice, withdrawn!, 'invite');
    own.push([withdrawn!, await member(alice, withdrawn!, 'leave')]);
    for (const [user, id] of own) {
      expect(outcome(await user.request('GET', `/rooms/${roomId}/state`))).toBe('403 M_FORBIDDEN');
      const context = await user.request<Record<'state' | 'events_before' | 'events_after', WireEvent[]>>(
        ...(['GET', `/rooms/${roomId}/context/${id}?limit=20`] as const),
      );
      if (context.status !== 200) continue;
      const { state, events_before: before, events_after: after } = context.body;
      expect(state).toEqual([]);
      for (const event of [...before, ...after]) expect(event).toMatchObject({ state_key: user.userId });
    }
    const context = await ok<{ state: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/context/${own[0]![1]}`);
    expect(context.state.length).toBeGreaterThan(5);
  });
});
