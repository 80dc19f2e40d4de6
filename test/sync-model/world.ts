import type { DataStores, DialectName } from '@rookery/database';
import { PushCounts, totalOf } from '@rookery/push';
import { InboundEvents, RoomStateReader } from '@rookery/rooms';
import { SystemClock } from '@rookery/platform';
import { createTestHomeserver, SeededIds, type TestHomeserver, type TestUser } from '@rookery/testing';
import type { RoomEvent } from '@rookery/events';
import { stateKeyOf } from '@rookery/state-res';
import { RemoteServer, remoteName, type RemoteDraft } from '../e2e/federation/remote-server.js';
import { insideOf, type RoomsInside } from '../e2e/federation/rooms-inside.js';
import { startAndReach } from '../e2e/rooms/reach.js';
import type { Dice } from '../e2e/hostile/dice.js';
import { ClassicClient, type Client, SlidingClient } from './clients.js';
import { Truth } from './truth.js';

/** A device to which others send. */
interface Inbox {
  readonly client: Client;
  readonly sent: number[];
}

const visibilities = ['world_readable', 'shared', 'shared', 'invited', 'joined'];
const strangers = ['zoe', 'yan', 'xul'].map((name) => `@${name}:${remoteName}`);
const maxRooms = 6;
const open = { state_default: 0, events: {}, kick: 0, ban: 0, invite: 0, redact: 0 };

/** Time that moves from step to step, so that events are the same each time. */
class StepClock extends SystemClock {
  #nowMs = 1_700_000_000_000;

  override nowMs(): number {
    return this.#nowMs;
  }

  step(): void {
    this.#nowMs += 1_000;
  }
}

/** A server, the people and rooms there, and clients that follow. Everything that happens is chosen by the dice. */
export class World {
  readonly clients: Client[] = [];
  readonly #rooms: string[] = [];
  readonly #remote = new Map<string, RemoteServer>();
  readonly #inboxes: Inbox[] = [];
  /** What has happened, for whoever looks into a difference. */
  readonly log: string[] = [];
  #number = 0;
  #truth!: Truth;
  #counts!: PushCounts;
  #state!: RoomStateReader;
  #inside!: RoomsInside;

  private constructor(
    readonly homeserver: TestHomeserver,
    private readonly dice: Dice,
    private readonly clock: StepClock,
    private readonly users: readonly TestUser[],
  ) {}

  static async create(database: DialectName, dice: Dice): Promise<World> {
    const clock = new StepClock();
    const reached = await reach(() =>
      createTestHomeserver({
        ...{ database, clock, ids: new SeededIds(dice.below(1e9)) },
        settings: { presence: { enabled: false }, user_directory: { enabled: false }, rc_reports: {} },
      }),
    );
    const { homeserver } = reached;
    const users: TestUser[] = [];
    for (const name of ['alice', 'bob', 'carol', 'dave']) users.push(await homeserver.registerUser(name));
    const world = new World(homeserver, dice, clock, users);
    world.#take(reached);
    for (let n = 0; n < 3; n++) await world.#createRoom();
    for (const user of users) {
      for (let n = 0; n < 3; n++) await world.#addClient(user, n);
    }
    return world;
  }

  get truth(): Truth {
    return this.#truth;
  }

  /** Something happens: an action of somebody, or a sync of some client that is then held against the truth. */
  async step(): Promise<void> {
    const { dice } = this;
    this.clock.step();
    if (dice.chance(0.45)) return this.#follow(dice.pick(this.clients));
    const roomId = dice.pick(this.#rooms);
    if (dice.chance(0.2)) return this.#elsewhere(roomId);
    const isIn = ({ userId }: TestUser): boolean =>
      this.#truth.memberships.get(userId)?.get(roomId)?.membership === 'join';
    const members = this.users.filter(isIn);
    const user = dice.pick(members.length > 0 && dice.chance(0.7) ? members : this.users);
    await this.#act(user, roomId);
  }

  /** Stops the server and starts it again. */
  async restart(): Promise<void> {
    this.log.push('restart');
    const { homeserver } = this;
    this.#take(
      await reach(async () => {
        await homeserver.restart();
        return homeserver;
      }),
    );
  }

  stop(): Promise<void> {
    return this.homeserver.stop();
  }

