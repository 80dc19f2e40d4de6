/**
 * Auth checks per second, and what state resolution costs: by the size of the conflict, of the room, and by the length
 * of the chains below it. Events come from memory through the batch interface that a database would serve, so that the
 * figures are the algorithm's own; the columns "events" and "calls" say what a database would be asked for. Memory is
 * what one resolution leaves on a freshly collected heap, garbage included.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { buildEvent, type RoomEvent, roomVersionRules, type RoomVersionRules } from '@rookery/events';
import {
  type AuthLinks,
  authStateOf,
  authTypesFor,
  checkAuth,
  findConflict,
  resolveConflict,
  resolveState,
  stateKeyOf,
  type StateMap,
  type StateResProvider,
} from '@rookery/state-res';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const alice = '@alice:a.example';
const bob = '@bob:b.example';

type Content = Record<string, unknown>;

class BenchRoom {
  readonly rules: RoomVersionRules;
  readonly all = new Map<string, RoomEvent>();
  private readonly generations = new Map<string, number>();
  readonly create: RoomEvent;
  state = new Map<string, string>();
  loaded = 0;
  calls = 0;
  private count = 0;

  constructor(version: string, members: number) {
    this.rules = roomVersionRules(version) as RoomVersionRules;
    this.create = this.send(alice, 'm.room.create', '', { room_version: version });
    this.send(alice, 'm.room.member', alice, { membership: 'join' }, [this.create.eventId]);
    this.levels({});
    this.send(alice, 'm.room.join_rules', '', { join_rule: 'public' });
    this.send(bob, 'm.room.member', bob, { membership: 'join' });
    for (let i = 2; i < members; i++)
      this.send(`@u${i}:b.example`, 'm.room.member', `@u${i}:b.example`, { membership: 'join' });
  }

  levels(more: Content): RoomEvent {
    const users = this.rules.privilegedCreators ? { [bob]: 50 } : { [alice]: 100, [bob]: 50 };
    return this.send(alice, 'm.room.power_levels', '', { users, ...more });
  }

  build(
    sender: string,
    type: string,
    stateKey: string | undefined,
    content: Content,
    prev: string[] = ['$p'],
  ): RoomEvent {
    const wanted = authTypesFor({ type, stateKey, sender, content }, this.rules);
    const isCreate = type === 'm.room.create';
    return buildEvent(
      {
        type,
        stateKey,
        sender,
        content,
        roomId: isCreate ? (this.rules.createEventImplied ? undefined : '!room:a.example') : this.create.roomId,
        prevEventIds: isCreate ? [] : prev,
        authEventIds: wanted.map(([t, k]) => this.state.get(stateKeyOf(t, k))).filter((id) => id !== undefined),
        originServerTs: 1_700_000_000_000 + this.count++,
        depth: this.count,
      },
      this.rules,
    );
  }

  send(sender: string, type: string, stateKey: string, content: Content, prev?: string[]): RoomEvent {
    const event = this.build(sender, type, stateKey, content, prev);
    this.all.set(event.eventId, event);
    this.state.set(stateKeyOf(type, stateKey), event.eventId);
    const below = event.authEventIds.map((id) => this.generations.get(id) ?? 0);
    this.generations.set(event.eventId, 1 + Math.max(-1, ...below));
    return event;
  }

  /** Plays a branch that starts from a state, and returns the state at its end; the room stays where it was. */
  branch(start: StateMap, play: () => void): StateMap {
    const here = this.state;
    this.state = new Map(start);
    play();
    const end = this.state;
    this.state = here;
    return end;
  }

  provider(withGenerations: boolean): StateResProvider {
    return {
      events: (ids) => this.read(ids, (id) => this.all.get(id)),
      authLinks: (ids) =>
        this.read(ids, (id): AuthLinks | undefined => {
          const authEventIds = this.all.get(id)?.authEventIds;
          if (authEventIds === undefined) return undefined;
          return { authEventIds, generation: withGenerations ? this.generations.get(id) : undefined };
        }),
    };
  }

  private read<T>(ids: readonly string[], look: (id: string) => T | undefined): Promise<Map<string, T>> {
    this.calls++;
    const found = new Map<string, T>();
    for (const id of ids) {
      const value = look(id);
      if (value !== undefined) found.set(id, value);
    }
    this.loaded += found.size;
    return Promise.resolve(found);
  }
}

