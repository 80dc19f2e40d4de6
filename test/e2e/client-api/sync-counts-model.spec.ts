import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { Dice } from '../hostile/dice.js';
import { validatedFetch } from '../../support/openapi.js';

const slidingPath = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';

interface Count {
  readonly notification_count: number;
  readonly highlight_count: number;
}

interface Wire {
  readonly type: string;
  readonly sender: string;
  readonly state_key?: string;
  readonly content: Record<string, unknown>;
}

interface Sync {
  readonly next_batch: string;
  readonly account_data?: { readonly events: Wire[] };
  readonly rooms?: {
    readonly join?: Record<
      string,
      {
        readonly timeline: { readonly events: Wire[] };
        readonly state: { readonly events: Wire[] };
        readonly ephemeral: { readonly events: Wire[] };
        readonly account_data: { readonly events: Wire[] };
        readonly unread_notifications: Count;
        readonly unread_thread_notifications?: Record<string, Count>;
      }
    >;
  };
}

interface Sliding {
  readonly pos: string;
  readonly rooms: Record<string, Partial<Count>>;
}

/** By event id, type and user. */
type Receipts = Record<string, Record<string, Record<string, { readonly thread_id?: string }>>>;

const filter = encodeURIComponent(
  JSON.stringify({
    room: { timeline: { limit: 1, unread_thread_notifications: true }, state: { lazy_load_members: true } },
  }),
);

/** Follows `/sync` and keeps all that is not events of rooms. */
class Follower {
  readonly known = new Map<string, unknown>();
  readonly #members = new Map<string, Set<string>>();
  #since: string | undefined;

  constructor(readonly user: TestUser) {}

  /** @param lost the answer does not arrive */
  async sync(lost = false): Promise<void> {
    const since = this.#since === undefined ? '' : `&since=${this.#since}`;
    const { status, body } = await this.user.request<Sync>('GET', `/sync?timeout=0&filter=${filter}${since}`);
    expect(status).toBe(200);
    if (lost) return;
    this.#since = body.next_batch;
    for (const { type, content } of body.account_data?.events ?? []) this.known.set(`own ${type}`, content);
    for (const [roomId, room] of Object.entries(body.rooms?.join ?? {})) {
      this.known.set(`unread ${roomId}`, [room.unread_notifications, room.unread_thread_notifications ?? {}]);
      for (const { type, content } of room.account_data.events) this.known.set(`of ${roomId} ${type}`, content);
      for (const { type, content } of room.ephemeral.events)
        if (type === 'm.receipt') this.#read(roomId, content as Receipts);
      const members = this.#members.get(roomId) ?? new Set<string>();
      this.#members.set(roomId, members);
      for (const { type, state_key: userId } of [...room.state.events, ...room.timeline.events])
        if (type === 'm.room.member' && userId !== undefined) members.add(userId);
      for (const { sender } of room.timeline.events) expect(members).toContain(sender);
    }
  }

  /** Of several receipts for one event an answer shows one: only those for whole rooms can be followed. */
  #read(roomId: string, content: Receipts): void {
    for (const [eventId, byType] of Object.entries(content))
      for (const [type, byUser] of Object.entries(byType))
        for (const [userId, { thread_id: threadId }] of Object.entries(byUser))
          if (threadId === undefined) this.known.set(`read ${roomId} ${type} ${userId}`, eventId);
  }
}

