import { InvalidEventError, type RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import type { MissingEventsSource } from '@rookery/rooms';
import { stateKeyOf } from '@rookery/state-res';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { act, createRoom, databases, ok, outcome, say, setState, type WireEvent } from '../rooms/rooms-client.js';
import { applied, type RemoteDraft, remoteName, RemoteServer, type State } from './remote-server.js';
import { type RoomsInside, startWithInside } from './rooms-inside.js';

const zoe = `@zoe:${remoteName}`;
const yan = `@yan:${remoteName}`;
const v1 = '/_matrix/client/v1';

/** A room of alice's in which users of the remote server are. */
interface SharedRoom {
  readonly roomId: string;
  readonly server: RemoteServer;
  readonly state: State;
  readonly head: RoomEvent;
}

interface Sync {
  readonly next_batch: string;
  readonly rooms?: { readonly join?: Record<string, { readonly timeline: { readonly events: WireEvent[] } }> };
}

const wide = { per_second: 1000, burst_count: 1000 };
const settings = { room_list_publication_rules: [{ action: 'allow' }], rc_reports: wide };

const nobodyHelps: MissingEventsSource = {
  missingEvents: () => Promise.resolve([]),
  events: () => Promise.resolve([]),
  stateBefore: () => Promise.resolve(undefined),
};

describe.each(databases)('poison from other servers (%s)', (database) => {
  let homeserver: TestHomeserver;
  let inside: RoomsInside;
  let alice: TestUser;

  beforeAll(async () => {
    // What others say need not be as the specification wants it: nothing is held against its data here.
    ({ homeserver, inside } = await startWithInside(() => createTestHomeserver({ database, settings })));
    alice = await homeserver.registerUser('alice');
  });
  beforeEach(() => inside.useMissingEvents(nobodyHelps));
  afterAll(() => homeserver?.stop());

  const stateOf = async (roomId: string): Promise<State> => {
    const state = await ok<WireEvent[]>(alice, 'GET', `/rooms/${roomId}/state`);
    return applied(new Map(), ...(await inside.events(state.map((event) => event.event_id))));
  };
  const receive = async (event: RoomEvent): Promise<string> =>
    (await inside.inbound.receive(remoteName, event.roomId, { event })).kind;

  const shared = async (version: string, more: object = {}): Promise<SharedRoom> => {
    const roomId = await createRoom(alice, { preset: 'public_chat', room_version: version, ...more });
    const server = new RemoteServer(version, roomId);
    let state = await stateOf(roomId);
    let [head] = await inside.heads(roomId);
    for (const userId of [zoe, yan]) {
      const draft = { type: 'm.room.member', stateKey: userId, sender: userId, content: { membership: 'join' } };
      const joined = server.make(draft, head ? [head] : [], state);
      expect(await receive(joined)).toBe('accepted');
      state = applied(state, joined);
      head = joined;
    }
    if (!head) throw new Error('a room without a head');
    return { roomId, server, state, head };
  };

  const syncOf = (user: TestUser, roomId: string, since?: string): Promise<Sync> => {
    const filter = encodeURIComponent(JSON.stringify({ room: { rooms: [roomId], timeline: { limit: 100 } } }));
    return ok(user, 'GET', `/sync?filter=${filter}${since === undefined ? '' : `&since=${since}`}`);
  };

  /** Everything that a client asks about a room works, and a message goes through; ids of events that were seen. */
  const stillWorks = async (roomId: string, since: string): Promise<Set<string>> => {
    const sent = await say(alice, roomId, 'still here');
    const seen = new Set<string>();
    const keep = (events: readonly WireEvent[] = []): void => {
      for (const event of events) seen.add(event.event_id);
    };
    keep((await syncOf(alice, roomId, since)).rooms?.join?.[roomId]?.timeline.events);
    expect(seen).toContain(sent);
    keep((await syncOf(alice, roomId)).rooms?.join?.[roomId]?.timeline.events);
    for (const direction of ['b', 'f']) {
      keep(
        (await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=${direction}&limit=500`)).chunk,
      );
    }
    const context = await ok<{ events_before: WireEvent[]; state: WireEvent[] }>(
      alice,
      'GET',
      `/rooms/${roomId}/context/${sent}?limit=100`,
    );
    keep(context.events_before);
    keep(context.state);
    keep(await ok<WireEvent[]>(alice, 'GET', `/rooms/${roomId}/state`));
    keep((await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/members`)).chunk);
    for (const path of [
      `/rooms/${roomId}/joined_members`,
      `${v1}/rooms/${roomId}/hierarchy`,
      `${v1}/room_summary/${roomId}`,
      `${v1}/rooms/${roomId}/threads`,
      '/publicRooms',
      `/rooms/${roomId}/aliases`,
    ]) {
      await ok(alice, 'GET', path);
    }
    return seen;
  };

  it.each(['1', '10', '12'])('refuses what is no event before it comes near the room (version %s)', async (version) => {
    const { roomId, server, state, head } = await shared(version);
    const good = server.make({ type: 'm.room.message', sender: zoe, content: { body: 'x' } }, [head], state);
    const { next_batch: since } = await syncOf(alice, roomId);
    const strict = server.rules.strictCanonicalJson;
    const many = (count: number): unknown[] =>
      Array.from({ length: count }, (_, n) => (version === '1' ? [`$${n}:${remoteName}`, { sha256: 'x' }] : `$${n}`));
    const changes: JsonObject[] = [
      ...[
        'type',
        'sender',
        'content',
        'hashes',
        'signatures',
        'prev_events',
        'auth_events',
        'depth',
        'origin_server_ts',
      ].flatMap((name) =>
        [null, 5.5, true, [[]], 'text']
          .filter((value) => !(name === 'type' && value === 'text'))
          .map((value) => ({ [name]: value })),
      ),
      { room_id: '!another:remote.test' },
      { room_id: 5 },
      { sender: '@' },
      { sender: 'zoe' },
      { state_key: 5 },
      { state_key: null },
      { state_key: 'a\0b' },
      { type: 'a\0b' },
      { type: 't'.repeat(256) },
      { sender: `@${'z'.repeat(256)}:${remoteName}` },
      { state_key: 'ü'.repeat(128) },
      { prev_events: many(21) },
      { auth_events: many(11) },
      { prev_events: ['$'.padEnd(300, 'x')] },
      { prev_events: [5] },
      { auth_events: [{}] },
      { depth: -1 },
      { content: { body: 'x'.repeat(66_000) } },
      { content: Object.fromEntries(Array.from({ length: 9_000 }, (_, n) => [`key${n}`, n])) },
      ...(version === '1' ? [{ event_id: 5 }, { event_id: '$nodomain' }, { event_id: `$${'x'.repeat(256)}:a` }] : []),
      ...(strict ? [{ content: { n: 2 ** 53 } }, { depth: 2 ** 53 }] : []),
    ];
    const nested = '['.repeat(20_000) + ']'.repeat(20_000);
    const texts = [
      ...changes.map((change) => server.text(good, change)),
      ...[
        'type',
        'sender',
        'room_id',
        'content',
        'hashes',
        'signatures',
        'prev_events',
        'auth_events',
        'depth',
        'origin_server_ts',
      ].map((name) => server.text(good, {}, [name])),
      '',
      'null',
      '[]',
      '5',
      '"event"',
      '{',
      `${server.text(good, {})}}`,
      server.text(good, { content: { n: 'NESTED' } }).replace('"NESTED"', nested),
      server.text(good, { content: { n: 'NUMBER' } }).replace('"NUMBER"', '1e999'),
      server.text(good, { content: { n: 'HALF' } }).replace('HALF', '\\ud800'),
      ...(strict ? ['1.0', '1e3', '-0', '9007199254740993'] : []).map((number) =>
        server.text(good, { content: { n: 'NUMBER' } }).replace('"NUMBER"', number),
      ),
      'x'.repeat(600_000),
    ];
    const taken: string[] = [];
    for (const text of texts) {
      try {
        taken.push(`${server.parse(text).type}: ${text.slice(0, 300)}`);
      } catch (error) {
        if (!(error instanceof InvalidEventError)) taken.push(`${String(error)}: ${text.slice(0, 300)}`);
      }
    }
    expect(taken).toEqual([]);
    expect(await receive(server.parse(server.text(good, {})))).toBe('accepted');
    expect(await stillWorks(roomId, since)).toContain(good.eventId);
  });

  it.each(['10', '12'])('lives with whatever an event may say (version %s)', async (version) => {
    const { roomId, server, ...room } = await shared(version, {
      visibility: 'public',
      power_level_content_override: { state_default: 0, events: {}, invite: 0 },
    });
    let { state, head } = room;
    const values: unknown[] = [
      null,
      5,
      -1,
      true,
      '',
      '\0',
      'a\0b',
      [],
      ['a', 5, null],
      {},
      { a: { b: [] } },
      'ü'.repeat(15_000),
    ];
    const keys: Readonly<Record<string, readonly string[]>> = {
      'm.room.name': ['name'],
      'm.room.topic': ['topic', 'm.topic'],
      'm.room.avatar': ['url', 'info'],
      'm.room.canonical_alias': ['alias', 'alt_aliases'],
      'm.room.guest_access': ['guest_access'],
      'm.room.history_visibility': ['history_visibility'],
      'm.room.encryption': ['algorithm'],
      'm.room.tombstone': ['replacement_room', 'body'],
      'm.room.retention': ['max_lifetime', 'min_lifetime'],
      'm.room.server_acl': ['allow', 'deny', 'allow_ip_literals'],
      'm.room.pinned_events': ['pinned'],
      'm.space.child': ['via', 'order', 'suggested'],
      'm.space.parent': ['via', 'canonical'],
      'm.room.third_party_invite': ['display_name', 'public_keys'],
      'org.example.\u2028': ['__proto__', 'constructor', 'toJSON'],
    };
    const drafts: RemoteDraft[] = [];
    for (const [type, names] of Object.entries(keys)) {
      const stateKey = type === 'm.space.child' || type === 'm.space.parent' ? '!a:b' : '';
      for (const name of names) {
        for (const value of values)
          drafts.push({
            type,
            stateKey,
            sender: zoe,
            content: JSON.parse(JSON.stringify({ [name]: value })) as JsonObject,
          });
      }
    }
    for (const value of values) {
      drafts.push({
        type: 'm.room.member',
        stateKey: zoe,
        sender: zoe,
        content: { membership: 'join', displayname: value, avatar_url: value },
      });
      for (const name of ['m.relates_to', 'm.new_content', 'url', 'body', 'msgtype', 'redacts', 'm.mentions']) {
        drafts.push({ type: 'm.room.message', sender: zoe, content: { [name]: value } });
      }
      for (const name of ['event_id', 'rel_type', 'key', 'm.in_reply_to']) {
        const relatesTo = { rel_type: 'm.annotation', event_id: head.eventId, key: 'k', [name]: value };
        drafts.push({ type: 'm.reaction', sender: zoe, content: { 'm.relates_to': relatesTo } });
      }
    }
    // Relations to itself's kin, to nothing, to another room, and redactions of everything and nothing.
    const elsewhere = await say(alice, await createRoom(alice), 'elsewhere');
    for (const target of [head.eventId, elsewhere, '$nothing', '$x:y']) {
      for (const type of ['m.thread', 'm.replace', 'm.reference', 'm.annotation', 'org.example']) {
        drafts.push({
          type: 'm.room.message',
          sender: zoe,
          content: { 'm.relates_to': { rel_type: type, event_id: target } },
        });
      }
      drafts.push({ type: 'm.room.redaction', sender: zoe, redacts: target, content: {} });
    }
    drafts.push({ type: 'm.room.redaction', sender: zoe, content: {} });
    drafts.push({ type: 'm.room.message', stateKey: 'x'.repeat(255), sender: zoe });
    drafts.push({ type: '', sender: zoe }, { type: ' ', stateKey: '', sender: zoe });
    drafts.push({ type: 'm.room.message', sender: zoe, originServerTs: -(2 ** 53) + 1 });
    drafts.push({ type: 'm.room.message', sender: zoe, originServerTs: 2 ** 53 - 1 });
    drafts.push(
      { type: 'm.room.message', sender: zoe, depth: 0 },
      { type: 'm.room.message', sender: zoe, depth: 2 ** 53 - 1 },
    );
    const { next_batch: since } = await syncOf(alice, roomId);
    const refused: string[] = [];
    for (const draft of drafts) {
      const event = server.parse(server.text(server.make(draft, [head], state), {}));
      const verdict = await receive(event);
      if (verdict !== 'accepted')
        refused.push(`${draft.type} ${JSON.stringify(draft.content)?.slice(0, 60)}: ${verdict}`);
      else {
        state = applied(state, event);
        head = event;
      }
    }
    expect(refused).toEqual([]);
    await stillWorks(roomId, since);
    // Everything can be read one by one, too, and the server comes up again with it.
    await setState(alice, roomId, 'm.room.name', { name: 'mine again' });
    expect((await ok<{ name?: string }>(alice, 'GET', `${v1}/room_summary/${roomId}`)).name).toBe('mine again');
    for (const event of [...server.known.values()].slice(-60)) {
      expect(outcome(await alice.request('GET', `/rooms/${roomId}/event/${encodeURIComponent(event.eventId)}`))).toBe(
        '200',
      );
    }
  });

  it('keeps oversized state apart from what does not touch it', async () => {
    const { roomId, server, ...room } = await shared('12', { power_level_content_override: { state_default: 0 } });
    let { state, head } = room;
    const { next_batch: since } = await syncOf(alice, roomId);
    for (let n = 0; n < 60; n++) {
      const content = { [`k${n}`]: 'x'.repeat(60_000) };
      const event = server.make({ type: 'org.example.large', stateKey: `${n}`, sender: zoe, content }, [head], state);
      expect(await receive(event)).toBe('accepted');
      state = applied(state, event);
      head = event;
    }
    await stillWorks(roomId, since);
    const startedMs = performance.now();
    for (let n = 0; n < 20; n++) await say(alice, roomId, `line ${n}`);
    // A message does not pay for the room's state; the limit is wide, for machines that have other things to do.
    expect(performance.now() - startedMs).toBeLessThan(4_000);
  });

  it('never shows what was rejected or soft-failed, by whichever way', async () => {
    const { roomId, server, state, head } = await shared('12');
    const target = await say(alice, roomId, 'target');
    const [tip] = await inside.heads(roomId);
    if (!tip) throw new Error('a room without a head');
    const about = { 'm.relates_to': { rel_type: 'm.thread', event_id: target } };
    const levels = { users: { [zoe]: 100 } };
    const nobody = `@nobody:${remoteName}`;
    const { next_batch: since } = await syncOf(alice, roomId);
    const rejected = [
      server.make({ type: 'm.room.power_levels', stateKey: '', sender: zoe, content: levels }, [tip], state),
      server.make({ type: 'm.room.name', stateKey: '', sender: zoe, content: { name: 'stolen' } }, [tip], state),
      server.make({ type: 'm.room.message', sender: nobody, content: { body: 'hidden', ...about } }, [tip], state),
      server.make({ type: 'm.room.member', stateKey: yan, sender: zoe, content: { membership: 'ban' } }, [tip], state),
      server.make({ type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'king' } }, [tip], state),
      server.make({ type: 'm.room.create', stateKey: '', sender: zoe, content: { room_version: '12' } }, [tip], state),
      server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'hidden', ...about }, auth: [] },
        [tip],
        state,
      ),
      server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'hidden' }, auth: [tip.eventId] },
        [tip],
        state,
      ),
    ];
    for (const event of rejected)
      expect({ type: event.type, verdict: await receive(event) }).toEqual({ type: event.type, verdict: 'rejected' });
    // Whatever builds on one of them may stand, but the room's state does not follow.
    const onTop = server.make(
      { type: 'm.room.message', sender: yan, content: { body: 'on top' } },
      rejected.slice(0, 2),
      state,
    );
    expect(await receive(onTop)).toBe('accepted');
    const relying = server.make(
      {
        type: 'm.room.message',
        sender: zoe,
        content: { body: 'hidden' },
        auth: [...head.authEventIds, rejected[0]?.eventId ?? ''],
      },
      [onTop],
      state,
    );
    expect(await receive(relying)).toBe('rejected');
    await ok(alice, 'POST', `/rooms/${roomId}/ban`, { user_id: zoe });
    const late = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'hidden', ...about } },
      [onTop],
      state,
    );
    const lateEdit = server.make(
      {
        type: 'm.reaction',
        sender: zoe,
        content: { 'm.relates_to': { rel_type: 'm.annotation', event_id: target, key: 'hidden' } },
      },
      [late],
      state,
    );
    const lateName = server.make(
      { type: 'm.room.member', stateKey: zoe, sender: zoe, content: { membership: 'join', displayname: 'hidden' } },
      [onTop],
      state,
    );
    const softFailed = [late, lateEdit, lateName];
    for (const event of softFailed)
      expect({ type: event.type, verdict: await receive(event) }).toEqual({ type: event.type, verdict: 'softFailed' });

    const seen = await stillWorks(roomId, since);
    expect(seen).toContain(onTop.eventId);
    for (const event of [...rejected, relying, ...softFailed]) {
      const id = encodeURIComponent(event.eventId);
      expect(seen).not.toContain(event.eventId);
      for (const [method, path] of [
        ['GET', `/rooms/${roomId}/event/${id}`],
        ['GET', `/rooms/${roomId}/context/${id}`],
        ['GET', `${v1}/rooms/${roomId}/relations/${id}`],
        ['POST', `/rooms/${roomId}/report/${id}`],
      ] as const) {
        const answer = await alice.request(method, path, method === 'POST' ? {} : undefined);
        expect({ path, outcome: outcome(answer) }).toEqual({ path, outcome: '404 M_NOT_FOUND' });
      }
    }
    const event = await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${target}`);
    const related = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `${v1}/rooms/${roomId}/relations/${target}`);
    const threads = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `${v1}/rooms/${roomId}/threads`);
    expect(JSON.stringify([event, related, threads])).not.toMatch(/hidden/);
    expect(related.chunk).toEqual([]);
    const byTime = await ok<{ event_id: string }>(
      alice,
      'GET',
      `${v1}/rooms/${roomId}/timestamp_to_event?dir=f&ts=${late.originServerTs}`,
    );
    expect(softFailed.map((each) => each.eventId)).not.toContain(byTime.event_id);
    expect((await stateOf(roomId)).get(stateKeyOf('m.room.member', zoe))?.content['membership']).toBe('ban');
    expect(await ok(alice, 'GET', `${v1}/room_summary/${roomId}`)).not.toHaveProperty('name');
  });

  it.each(['1', '12'])(
    'stores a graph once, however it comes: forked, shuffled, repeated (version %s)',
    async (version) => {
      const { roomId, server, state, head } = await shared(version, {
        power_level_content_override: { state_default: 0 },
      });
      const { next_batch: since } = await syncOf(alice, roomId);
      // Wide: many heads on one event, each saying something else about the same state.
      const width = 40;
      const fork = Array.from({ length: width }, (_, n) =>
        n % 2 === 0
          ? server.make(
              { type: 'm.room.topic', stateKey: '', sender: n % 4 === 0 ? zoe : yan, content: { topic: `${n}` } },
              [head],
              state,
            )
          : server.make({ type: 'm.room.message', sender: yan, content: { body: `${n}` } }, [head], state),
      );
      const merge = server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'merge' } },
        fork.slice(0, 20),
        state,
      );
      const all = [...fork, merge];
      inside.useMissingEvents({
        ...nobodyHelps,
        events: (_origin, _room, ids) => Promise.resolve(ids.flatMap((id) => server.known.get(id) ?? [])),
        missingEvents: (_origin, _room, _earliest, latest) =>
          Promise.resolve(
            latest
              .flatMap((id) => server.known.get(id)?.prevEventIds ?? [])
              .flatMap((id) => server.known.get(id) ?? []),
          ),
      });
      // The last comes first, and everything twice, from several sides at once.
      const shuffled = [...all, ...all].sort((a, b) => (a.eventId < b.eventId ? -1 : 1));
      const verdicts = await Promise.all([merge, ...shuffled].map(receive));
      expect(verdicts.filter((verdict) => verdict !== 'accepted' && verdict !== 'known')).toEqual([]);
      const seen = await stillWorks(roomId, since);
      expect(all.filter((event) => !seen.has(event.eventId))).toEqual([]);
      const { chunk } = await ok<{ chunk: WireEvent[] }>(alice, 'GET', `/rooms/${roomId}/messages?dir=b&limit=500`);
      expect(new Set(chunk.map((event) => event.event_id)).size).toBe(chunk.length);
      for (let n = 0; n < 4; n++) await say(alice, roomId, 'knitting');
      expect((await inside.heads(roomId)).length).toBe(1);
      // Everybody agrees on one of the topics, and it stays.
      const topic = await ok<{ topic: string }>(alice, 'GET', `/rooms/${roomId}/state/m.room.topic`);
      expect(fork.some((event) => event.content['topic'] === topic.topic)).toBe(true);
    },
  );

  it('stands servers that withhold, lie, or never come to an end', async () => {
    const { roomId, server, state, head } = await shared('12');
    const text = (prev: readonly RoomEvent[], body = 'x'): RoomEvent =>
      server.make({ type: 'm.room.message', sender: zoe, content: { body } }, prev, state);
    const { next_batch: since } = await syncOf(alice, roomId);
    const withheld = text([head], 'withheld');
    const orphan = text([withheld], 'orphan');
    expect(await receive(orphan)).toBe('missingAncestors');
    inside.useMissingEvents({
      ...nobodyHelps,
      missingEvents: () => Promise.reject(new Error('no')),
      events: () => Promise.reject(new Error('no')),
    });
    await receive(orphan).catch(() => undefined);
    // Another event each time, with yet another ancestor.
    let asked = 0;
    const endless = (): RoomEvent => {
      asked += 1;
      return server.make(
        {
          type: 'm.room.message',
          sender: zoe,
          content: { n: asked },
          prev: [`$${'a'.repeat(42)}${asked % 10}`],
          depth: 50,
        },
        [],
        state,
      );
    };
    inside.useMissingEvents({
      missingEvents: () => Promise.resolve([endless(), endless()]),
      events: () => Promise.resolve([endless()]),
      stateBefore: () => Promise.resolve(undefined),
    });
    expect(await receive(orphan)).toBe('missingAncestors');
    expect(asked).toBeLessThan(100);
    const badAuth = server.make(
      { type: 'm.room.message', sender: zoe, content: {}, auth: [`$${'b'.repeat(43)}`] },
      [head],
      state,
    );
    expect(await receive(badAuth)).toBe('missingAncestors');
    // Events and a state of another room.
    const other = await shared('12');
    inside.useMissingEvents({
      missingEvents: () => Promise.resolve([other.head]),
      events: () => Promise.resolve([other.head]),
      stateBefore: () => Promise.resolve({ state: [...other.state.values()], authChain: [...other.state.values()] }),
    });
    expect(await receive(orphan)).toBe('missingAncestors');
    expect((await stillWorks(roomId, since)).has(other.head.eventId)).toBe(false);
    await stillWorks(other.roomId, since);
    inside.useMissingEvents({ ...nobodyHelps, missingEvents: () => Promise.resolve([withheld]) });
    const next = text([orphan], 'next');
    const verdicts = [await receive(withheld), await receive(orphan), await receive(next)];
    expect(verdicts).toEqual(['accepted', 'accepted', 'accepted']);
    expect(await stillWorks(roomId, since)).toContain(next.eventId);
  });

  it('ends where ids are chosen by the sender and events point at each other', async () => {
    const { roomId, server, state, head } = await shared('1');
    const [a, b] = [`$a:${remoteName}`, `$b:${remoteName}`];
    const { next_batch: since } = await syncOf(alice, roomId);
    const cycle = [
      server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'a' }, eventId: a, prev: [b], depth: 20 },
        [],
        state,
      ),
      server.make(
        { type: 'm.room.message', sender: zoe, content: { body: 'b' }, eventId: b, prev: [a], depth: 20 },
        [],
        state,
      ),
      server.make(
        {
          type: 'm.room.message',
          sender: zoe,
          content: { body: 'c' },
          eventId: `$c:${remoteName}`,
          prev: [`$c:${remoteName}`],
        },
        [],
        state,
      ),
      server.make(
        { type: 'm.room.name', stateKey: '', sender: zoe, eventId: `$d:${remoteName}`, auth: [`$e:${remoteName}`] },
        [head],
        state,
      ),
      server.make(
        { type: 'm.room.name', stateKey: '', sender: zoe, eventId: `$e:${remoteName}`, auth: [`$d:${remoteName}`] },
        [head],
        state,
      ),
    ];
    inside.useMissingEvents({
      missingEvents: (_origin, _room, _earliest, latest) =>
        Promise.resolve(
          latest.flatMap((id) => server.known.get(id)?.prevEventIds ?? []).flatMap((id) => server.known.get(id) ?? []),
        ),
      events: (_origin, _room, ids) => Promise.resolve(ids.flatMap((id) => server.known.get(id) ?? [])),
      stateBefore: () => Promise.resolve({ state: [...state.values()], authChain: [...state.values(), ...cycle] }),
    });
    for (const event of cycle) await receive(event);
    await stillWorks(roomId, since);
    // The same id with another content is the same event.
    const first = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'first' }, eventId: `$same:${remoteName}` },
      [head],
      state,
    );
    const second = server.make(
      { type: 'm.room.message', sender: zoe, content: { body: 'second' }, eventId: `$same:${remoteName}` },
      [head],
      state,
    );
    expect([await receive(first), await receive(second)]).toEqual(['accepted', 'known']);
    const told = await ok<WireEvent>(alice, 'GET', `/rooms/${roomId}/event/${encodeURIComponent(first.eventId)}`);
    expect(told.content['body']).toBe('first');
    await stillWorks(roomId, since);
  });

  it('comes up again with all of it', async () => {
    const { roomId, head } = await shared('12');
    const reader = await homeserver.registerUser('reader');
    await act(alice, 'invite', roomId, reader);
    const { next_batch: since } = await syncOf(alice, roomId);
    await homeserver.restart();
    expect(await stillWorks(roomId, since)).toContain(head.eventId);
    const rooms = await ok<{ joined_rooms: string[] }>(alice, 'GET', '/joined_rooms');
    for (const each of rooms.joined_rooms) await stillWorks(each, since);
    expect((await alice.request('GET', '/sync')).status).toBe(200);
  });
});
