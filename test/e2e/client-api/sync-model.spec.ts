import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { Dice } from '../hostile/dice.js';
import { validatedFetch } from '../../support/openapi.js';

const slidingPath = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';

interface Wire {
  readonly event_id: string;
  readonly type: string;
  readonly state_key?: string;
}

interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join?: Record<
      string,
      {
        readonly state?: { events: Wire[] };
        readonly state_after?: { events: Wire[] };
        readonly timeline: { events: Wire[]; limited: boolean };
        readonly unread_notifications: { notification_count: number; highlight_count: number };
      }
    >;
    readonly invite?: Record<string, object>;
    readonly knock?: Record<string, object>;
    readonly leave?: Record<string, object>;
  };
}

interface Sliding {
  readonly pos: string;
  readonly lists: Record<string, { count: number; ops: { room_ids: string[] }[] }>;
  readonly rooms: Record<
    string,
    {
      readonly initial?: boolean;
      readonly required_state?: Wire[];
      readonly timeline?: Wire[];
      readonly limited?: boolean;
      readonly notification_count?: number;
      readonly joined_count?: number;
    }
  >;
}

type Section = 'join' | 'invite' | 'knock';

/** What a client knows of a room. */
class Room {
  readonly state = new Map<string, string>();
  /** Event ids since the last gap. */
  timeline: string[] = [];
  unread: number | undefined;

  apply(events: readonly Wire[]): void {
    for (const { event_id: eventId, type, state_key: stateKey } of events)
      if (stateKey !== undefined) this.state.set(JSON.stringify([type, stateKey]), eventId);
  }

  extend(events: readonly Wire[], limited: boolean): void {
    if (limited) this.timeline = [];
    this.timeline.push(...events.map((event) => event.event_id));
  }
}

/** Follows `/sync` as a simple client does. */
class ClassicClient {
  rooms = new Map<string, Room>();
  sections = new Map<string, Section>();
  since: string | undefined;

  constructor(
    readonly user: TestUser,
    readonly options: { readonly stateAfter: boolean; readonly limit: number },
  ) {}

  /** @param lost the answer does not arrive */
  async sync(lost = false): Promise<void> {
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit: this.options.limit } } }));
    const since = this.since === undefined ? '' : `&since=${this.since}`;
    const query = `timeout=0&filter=${filter}${since}${this.options.stateAfter ? '&use_state_after=true' : ''}`;
    const { status, body } = await this.user.request<Sync>('GET', `/sync?${query}`);
    expect(status).toBe(200);
    if (lost) return;
    this.since = body.next_batch;
    const { join = {}, invite = {}, knock = {}, leave = {} } = body.rooms ?? {};
    for (const roomId of [...Object.keys(leave), ...Object.keys(invite), ...Object.keys(knock)]) {
      this.rooms.delete(roomId);
      this.sections.delete(roomId);
    }
    for (const roomId of Object.keys(invite)) this.sections.set(roomId, 'invite');
    for (const roomId of Object.keys(knock)) this.sections.set(roomId, 'knock');
    for (const [roomId, answer] of Object.entries(join)) {
      const room = this.rooms.get(roomId) ?? new Room();
      this.rooms.set(roomId, room);
      this.sections.set(roomId, 'join');
      room.apply((this.options.stateAfter ? answer.state_after : answer.state)?.events ?? []);
      if (!this.options.stateAfter) room.apply(answer.timeline.events);
      room.extend(answer.timeline.events, answer.timeline.limited);
      room.unread = answer.unread_notifications.notification_count;
    }
  }
}

/** Follows sliding sync with a window on everything. */
class SlidingClient {
  rooms = new Map<string, Room>();
  joined = new Map<string, number>();
  listed: string[] = [];
  pos: string | undefined;

  constructor(
    readonly user: TestUser,
    readonly limit: number,
    readonly window: number,
  ) {}

  async sync(lost = false): Promise<void> {
    const list = { ranges: [[0, this.window]], timeline_limit: this.limit, required_state: [['*', '*']] };
    const query = `?timeout=0${this.pos === undefined ? '' : `&pos=${this.pos}`}`;
    const { status, body } = await this.user.request<Sliding>('POST', slidingPath + query, { lists: { all: list } });
    expect(status).toBe(200);
    if (lost) return;
    this.pos = body.pos;
    this.listed = body.lists['all']?.ops.flatMap((op) => op.room_ids) ?? [];
    for (const [roomId, answer] of Object.entries(body.rooms)) {
      let room = this.rooms.get(roomId);
      if (room === undefined || answer.initial === true) this.rooms.set(roomId, (room = new Room()));
      room.apply(answer.required_state ?? []);
      room.extend(answer.timeline ?? [], answer.limited === true || answer.initial === true);
      if (answer.notification_count !== undefined) room.unread = answer.notification_count;
      if (answer.joined_count !== undefined) this.joined.set(roomId, answer.joined_count);
    }
  }
}

const cases = [
  ['sqlite', 1],
  ['sqlite', 7],
  ['postgres', 8],
] as const;