function table(title: string, columns: readonly string[], rows: readonly (readonly (string | number)[])[]): void {
  console.log(
    `\n${title}\n\n| ${columns.join(' | ')} |\n|${columns.map((_, i) => (i === 0 ? '---|' : '---:|')).join('')}`,
  );
  for (const row of rows)
    console.log(
      `| ${row.map((cell) => (typeof cell === 'number' ? cell.toLocaleString('en-US') : cell)).join(' | ')} |`,
    );
}

function checksPerSecond(check: () => unknown): number {
  let best = 0;
  for (let round = 0; round < 5; round++) {
    const start = performance.now();
    let done = 0;
    while (performance.now() - start < 200) {
      for (let i = 0; i < 500; i++) check();
      done += 500;
    }
    best = Math.max(best, (done * 1000) / (performance.now() - start));
  }
  return Math.round(best);
}

async function cost(room: BenchRoom, run: () => Promise<StateMap>): Promise<(string | number)[]> {
  await run();
  let best = Infinity;
  let kib = 0;
  for (let round = 0; round < 5; round++) {
    room.loaded = room.calls = 0;
    collect();
    const heap = process.memoryUsage().heapUsed;
    const start = performance.now();
    await run();
    best = Math.min(best, performance.now() - start);
    kib = Math.round((process.memoryUsage().heapUsed - heap) / 1024);
  }
  return [best.toFixed(best < 10 ? 2 : 0), room.loaded, room.calls, kib];
}

const costs = ['ms', 'events', 'calls', 'KiB'];

function authChecks(): void {
  const room = new BenchRoom('12', 1_000);
  const many = Object.fromEntries(Array.from({ length: 1_000 }, (_, i) => [`@u${i}:b.example`, i % 50]));
  room.levels({ users: { ...many, [bob]: 50 } });
  const state = authStateOf([...room.state.values()].map((id) => room.all.get(id) as RoomEvent));
  const next = { users: { ...many, [bob]: 50, '@u7:b.example': 8 } };
  const events: [string, RoomEvent][] = [
    ['message', room.build('@u9:b.example', 'm.room.message', undefined, { body: 'hello' })],
    ['topic', room.build(bob, 'm.room.topic', '', { topic: 'hello' })],
    ['join of a public room', room.build('@new:b.example', 'm.room.member', '@new:b.example', { membership: 'join' })],
    ['ban', room.build(bob, 'm.room.member', '@u9:b.example', { membership: 'ban' })],
    ['power levels of 1,000 users', room.build(alice, 'm.room.power_levels', '', next)],
  ];
  const rows = events.map(([what, event]): [string, number] => {
    if (!checkAuth(event, state).allowed) throw new Error(`${what} must be allowed`);
    return [what, checksPerSecond(() => checkAuth(event, state))];
  });
  table('Auth checks, room version 12', ['event', 'per second'], rows);
}

async function byConflict(version: string): Promise<void> {
  const rows: (string | number)[][] = [];
  for (const size of [10, 100, 1_000, 10_000]) {
    const room = new BenchRoom(version, 1_000);
    const set = (sender: string) => () => {
      for (let i = 0; i < size / 2; i++) room.send(sender, 'org.example.entry', `${i}`, { by: sender });
    };
    const sets = [room.branch(room.state, set(alice)), room.branch(room.state, set(bob))];
    rows.push([size, ...(await cost(room, () => resolveState(sets, room.provider(true), room.rules)))]);
  }
  table(`Conflicted events, room version ${version}, 1,000 members`, ['conflicted', ...costs], rows);
}