describe.each([
  ['sqlite', 1],
  ['postgres', 2],
] as const)('who follows counts, receipts and account data has what is (%s, %i)', (database, seed) => {
  let homeserver: TestHomeserver;
  afterAll(() => homeserver?.stop());

  const login = async (userId: string): Promise<TestUser> => {
    const user = userId.slice(1).split(':')[0] ?? '';
    const identifier = { type: 'm.id.user', user };
    const answer = await homeserver.request<{ access_token: string; device_id: string }>('POST', '/login', {
      ...{ type: 'm.login.password', identifier, password: `password of ${user}` },
    });
    const { access_token: accessToken, device_id: deviceId } = answer.body;
    const request: TestUser['request'] = (method, path, body) => homeserver.request(method, path, body, accessToken);
    return { userId, accessToken, deviceId, request };
  };

  it('whatever happens, though answers get lost', async () => {
    const settings = { presence: { enabled: false } };
    homeserver = await createTestHomeserver({ database, settings, fetch: validatedFetch });
    const dice = new Dice(`counts ${seed}`);
    const users = await Promise.all(['alice', 'bob', 'carol'].map((name) => homeserver.registerUser(name)));
    const [alice, ...others] = users as [TestUser, TestUser, TestUser];
    const rooms: string[] = [];
    for (let i = 0; i < 2; i++) {
      const roomId = String((await alice.request('POST', '/createRoom', { preset: 'public_chat' })).body['room_id']);
      for (const user of others) await user.request('POST', `/rooms/${roomId}/join`, {});
      rooms.push(roomId);
    }
    const said = rooms.map((): string[] => []);
    const threadOf = new Map<string, string>();
    let number = 0;

    const speak = async (user: TestUser, at: number): Promise<void> => {
      const mains = said[at]!.filter((eventId) => !threadOf.has(eventId));
      const root = mains.length > 0 && dice.chance(0.5) ? dice.pick(mains.slice(0, 3)) : undefined;
      const { status, body } = await user.request('PUT', `/rooms/${rooms[at]}/send/m.room.message/${(number += 1)}`, {
        msgtype: 'm.text',
        body: `message ${number}`,
        ...(dice.chance(0.3) && { 'm.mentions': { user_ids: [dice.pick(users).userId] } }),
        ...(root !== undefined && { 'm.relates_to': { rel_type: 'm.thread', event_id: root } }),
      });
      if (status !== 200) return;
      said[at]!.push(String(body['event_id']));
      if (root !== undefined) threadOf.set(String(body['event_id']), root);
      if (number % 3 !== 0) return;
      // Who sends something has read what is before it there; what they know of it comes from the answers that follow.
      const fresh = new Follower(user);
      await fresh.sync();
      const [main, threads] = fresh.known.get(`unread ${rooms[at]}`) as [Count, Record<string, Count>];
      const unread = root === undefined ? main : threads[root];
      expect([number, unread?.notification_count ?? 0]).toEqual([number, 0]);
    };
    const read = async (user: TestUser, at: number): Promise<void> => {
      const eventId = dice.pick(said[at]!);
      if (eventId === undefined) return;
      const type = dice.pick(['m.read', 'm.read.private']);
      const body = dice.chance(0.3) ? { thread_id: threadOf.get(eventId) ?? 'main' } : {};
      await user.request('POST', `/rooms/${rooms[at]}/receipt/${type}/${eventId}`, body);
    };
    const act = async (): Promise<void> => {
      const user = dice.pick(users);
      const at = dice.below(rooms.length);
      const room = `/rooms/${rooms[at]}`;
      const own = `/user/${user.userId}`;
      const type = `account_data/org.example.${dice.below(3)}`;
      const rule = `/pushrules/global/room/${rooms[at]}`;
      await dice.pick([
        () => speak(user, at),
        () => speak(user, at),
        () => speak(user, at),
        () => speak(user, at),
        () => read(user, at),
        () => read(user, at),
        () => user.request('PUT', `${own}/${type}`, { n: (number += 1) }),
        () => user.request('PUT', `${own}${room}/${type}`, { n: (number += 1) }),
        () => user.request('PUT', rule, { actions: dice.chance(0.5) ? ['notify'] : [] }),
        () => user.request('PUT', `${room}/redact/${dice.pick(said[at]!) ?? '$none'}/${(number += 1)}`, {}),
        async () => {
          await user.request('POST', `${room}/leave`, {});
          await user.request('POST', `${room}/join`, {});
        },
      ])!();
    };

    const followers = await Promise.all(users.map(async ({ userId }) => new Follower(await login(userId))));
    const askers = await Promise.all(users.map(({ userId }) => login(userId)));
    const positions = users.map((): string | undefined => undefined);
    const counts = users.map(() => new Map<string, Partial<Count>>());
    const slide = async (index: number, connId: string, pos?: string): Promise<Sliding> => {
      const list = { ranges: [[0, 9]], timeline_limit: 1, required_state: [] };
      const query = `?timeout=0${pos === undefined ? '' : `&pos=${pos}`}`;
      const body = { conn_id: connId, lists: { all: list } };
      return (await askers[index]!.request<Sliding>('POST', slidingPath + query, body)).body;
    };
    const countsIn = ({ rooms: answer }: Sliding): [string, Partial<Count>][] =>
      Object.entries(answer).flatMap(([roomId, { notification_count, highlight_count }]) =>
        notification_count === undefined ? [] : [[roomId, { notification_count, highlight_count }]],
      );

    for (let round = 0; round < 40; round++) {
      for (let i = dice.below(8); i >= 0; i--) await act();
      if (round === 20) await homeserver.restart();
      for (const [index, follower] of followers.entries()) {
        if (dice.chance(0.4)) continue;
        if (dice.chance(0.2)) await follower.sync(true);
        await follower.sync();
        const fresh = new Follower(askers[index]!);
        await fresh.sync();
        const what = `round ${round}, ${follower.user.userId}`;
        expect({ what, known: [...follower.known].sort() }).toEqual({ what, known: [...fresh.known].sort() });

        const sliding = await slide(index, 'following', positions[index]);
        positions[index] = sliding.pos;
        for (const [roomId, count] of countsIn(sliding)) counts[index]!.set(roomId, count);
        const whole = new Map(countsIn(await slide(index, 'asking')));
        expect({ what, counts: [...counts[index]!].sort() }).toEqual({ what, counts: [...whole].sort() });
        for (const [roomId, { notification_count: total }] of whole) {
          const [main, threads] = fresh.known.get(`unread ${roomId}`) as [Count, Record<string, Count>];
          const sum = Object.values(threads).reduce((all, one) => all + one.notification_count, 0);
          expect({ what, total }).toEqual({ what, total: main.notification_count + sum });
        }
      }
    }
  }, 240_000);
});