describe.each(cases)('who follows knows what who asks is told (%s, %i)', (database, seed) => {
  let homeserver: TestHomeserver;
  afterAll(() => homeserver?.stop());

  it('of state, timelines, rooms and counts, whatever happens and however often', async () => {
    homeserver = await createTestHomeserver({
      database,
      settings: { presence: { enabled: false } },
      fetch: validatedFetch,
    });
    const dice = new Dice(`sync ${seed}`);
    const users = await Promise.all(['alice', 'bob', 'carol'].map((name) => homeserver.registerUser(name)));
    const [alice] = users as [TestUser, TestUser, TestUser];
    const rooms: string[] = [];
    for (let i = 0; i < 3; i++) {
      const made = await alice.request('POST', '/createRoom', {
        preset: 'public_chat',
        initial_state: [{ type: 'm.room.join_rules', content: { join_rule: i === 0 ? 'knock' : 'public' } }],
        power_level_content_override: { state_default: 0, events: {}, kick: 0, ban: 0, invite: 0, redact: 0 },
      });
      rooms.push(String(made.body['room_id']));
    }
    const classic = users.flatMap((user) => [
      new ClassicClient(user, { stateAfter: false, limit: 2 }),
      new ClassicClient(user, { stateAfter: true, limit: 1 }),
      new ClassicClient(user, { stateAfter: false, limit: 50 }),
    ]);
    // One connection for each device: the window of the second is too small for all.
    const sliding = users.map((user, index) => new SlidingClient(user, 2, index === 1 ? 0 : 20));
    let transaction = 0;

    const act = async (): Promise<void> => {
      const user = dice.pick(users);
      const other = dice.pick(users);
      const roomId = dice.pick(rooms);
      const room = `/rooms/${roomId}`;
      const put = (path: string, body: object) => user.request('PUT', room + path, body);
      const post = (path: string, body: object) => user.request('POST', room + path, body);
      // What is forbidden is refused, and changes nothing.
      await dice.pick([
        () => put(`/send/m.room.message/${(transaction += 1)}`, { msgtype: 'm.text', body: `n ${transaction}` }),
        () => put(`/send/m.room.message/${(transaction += 1)}`, { msgtype: 'm.text', body: `n ${transaction}` }),
        () => put('/state/m.room.name', { name: `name ${(transaction += 1)}` }),
        () => put(`/state/org.example.thing/${dice.pick(['a', 'b', 'c'])}`, { n: (transaction += 1) }),
        () => put(`/state/m.room.member/${user.userId}`, { membership: 'join', displayname: `n${(transaction += 1)}` }),
        () => post('/join', {}),
        () => post('/join', {}),
        () => post('/leave', {}),
        () => post('/invite', { user_id: other.userId }),
        () => post('/kick', { user_id: other.userId }),
        () => post('/ban', { user_id: other.userId }),
        () => post('/unban', { user_id: other.userId }),
        () => post('/forget', {}),
        () => user.request('POST', `/knock/${roomId}`, {}),
        async () => {
          const page = await user.request<{ chunk?: Wire[] }>('GET', `${room}/messages?dir=b&limit=5`);
          const target = dice.pick(page.body.chunk ?? []);
          if (target !== undefined) await put(`/redact/${target.event_id}/${(transaction += 1)}`, {});
          if (target !== undefined) await post(`/receipt/m.read/${target.event_id}`, {});
        },
      ])!();
    };

    const check = async (user: TestUser, roomId: string, known: Room, what: string): Promise<void> => {
      const state = await user.request<Wire[]>('GET', `/rooms/${roomId}/state`);
      expect({ what, status: state.status }).toEqual({ what, status: 200 });
      const wanted = new Map(
        state.body.map((event) => [JSON.stringify([event.type, event.state_key]), event.event_id]),
      );
      expect({ what, state: [...known.state].sort() }).toEqual({ what, state: [...wanted].sort() });
      const count = known.timeline.length;
      expect({ what, unique: new Set(known.timeline).size }).toEqual({ what, unique: count });
      const page = await user.request<{ chunk: Wire[] }>('GET', `/rooms/${roomId}/messages?dir=b&limit=${count + 1}`);
      const last = page.body.chunk.map((event) => event.event_id).slice(0, count);
      expect({ what, timeline: known.timeline }).toEqual({ what, timeline: last.reverse() });
    };

    for (let round = 0; round < 40; round++) {
      for (let i = dice.below(6); i >= 0; i--) await act();
      if (round === 20) await homeserver.restart();
      for (const client of classic) {
        if (dice.below(3) === 0) continue;
        if (dice.below(6) === 0) await client.sync(true);
        await client.sync();
        const fresh = new ClassicClient(client.user, client.options);
        await fresh.sync();
        const what = `round ${round}: ${client.user.userId}, ${JSON.stringify(client.options)}`;
        expect({ what, sections: [...client.sections].sort() }).toEqual({ what, sections: [...fresh.sections].sort() });
        for (const [roomId, room] of client.rooms) {
          await check(client.user, roomId, room, what);
          expect({ what, unread: room.unread }).toEqual({ what, unread: fresh.rooms.get(roomId)?.unread });
        }
      }
      for (const client of sliding) {
        if (dice.below(3) === 0) continue;
        if (dice.below(6) === 0) await client.sync(true);
        await client.sync();
        const joined = await client.user.request<{ joined_rooms: string[] }>('GET', '/joined_rooms');
        const what = `round ${round}: ${client.user.userId}, sliding`;
        for (const roomId of client.listed) {
          if (!joined.body.joined_rooms.includes(roomId)) continue;
          const room = client.rooms.get(roomId);
          expect({ what, known: room !== undefined }).toEqual({ what, known: true });
          await check(client.user, roomId, room ?? new Room(), what);
          const members = await client.user.request<{ joined: object }>('GET', `/rooms/${roomId}/joined_members`);
          expect({ what, joined: client.joined.get(roomId) }).toEqual({
            what,
            joined: Object.keys(members.body.joined).length,
          });
        }
        if (client.window > 0) for (const roomId of joined.body.joined_rooms) expect(client.listed).toContain(roomId);
      }
    }
  }, 240_000);
});