  async #follow(client: Client): Promise<void> {
    const { dice } = this;
    await this.#truth.refresh();
    if (dice.chance(0.02)) client.reset();
    const lost = dice.chance(0.1);
    this.log.push(`${client.name} syncs${lost ? ', the answer is lost' : ''} (up to ${this.#truth.head})`);
    await client.sync(this.#truth, lost);
    if (lost) return;
    const own = this.#truth.memberships.get(client.userId) ?? new Map<string, { membership: string }>();
    const joined = [...own].filter(([, { membership }]) => membership === 'join').map(([roomId]) => roomId);
    const counts = await this.#counts.read(client.userId, joined);
    client.check(this.#truth, this.#inboxes.find((inbox) => inbox.client === client)?.sent ?? [], (roomId) => {
      const { notify, highlight } = totalOf(counts.get(roomId) ?? new Map());
      return `${notify}/${highlight}`;
    });
  }

  async #act(user: TestUser, roomId: string): Promise<void> {
    const { dice } = this;
    const n = (this.#number += 1);
    const other = dice.chance(0.7) ? dice.pick(this.users).userId : dice.pick(strangers);
    const room = `/rooms/${roomId}`;
    // What is forbidden is refused, and changes nothing.
    const request = async (method: string, path: string, body?: object): Promise<Record<string, unknown>> => {
      const answer = await user.request(method, path, body);
      const outcome = answer.body['errcode'] ?? answer.body['event_id'] ?? '';
      this.log.push(
        `${user.userId} ${method} ${path} ${JSON.stringify(body ?? {})}: ${answer.status} ${String(outcome)}`,
      );
      if (answer.status === 500) throw new Error(this.log.at(-1));
      return answer.body;
    };
    const put = (path: string, body: object) => request('PUT', room + path, body);
    const post = (path: string, body: object) => request('POST', room + path, body);
    const say = (content: object = {}) =>
      put(`/send/m.room.message/${n}`, { msgtype: 'm.text', body: `n ${n}`, ...content });
    const deeds: readonly (readonly [weight: number, deed: () => Promise<unknown>])[] = [
      [10, () => say()],
      [
        3,
        async () => {
          for (let i = dice.below(12); i >= 0; i--)
            await put(`/send/m.room.message/${n}.${i}`, { msgtype: 'm.text', body: `${n} ${i}` });
        },
      ],
      [1, () => say({ 'm.mentions': { user_ids: [other] } })],
      [2, () => put('/state/m.room.name', { name: dice.chance(0.4) ? '' : `name ${n}` })],
      [3, () => put(`/state/org.example.thing/${dice.pick(['a', 'b', 'c'])}`, { n })],
      [2, () => put('/state/m.room.history_visibility', { history_visibility: dice.pick(visibilities) })],
      [1, () => put('/state/m.room.join_rules', { join_rule: dice.pick(['public', 'public', 'knock', 'invite']) })],
      [2, () => put(`/state/m.room.member/${user.userId}`, { membership: 'join', displayname: `n${n}` })],
      [6, () => post('/join', {})],
      [3, () => post('/leave', dice.chance(0.5) ? { reason: `r${n}` } : {})],
      [4, () => post('/invite', { user_id: dice.pick(this.users).userId })],
      [2, () => post('/kick', { user_id: other, reason: `r${n}` })],
      [1, () => post('/ban', { user_id: other })],
      [2, () => post('/unban', { user_id: other })],
      [1, () => post('/forget', {})],
      [2, () => request('POST', `/knock/${roomId}`, {})],
      [0.3, () => this.#upgrade(roomId, request)],
      [0.3, () => this.#createRoom()],
      [1, () => this.#ignore(user)],
      [2, () => this.#sendToDevice(user)],
      [
        3,
        async () => {
          const page = await request('GET', `${room}/messages?dir=b&limit=5`);
          const target = dice.pick((page['chunk'] ?? []) as { event_id: string }[]);
          if (target === undefined) return;
          await (dice.chance(0.4)
            ? put(`/redact/${target.event_id}/${n}`, {})
            : post(`/receipt/${dice.pick(['m.read', 'm.read.private'])}/${target.event_id}`, {}));
        },
      ],
    ];
    let chosen = dice.next() * deeds.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, deed] of deeds) {
      chosen -= weight;
      if (chosen < 0) return void (await deed());
    }
  }

  /** Something that another server sends, now or late: what it builds upon may be long past. */
  async #elsewhere(roomId: string): Promise<void> {
    const { dice } = this;
    await this.#truth.refresh();
    // A server in which nobody is in a room any more is not sent its events.
    if (!this.#truth.isFollowed(roomId)) return;
    const events = this.#truth.events.get(roomId) ?? [];
    const heads = await this.#inside.heads(roomId);
    let prev: readonly RoomEvent[] = heads;
    if (dice.chance(0.5)) {
      const past = events[Math.max(0, events.length - 1 - dice.below(15))];
      if (past !== undefined) prev = await this.#inside.events([past.id]);
    }
    if (prev.length === 0) return;
    const states = await this.#state.idsAfter(prev.map((event) => event.eventId));
    // On several heads: one of their states will do mostly; what it does not allow is rejected.
    const ids = states.get(dice.pick([...states.keys()]) ?? '');
    if (ids === undefined) return;
    const state = new Map(
      (await this.#inside.events([...ids.values()])).map((event) => [stateKeyOf(event.type, event.stateKey!), event]),
    );
    const sender = dice.pick(strangers);
    const isIn = state.get(stateKeyOf('m.room.member', sender))?.content['membership'] === 'join';
    const server = this.#serverOf(roomId, state.get(stateKeyOf('m.room.create', ''))?.content['room_version']);
    const chain: RoomEvent[] = [];
    const current = new Map(state);
    for (let i = dice.chance(0.2) ? dice.below(4) : 0; i >= 0; i--) {
      const draft = isIn ? this.#remoteDeed(sender) : member(sender, sender, 'join');
      const event = server.make(draft, chain.length > 0 ? [chain.at(-1)!] : prev, current);
      if (event.stateKey !== undefined) current.set(stateKeyOf(event.type, event.stateKey), event);
      chain.push(event);
    }
    // Now and then what lies between never arrives, and the state is taken from the other server.
    const isCut = chain.length > 1 && dice.chance(0.3);
    this.#inside.useMissingEvents({
      missingEvents: () => Promise.resolve([]),
      events: () => Promise.resolve([]),
      authChain: () => Promise.resolve([]),
      stateBefore: () =>
        Promise.resolve(isCut ? { state: [...state.values()], authChain: [...state.values()] } : undefined),
    });
    for (const event of isCut ? chain.slice(-1) : chain) {
      const verdict = await this.#inside.inbound.receive(remoteName, roomId, { event });
      this.log.push(
        `${event.sender} elsewhere: ${event.type}|${event.stateKey} ${JSON.stringify(event.content)} in ${roomId} on ${event.prevEventIds.join()}${isCut ? ' (cut)' : ''}: ${verdict.kind} ${event.eventId}`,
      );
    }
  }

  #remoteDeed(sender: string): RemoteDraft {
    const { dice } = this;
    const n = (this.#number += 1);
    const other = dice.pick([...this.users.map((user) => user.userId), ...strangers]);
    const message = { type: 'm.room.message', sender, content: { msgtype: 'm.text', body: `far ${n}` } };
    return dice.pick<RemoteDraft>([
      message,
      message,
      message,
      { type: 'm.room.name', stateKey: '', sender, content: { name: `far ${n}` } },
      { type: 'org.example.thing', stateKey: dice.pick(['a', 'b', 'c']), sender, content: { n } },
      { ...member(sender, sender, 'join'), content: { membership: 'join', displayname: `far ${n}` } },
      member(sender, sender, 'leave'),
      member(sender, other, dice.pick(['invite', 'leave', 'ban'])),
      {
        type: 'm.room.history_visibility',
        stateKey: '',
        sender,
        content: { history_visibility: dice.pick(visibilities) },
      },
    ]);
  }

  #serverOf(roomId: string, version: unknown): RemoteServer {
    let server = this.#remote.get(roomId);
    if (server === undefined) {
      server = new RemoteServer(typeof version === 'string' ? version : '1', roomId, this.clock.nowMs());
      this.#remote.set(roomId, server);
    }
    return server;
  }

  async #createRoom(): Promise<void> {
    const { dice } = this;
    if (this.#rooms.length >= maxRooms) return;
    const user = dice.pick(this.users);
    const made = await user.request('POST', '/createRoom', {
      preset: 'public_chat',
      room_version: dice.pick(['10', '11', '11', '12']),
      ...(dice.chance(0.3) && { name: `room ${this.#rooms.length}` }),
      initial_state: [
        { type: 'm.room.join_rules', content: { join_rule: dice.pick(['public', 'public', 'knock']) } },
        { type: 'm.room.history_visibility', content: { history_visibility: dice.pick(visibilities) } },
      ],
      power_level_content_override: open,
    });
    if (made.status !== 200) throw new Error(`createRoom: ${JSON.stringify(made)}`);
    this.#rooms.push(String(made.body['room_id']));
    this.log.push(`${user.userId} makes ${this.#rooms.at(-1)}`);
  }

  async #upgrade(
    roomId: string,
    request: (method: string, path: string, body?: object) => Promise<Record<string, unknown>>,
  ): Promise<void> {
    if (this.#rooms.length >= maxRooms) return;
    const answer = await request('POST', `/rooms/${roomId}/upgrade`, {
      new_version: this.dice.pick(['10', '11', '12']),
    });
    if (typeof answer['replacement_room'] === 'string') this.#rooms.push(answer['replacement_room']);
  }

  async #ignore(user: TestUser): Promise<void> {
    const everybody = [...this.users.map(({ userId }) => userId), ...strangers];
    const ignored = everybody.filter((userId) => userId !== user.userId && this.dice.chance(0.15));
    await user.request('PUT', `/user/${user.userId}/account_data/m.ignored_user_list`, {
      ignored_users: Object.fromEntries(ignored.map((userId) => [userId, {}])),
    });
    this.#truth.ignore(user.userId, ignored);
    this.log.push(`${user.userId} ignores ${ignored.join()}`);
  }

  async #sendToDevice(user: TestUser): Promise<void> {
    const { client, sent } = this.dice.pick(this.#inboxes);
    const n = (this.#number += 1);
    const messages = { [client.userId]: { [client.user.deviceId]: { n } } };
    await user.request('PUT', `/sendToDevice/org.example.note/${n}`, { messages });
    sent.push(n);
    this.log.push(`${user.userId} sends ${n} to ${client.user.deviceId}`);
  }

  async #addClient(owner: TestUser, index: number): Promise<void> {
    const { dice, homeserver } = this;
    const name = owner.userId.slice(1).split(':')[0] ?? '';
    const identifier = { type: 'm.id.user', user: name };
    const answer = await homeserver.request<{ access_token: string; device_id: string }>('POST', '/login', {
      ...{ type: 'm.login.password', identifier, password: `password of ${name}` },
    });
    const { access_token: accessToken, device_id: deviceId } = answer.body;
    const user: TestUser = {
      ...{ userId: owner.userId, accessToken, deviceId },
      request: (method, path, body) => homeserver.request(method, path, body, accessToken),
    };
    const limit = dice.pick([1, 2, 3, 5, 10, 20]);
    const client =
      index === 2
        ? new SlidingClient(user, { lazy: dice.chance(0.5), limit, window: dice.pick([1, 50, 50]) })
        : new ClassicClient(user, {
            stateAfter: index === 1,
            lazy: dice.chance(0.6),
            redundant: dice.chance(0.2),
            limit,
          });
    this.clients.push(client);
    this.#inboxes.push({ client, sent: [] });
  }

  #take({ inbound, state, counts }: Reached): void {
    const database = (state as unknown as { readonly stores: DataStores }).stores.main;
    this.#inside = insideOf(inbound);
    this.#state = state;
    this.#counts = counts;
    const userIds = this.users.map((user) => user.userId);
    this.#truth =
      this.#truth === undefined ? new Truth(database, state, userIds) : Truth.after(this.#truth, database, state);
  }
}

interface Reached {
  readonly homeserver: TestHomeserver;
  readonly inbound: InboundEvents;
  readonly state: RoomStateReader;
  readonly counts: PushCounts;
}

async function reach(start: () => Promise<TestHomeserver>): Promise<Reached> {
  let state: RoomStateReader | undefined;
  let counts: PushCounts | undefined;
  const { homeserver, instance: inbound } = await startAndReach(InboundEvents, async () => {
    const outer = await startAndReach(RoomStateReader, async () => {
      const inner = await startAndReach(PushCounts, start);
      counts = inner.instance;
      return inner.homeserver;
    });
    state = outer.instance;
    return outer.homeserver;
  });
  return { homeserver, inbound, state: state!, counts: counts! };
}

const member = (sender: string, stateKey: string, membership: string): RemoteDraft => ({
  ...{ type: 'm.room.member', sender, stateKey, content: { membership } },
});