/** Half of the conflict are bans against joins: power events, each with its chain. */
async function byPowerConflict(version: string): Promise<void> {
  const rows: (string | number)[][] = [];
  for (const size of [10, 100, 1_000, 10_000]) {
    const room = new BenchRoom(version, size / 2 + 2);
    const each = (sender: (user: string) => string, membership: string) => () => {
      for (let i = 2; i < size / 2 + 2; i++) {
        const user = `@u${i}:b.example`;
        room.send(sender(user), 'm.room.member', user, { membership, n: 1 });
      }
    };
    const sets = [
      room.branch(
        room.state,
        each(() => bob, 'ban'),
      ),
      room.branch(
        room.state,
        each((user) => user, 'join'),
      ),
    ];
    rows.push([size, ...(await cost(room, () => resolveState(sets, room.provider(true), room.rules)))]);
  }
  table(`Bans against joins, room version ${version}`, ['conflicted', ...costs], rows);
}

async function byRoom(version: string): Promise<void> {
  const rows: (string | number)[][] = [];
  for (const members of [100, 1_000, 10_000, 100_000]) {
    const room = new BenchRoom(version, members);
    const set = (sender: string) => () => {
      for (let i = 0; i < 50; i++) room.send(sender, 'org.example.entry', `${i}`, { by: sender });
      room.send(sender, 'm.room.member', sender, { membership: 'join', displayname: sender });
    };
    const sets = [room.branch(room.state, set(alice)), room.branch(room.state, set(bob))];
    const conflict = findConflict(sets, room.rules.stateResolution);
    const whole = await cost(room, () => resolveState(sets, room.provider(true), room.rules));
    const delta = await cost(room, () => resolveConflict(conflict, room.provider(true), room.rules));
    rows.push([members, whole[0] as string, ...delta]);
  }
  const columns = ['members', 'whole state, ms', ...costs];
  table(
    `102 conflicted events in rooms of all sizes, room version ${version}; right: from the difference`,
    columns,
    rows,
  );
}

async function byChain(version: string): Promise<void> {
  const rows: (string | number)[][] = [];
  for (const length of [10, 100, 1_000, 10_000, 100_000]) {
    const room = new BenchRoom(version, 10);
    for (let i = 0; i < length; i++) room.levels({ kick: i % 50 });
    const start = room.state;
    const short = [30, 40].map((ban) => room.branch(start, () => room.levels({ ban })));
    const conflict = findConflict(short, room.rules.stateResolution);
    const stale = new Map(start);
    const fresh = room.branch(start, () => {
      for (let i = 0; i < length; i++) room.levels({ ban: i % 50 });
    });
    const forked = findConflict(
      [room.branch(stale, () => room.levels({ ban: 60 })), fresh],
      room.rules.stateResolution,
    );
    const withIndex = await cost(room, () => resolveConflict(conflict, room.provider(true), room.rules));
    const without = await cost(room, () => resolveConflict(conflict, room.provider(false), room.rules));
    const long = await cost(room, () => resolveConflict(forked, room.provider(true), room.rules));
    rows.push([length, ...withIndex.slice(0, 3), without[0] as string, without[1] as number, ...long]);
  }
  const columns = [
    'chain',
    'ms',
    'events',
    'calls',
    'no generations, ms',
    'events',
    'fork as long, ms',
    'events',
    'calls',
    'KiB',
  ];
  table(`Two power levels events on a chain of them, room version ${version}`, columns, rows);
}

console.log(`Auth rules and state resolution, one thread, best of five rounds, Node ${process.version}`);
authChecks();
for (const version of ['11', '12']) {
  await byConflict(version);
  await byPowerConflict(version);
  await byRoom(version);
  await byChain(version);
}
