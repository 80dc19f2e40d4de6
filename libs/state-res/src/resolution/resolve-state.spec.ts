import { buildEvent, type RoomEvent, roomVersionRules, type RoomVersionRules } from '@rookery/events';
import fc from 'fast-check';
import { authTypesFor } from '../auth/auth-types.js';
import { checkAuth } from '../auth/check-auth.js';
import { powerLevelsOf } from '../auth/power-levels.js';
import { authStateOf } from '../auth/verdict.js';
import { splitStateKey, stateKeyOf, type StateMap } from '../state-map.js';
import { findConflict, idsByKey } from './conflict.js';
import { compareByTime, isPowerEvent } from './power-order.js';
import { type AuthLinks, StateResolutionLimitError, type StateResProvider } from './provider.js';
import { resolveConflict, resolveState } from './resolve-state.js';

const alice = '@alice:a.example';
const bob = '@bob:b.example';
const carol = '@carol:c.example';
const mallory = '@mallory:m.example';
const users = [alice, bob, carol, mallory];

type Content = Record<string, unknown>;

/** An event graph: every event knows the state after it. */
class History implements StateResProvider {
  readonly rules: RoomVersionRules;
  readonly all = new Map<string, RoomEvent>();
  readonly rejected = new Set<string>();
  readonly stateAfter = new Map<string, StateMap>();
  readonly generations = new Map<string, number>();
  calls = 0;
  loaded = 0;
  create!: RoomEvent;
  private clock = 1_000;

  constructor(version: string) {
    this.rules = roomVersionRules(version) as RoomVersionRules;
  }

  /** A room of alice, open to all, with bob at 50; returns its last event. */
  static async open(version: string, levels: Content = {}): Promise<[History, RoomEvent]> {
    const history = new History(version);
    const room_version = history.rules.version;
    const content = history.rules.creatorIsSender ? { room_version } : { room_version, creator: alice };
    const create = await history.send([], alice, 'm.room.create', '', content);
    history.create = create;
    const joined = await history.member([create], alice, alice, 'join');
    const ranked = history.rules.privilegedCreators ? { [bob]: 50 } : { [alice]: 100, [bob]: 50 };
    const power = await history.levels([joined], alice, { users: ranked, ...levels });
    const rules = await history.send([power], alice, 'm.room.join_rules', '', { join_rule: 'public' });
    return [history, await history.member([rules], bob, bob, 'join')];
  }

  events(ids: readonly string[]): Promise<ReadonlyMap<string, RoomEvent>> {
    this.calls++;
    const found = new Map<string, RoomEvent>();
    for (const id of ids) {
      const event = this.all.get(id);
      if (event !== undefined) found.set(id, event);
    }
    this.loaded += found.size;
    return Promise.resolve(found);
  }

  isRejected(ids: readonly string[]): Promise<ReadonlySet<string>> {
    return Promise.resolve(new Set(ids.filter((id) => this.rejected.has(id))));
  }

  /** The same provider with an index of auth links and, unless told otherwise, generations. */
  indexed(withGenerations = true): StateResProvider {
    return {
      events: (ids) => this.events(ids),
      isRejected: (ids) => this.isRejected(ids),
      authLinks: (ids) => {
        this.calls++;
        const links = new Map<string, AuthLinks>();
        for (const id of ids) {
          const authEventIds = this.all.get(id)?.authEventIds;
          const generation = withGenerations ? this.generations.get(id) : undefined;
          if (authEventIds !== undefined) links.set(id, { authEventIds, generation });
        }
        return Promise.resolve(links);
      },
    };
  }

  async stateBefore(prev: readonly RoomEvent[]): Promise<StateMap> {
    return resolveState(
      prev.map((event) => this.stateAfter.get(event.eventId) as StateMap),
      this,
      this.rules,
    );
  }

  lookup(state: StateMap): ReturnType<typeof authStateOf> {
    return authStateOf([...state.values()].map((id) => this.all.get(id) as RoomEvent));
  }

  async send(
    prev: readonly RoomEvent[],
    sender: string,
    type: string,
    stateKey: string,
    content: Content,
    options: { state?: StateMap; ts?: number; ignoreAuth?: boolean } = {},
  ): Promise<RoomEvent> {
    const before = options.state ?? (await this.stateBefore(prev));
    const wanted = authTypesFor({ type, stateKey, sender, content }, this.rules);
    const authEventIds = wanted.map(([t, k]) => before.get(stateKeyOf(t, k))).filter((id) => id !== undefined);
    const isCreate = type === 'm.room.create';
    const event = buildEvent(
      {
        type,
        stateKey,
        sender,
        content,
        roomId: isCreate ? (this.rules.createEventImplied ? undefined : '!room:a.example') : this.create.roomId,
        prevEventIds: prev.map((event) => event.eventId),
        authEventIds,
        originServerTs: options.ts ?? this.clock++,
        depth: 1 + Math.max(0, ...prev.map((event) => event.depth)),
        eventId: `$${this.all.size}:${sender.split(':')[1]}`,
      },
      this.rules,
    );
    if (options.ignoreAuth !== true) {
      const verdict = checkAuth(event, this.lookup(before));
      if (!verdict.allowed) throw new Error(`${type} by ${sender}: ${verdict.rule} ${verdict.reason}`);
    }
    this.all.set(event.eventId, event);
    this.stateAfter.set(event.eventId, new Map(before).set(stateKeyOf(type, stateKey), event.eventId));
    const generation = Math.max(-1, ...authEventIds.map((id) => this.generations.get(id) as number)) + 1;
    this.generations.set(event.eventId, generation);
    return event;
  }

  member(prev: readonly RoomEvent[], sender: string, target: string, membership: string, extra: Content = {}) {
    return this.send(prev, sender, 'm.room.member', target, { membership, ...extra });
  }

  levels(prev: readonly RoomEvent[], sender: string, content: Content, ts?: number) {
    return this.send(prev, sender, 'm.room.power_levels', '', content, ts === undefined ? {} : { ts });
  }

  topic(prev: readonly RoomEvent[], sender: string, topic: string) {
    return this.send(prev, sender, 'm.room.topic', '', { topic });
  }

  /** The event that counts after these. */
  async winner(prev: readonly RoomEvent[], type: string, stateKey = ''): Promise<RoomEvent | undefined> {
    const id = (await this.stateBefore(prev)).get(stateKeyOf(type, stateKey));
    return id === undefined ? undefined : this.all.get(id);
  }
}

const modern = ['2', '6', '9', '11', '12'];

describe.each(modern)('forks in room version %s', (version) => {
  it('keeps a ban against a concurrent join', async () => {
    const [history, start] = await History.open(version);
    const member = await history.member([start], mallory, mallory, 'join');
    const ban = await history.member([member], alice, mallory, 'ban');
    const rename = await history.member([member], mallory, mallory, 'join', { displayname: 'later' });
    for (const heads of [
      [ban, rename],
      [rename, ban],
    ]) {
      expect(await history.winner(heads, 'm.room.member', mallory)).toBe(ban);
    }
  });

  it('keeps a kick against a concurrent invitation by the kicked', async () => {
    const [history, start] = await History.open(version);
    const locked = await history.send([start], alice, 'm.room.join_rules', '', { join_rule: 'invite' });
    const kick = await history.member([locked], alice, bob, 'leave');
    const invite = await history.member([locked], bob, carol, 'invite');
    expect(await history.winner([invite, kick], 'm.room.member', bob)).toBe(kick);
    expect(await history.winner([invite, kick], 'm.room.member', carol)).toBeUndefined();
  });

  it('lets the more powerful win a race of power levels', async () => {
    const [history, start] = await History.open(version);
    const before = (await history.winner([start], 'm.room.power_levels')) as RoomEvent;
    const of = (changes: Content): Content => ({ users: { ...(before.content['users'] as Content), ...changes } });
    // Bob is first by the clock, but alice takes his power away.
    const promotion = await history.levels([start], bob, of({ [carol]: 50 }), 10);
    const demotion = await history.levels([start], alice, of({ [bob]: 0 }), 20);
    expect(await history.winner([promotion, demotion], 'm.room.power_levels')).toBe(demotion);
  });

  it('drops what a demoted moderator did meanwhile', async () => {
    const [history, start] = await History.open(version);
    const old = await history.topic([start], alice, 'old');
    const before = (await history.winner([old], 'm.room.power_levels')) as RoomEvent;
    const users = { ...(before.content['users'] as Content), [bob]: 0 };
    const demotion = await history.levels([old], alice, { users });
    const topic = await history.topic([old], bob, 'new');
    const ban = await history.member([topic], bob, carol, 'ban');
    const state = await history.stateBefore([ban, demotion]);
    expect(state.get(stateKeyOf('m.room.topic', ''))).toBe(old.eventId);
    expect(state.get(stateKeyOf('m.room.member', carol))).toBeUndefined();
  });

  it('takes the later of two topics under the same power levels', async () => {
    const [history, start] = await History.open(version);
    const later = await history.send([start], alice, 'm.room.topic', '', { topic: 'a' }, { ts: 90 });
    const earlier = await history.send([start], bob, 'm.room.topic', '', { topic: 'b' }, { ts: 80 });
    expect(await history.winner([later, earlier], 'm.room.topic')).toBe(later);
  });

  it('takes the topic under newer power levels over a later one under older', async () => {
    const [history, start] = await History.open(version);
    const before = (await history.winner([start], 'm.room.power_levels')) as RoomEvent;
    const power = await history.levels([start], alice, { ...before.content, kick: 40 });
    const newer = await history.send([power], alice, 'm.room.topic', '', { topic: 'a' }, { ts: 5 });
    const older = await history.send([start], alice, 'm.room.topic', '', { topic: 'b' }, { ts: 5_000 });
    expect(await history.winner([older, newer], 'm.room.topic')).toBe(newer);
  });

  it('does not look at the room for a small conflict', async () => {
    const [history, start] = await History.open(version);
    let last = start;
    for (let i = 0; i < 200; i++) last = await history.member([last], `@u${i}:x`, `@u${i}:x`, 'join');
    const heads = [await history.topic([last], alice, 'a'), await history.topic([last], bob, 'b')];
    const sets = heads.map((event) => history.stateAfter.get(event.eventId) as StateMap);
    history.loaded = history.calls = 0;
    await resolveState(sets, history, history.rules);
    expect(history.loaded).toBeLessThan(8);
    expect(history.calls).toBeLessThan(8);
  });
});

describe('state resets', () => {
  /**
   * Bob and carol joined while the room was public; a server that lost bob sends a state without him after it was
   * closed. Carol's join rests on the old join rules, so that they are not in the auth difference.
   */
  async function lostMember(version: string): Promise<RoomEvent | undefined> {
    const [history, start] = await History.open(version);
    const joined = await history.member([start], carol, carol, 'join');
    const closed = await history.send([joined], alice, 'm.room.join_rules', '', { join_rule: 'invite' });
    const whole = history.stateAfter.get(closed.eventId) as StateMap;
    const holed = new Map(whole);
    holed.delete(stateKeyOf('m.room.member', bob));
    const resolved = await resolveState([whole, holed], history, history.rules);
    return history.all.get(resolved.get(stateKeyOf('m.room.member', bob)) ?? '');
  }

  it('v2 forgets a member who could not join today', async () => {
    expect(await lostMember('11')).toBeUndefined();
  });

  it('v2.1 keeps the member', async () => {
    expect(await lostMember('12')).toMatchObject({ sender: bob });
  });

  /** The power levels between two conflicting ones are agreed to have happened, so that v2 does not replay them. */
  async function skippedPowerLevels(version: string): Promise<[RoomEvent | undefined, RoomEvent, RoomEvent]> {
    const [history, start] = await History.open(version);
    const first = (await history.winner([start], 'm.room.power_levels')) as RoomEvent;
    const joined = await history.member([start], carol, carol, 'join');
    const users = { ...(first.content['users'] as Content), [carol]: 60 };
    const second = await history.levels([joined], alice, { users });
    // Both states hold an event that rests on the second power levels.
    const name = await history.send([second], carol, 'm.room.name', '', { name: 'n' });
    const third = await history.levels([name], carol, { users, kick: 55 });
    const after = history.stateAfter.get(third.eventId) as StateMap;
    const stale = new Map(after).set(stateKeyOf('m.room.power_levels', ''), first.eventId);
    const resolved = await resolveState([after, stale], history, history.rules);
    return [history.all.get(resolved.get(stateKeyOf('m.room.power_levels', '')) ?? ''), first, third];
  }

  it('v2 falls back to old power levels', async () => {
    const [winner, first] = await skippedPowerLevels('11');
    expect(winner).toBe(first);
  });

  it('v2.1 replays the power levels in between', async () => {
    const [winner, , third] = await skippedPowerLevels('12');
    expect(winner).toBe(third);
  });
});

describe('room version 1', () => {
  it('takes the deeper power levels as long as each allows the next', async () => {
    const [history, start] = await History.open('1');
    const before = (await history.winner([start], 'm.room.power_levels')) as RoomEvent;
    const shallow = await history.levels([start], alice, { ...before.content, kick: 10 });
    const topic = await history.topic([start], alice, 't');
    const deep = await history.levels([topic], bob, { ...before.content, kick: 20 });
    expect(await history.winner([deep, shallow], 'm.room.power_levels')).toBe(deep);
    const demoting = await history.levels([start], alice, { users: { [alice]: 100 } });
    expect(await history.winner([deep, demoting], 'm.room.power_levels')).toBe(demoting);
  });

  it('takes the deepest of the others that is allowed, and of equals the lower hash', async () => {
    const [history, start] = await History.open('1');
    const left = await history.topic([start], alice, 'a');
    const right = await history.topic([start], bob, 'b');
    // SHA-1 of "$5:a.example" is 40eb…, of "$6:b.example" 1586…
    expect([left.eventId, right.eventId]).toEqual(['$5:a.example', '$6:b.example']);
    expect(await history.winner([right, left], 'm.room.topic')).toBe(right);
    const deeper = await history.topic([left], bob, 'c');
    expect(await history.winner([right, deeper], 'm.room.topic')).toBe(deeper);
    const ban = await history.member([start], alice, bob, 'ban');
    expect(await history.winner([left, deeper, ban], 'm.room.topic')).toBe(left);
  });

  it('keeps an event that nothing allows any more rather than none', async () => {
    const [history, start] = await History.open('1');
    const topics = [await history.topic([start], bob, 'a')];
    topics.push(await history.topic([topics[0] as RoomEvent], bob, 'b'));
    const ban = await history.member([start], alice, bob, 'ban');
    expect(await history.winner([...topics, ban], 'm.room.topic')).toBe(topics[0]);
  });

  it('keeps what only one state has', async () => {
    const [history, start] = await History.open('1');
    const left = await history.topic([start], alice, 'a');
    const right = await history.send([start], bob, 'm.room.name', '', { name: 'b' });
    const state = await history.stateBefore([left, right]);
    expect(state.get(stateKeyOf('m.room.topic', ''))).toBe(left.eventId);
    expect(state.get(stateKeyOf('m.room.name', ''))).toBe(right.eventId);
  });
});

describe('bounds', () => {
  it('survives long chains without recursion, and stops at the limit or when told to', async () => {
    const [history, start] = await History.open('12', { events: { 'm.room.power_levels': 50 } });
    let last = start;
    const content = (await history.winner([start], 'm.room.power_levels'))?.content as Content;
    for (let i = 0; i < 3_000; i++) last = await history.levels([last], alice, { ...content, kick: i % 50 });
    const heads = [
      await history.member([last], bob, bob, 'join', { displayname: '1' }),
      await history.member([start], bob, bob, 'join', { displayname: '2' }),
    ];
    const sets = heads.map((event) => history.stateAfter.get(event.eventId) as StateMap);
    const resolved = await resolveState(sets, history, history.rules);
    expect(resolved.get(stateKeyOf('m.room.power_levels', ''))).toBe(last.eventId);
    await expect(resolveState(sets, history, history.rules, { maxEvents: 100 })).rejects.toThrow(
      StateResolutionLimitError,
    );
    const reason = new Error('enough');
    const signal = AbortSignal.abort(reason);
    await expect(resolveState(sets, history, history.rules, { signal })).rejects.toBe(reason);
    const controller = new AbortController();
    const running = resolveState(sets, history, history.rules, { signal: controller.signal });
    setImmediate(() => controller.abort(reason));
    await expect(running).rejects.toBe(reason);
  });

  it('leaves out events that nobody has', async () => {
    const [history, start] = await History.open('11');
    const topic = await history.topic([start], alice, 'a');
    const state = history.stateAfter.get(topic.eventId) as StateMap;
    const other = new Map(state).set(stateKeyOf('m.room.topic', ''), '$unknown');
    expect(await resolveState([state, other], history, history.rules)).toEqual(state);
  });

  it('answers for no state, one state and equal states without reading anything', async () => {
    const [history, start] = await History.open('11');
    const state = history.stateAfter.get(start.eventId) as StateMap;
    history.calls = 0;
    expect(await resolveState([], history, history.rules)).toEqual(new Map());
    expect(await resolveState([state], history, history.rules)).toBe(state);
    expect(await resolveState([state, new Map(state)], history, history.rules)).toEqual(state);
    expect(history.calls).toBe(0);
  });

  it('does not take rejected auth events for missing state', async () => {
    const [history, start] = await History.open('11', { events: { 'm.room.topic': 0 } });
    const closed = await history.send([start], alice, 'm.room.join_rules', '', { join_rule: 'invite' });
    const invite = await history.member([closed], alice, carol, 'invite');
    const join = await history.member([invite], carol, carol, 'join');
    // The topic brings carol's invitation into the chains of both states, so that it is not itself resolved.
    const topic = await history.topic([join], carol, 'hello');
    const whole = history.stateAfter.get(topic.eventId) as StateMap;
    const key = stateKeyOf('m.room.member', carol);
    const holed = new Map([...whole].filter(([name]) => name !== key));
    const resolve = (): Promise<StateMap> => resolveState([whole, holed], history, history.rules);
    expect((await resolve()).get(key)).toBe(join.eventId);
    history.rejected.add(invite.eventId);
    expect((await resolve()).get(key)).toBeUndefined();
  });
});

/** The definitions of the specification, word by word and without a thought for speed. */
class Reference {
  constructor(private readonly history: History) {}

  private get(id: string): RoomEvent {
    return this.history.all.get(id) as RoomEvent;
  }

  private chain(ids: Iterable<string>): Set<string> {
    const chain = new Set(ids);
    for (const id of chain) for (const authId of this.get(id).authEventIds) chain.add(authId);
    return chain;
  }

  private powerLevelsOf(event: RoomEvent): RoomEvent | undefined {
    return event.authEventIds.map((id) => this.get(id)).find((cited) => cited.type === 'm.room.power_levels');
  }

  authDifference(sets: readonly Iterable<string>[]): Set<string> {
    const chains = sets.map((set) => this.chain(set));
    const all = chains.flatMap((chain) => [...chain]);
    return new Set(all.filter((id) => !chains.every((chain) => chain.has(id))));
  }

  resolve(sets: readonly StateMap[]): StateMap {
    const isV21 = this.history.rules.stateResolution === 'v2.1';
    const { unconflicted, sets: rest } = findConflict(sets, this.history.rules.stateResolution);
    const conflicted = new Set(rest.flatMap((set) => [...set.values()]));
    const full = new Set([...conflicted, ...this.authDifference(sets.map((set) => set.values()))]);
    if (isV21) {
      for (const id of this.chain(conflicted)) {
        if ([...this.chain([id])].some((below) => conflicted.has(below))) full.add(id);
      }
    }
    const events = [...full].map((id) => this.get(id));
    const power = new Set(events.filter(isPowerEvent));
    for (const event of power) for (const id of event.authEventIds) if (full.has(id)) power.add(this.get(id));

    const state = new Map(isV21 ? [] : unconflicted);
    const waiting = new Set(power);
    while (waiting.size > 0) {
      const ready = [...waiting].filter((event) => !event.authEventIds.some((id) => waiting.has(this.get(id))));
      ready.sort((a, b) => this.level(b) - this.level(a) || compareByTime(a, b));
      const [next] = ready as [RoomEvent];
      waiting.delete(next);
      this.apply(state, next);
    }
    const mainline: RoomEvent[] = [];
    let at: RoomEvent | undefined = this.get(state.get(stateKeyOf('m.room.power_levels', '')) ?? '');
    for (; at !== undefined; at = this.powerLevelsOf(at)) mainline.push(at);
    const position = (event: RoomEvent): number => {
      for (let e = this.powerLevelsOf(event); e !== undefined; e = this.powerLevelsOf(e)) {
        if (mainline.includes(e)) return mainline.indexOf(e);
      }
      return Number.MAX_SAFE_INTEGER;
    };
    const others = events.filter((event) => !power.has(event));
    others.sort((a, b) => position(b) - position(a) || compareByTime(a, b));
    for (const event of others) this.apply(state, event);
    return new Map([...state, ...unconflicted]);
  }

  private level(event: RoomEvent): number {
    const cited = [this.history.create, ...event.authEventIds.map((id) => this.get(id))];
    const level = powerLevelsOf(authStateOf(cited), this.history.rules).user(event.sender);
    return level === Infinity ? Number.MAX_SAFE_INTEGER : level;
  }

  private apply(state: Map<string, string>, event: RoomEvent): void {
    const cited = event.authEventIds.map((id) => this.get(id));
    const known = [...state.values()].map((id) => this.get(id));
    const verdict = checkAuth(event, authStateOf([this.history.create, ...cited, ...known]));
    if (verdict.allowed) state.set(stateKeyOf(event.type, event.stateKey as string), event.eventId);
  }
}

interface Step {
  readonly kind: number;
  readonly actor: number;
  readonly target: number;
  readonly value: number;
  readonly heads: readonly number[];
  readonly tsMs: number;
}

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.integer({ min: 0, max: 9 }),
  actor: fc.integer({ min: 0, max: 3 }),
  target: fc.integer({ min: 0, max: 3 }),
  value: fc.integer({ min: 0, max: 3 }),
  heads: fc.array(fc.nat(7), { minLength: 1, maxLength: 3 }),
  tsMs: fc.integer({ min: 2_000, max: 2_010 }),
});

/** Plays random steps on random recent events; what the auth rules refuse does not happen. */
async function play(version: string, steps: readonly Step[]): Promise<[History, RoomEvent[]]> {
  const [history, start] = await History.open(version, { state_default: 25, kick: 25, ban: 25 });
  const made = [start];
  for (const { kind, actor, target, value, heads, tsMs } of steps) {
    const prev = [...new Set(heads.map((back) => made.at(-1 - (back % made.length)) as RoomEvent))];
    const sender = users[actor] as string;
    const subject = users[target] as string;
    const state = await history.stateBefore(prev);
    const levels = state.get(stateKeyOf('m.room.power_levels', ''));
    const content = levels === undefined ? {} : history.all.get(levels)?.content;
    const rule = ['public', 'invite', 'public', 'knock'][value];
    const draft: [string, string, Content] =
      kind <= 2
        ? ['m.room.member', sender, { membership: value === 3 ? 'leave' : 'join', n: tsMs }]
        : kind <= 4
          ? ['m.room.member', subject, { membership: ['invite', 'leave', 'ban', 'ban'][value] }]
          : kind <= 6
            ? [
                'm.room.power_levels',
                '',
                { ...content, users: { ...(content?.['users'] as Content), [subject]: value * 25 } },
              ]
            : kind === 7
              ? ['m.room.join_rules', '', { join_rule: rule }]
              : ['m.room.topic', '', { topic: `${value}` }];
    try {
      made.push(await history.send(prev, sender, ...draft, { state, ts: tsMs }));
    } catch {
      // refused
    }
  }
  return [history, made];
}

const histories = fc.record({
  steps: fc.array(step, { minLength: 5, maxLength: 40 }),
  picks: fc.array(fc.nat(12), { minLength: 2, maxLength: 5 }),
});

describe.each(['1', '2', '11', '12'])('any history in room version %s', (version) => {
  const pickSets = (history: History, made: readonly RoomEvent[], picks: readonly number[]): StateMap[] =>
    picks.map((back) => history.stateAfter.get((made.at(-1 - (back % made.length)) as RoomEvent).eventId) as StateMap);

  it('resolves to the same whatever the order, the repetition and the index', async () => {
    let conflicts = 0;
    await fc.assert(
      fc.asyncProperty(histories, async ({ steps, picks }) => {
        const [history, made] = await play(version, steps);
        const sets = pickSets(history, made, picks);
        const resolved = await resolveState(sets, history, history.rules);
        if (idsByKey(findConflict(sets, history.rules.stateResolution)).size > 0) conflicts++;

        const reversed = sets.map((set) => new Map([...set].reverse())).reverse();
        expect(await resolveState(reversed, history, history.rules)).toEqual(resolved);
        const repeated = [...sets, ...sets.slice(1).map((set) => new Map(set)), ...sets];
        expect(await resolveState(repeated, history, history.rules)).toEqual(resolved);
        expect(await resolveState([resolved, new Map(resolved)], history, history.rules)).toEqual(resolved);
        expect(await resolveState(sets, history.indexed(), history.rules)).toEqual(resolved);
        expect(await resolveState(sets, history.indexed(false), history.rules)).toEqual(resolved);
        const conflict = findConflict(sets, history.rules.stateResolution);
        const delta = await resolveConflict(conflict, history, history.rules);
        expect(new Map([...conflict.unconflicted, ...delta])).toEqual(resolved);
      }),
      { numRuns: 60, seed: 11 },
    );
    expect(conflicts).toBeGreaterThan(30);
  });

  if (version !== '1') {
    it('resolves as the specification says, word by word', async () => {
      await fc.assert(
        fc.asyncProperty(histories, async ({ steps, picks }) => {
          const [history, made] = await play(version, steps);
          const sets = pickSets(history, made, picks);
          const resolved = await resolveState(sets, history, history.rules);
          expect(resolved).toEqual(new Reference(history).resolve(sets));
          // A state with holes and stale entries, as a faulty server would send it.
          const odd = sets.map((set, i) => new Map([...set].filter((_, at) => (at + i) % 4 !== 3 || at === 0)));
          const covered: StateResProvider = {
            events: (ids) => history.events(ids),
            authDifference: (conflicted, unconflicted) =>
              Promise.resolve(
                new Reference(history).authDifference(conflicted.map((ids) => [...ids, ...unconflicted.values()])),
              ),
          };
          const uncovered = { ...covered, authDifference: () => Promise.resolve(undefined) };
          for (const provider of [history, history.indexed(), history.indexed(false), covered, uncovered]) {
            const found = await resolveState(odd, provider, history.rules);
            expect(found).toEqual(new Reference(history).resolve(odd));
          }
        }),
        { numRuns: 100, seed: 12 },
      );
    });
  }

  it('judges an event by the state of its auth types alone', async () => {
    await fc.assert(
      fc.asyncProperty(histories, fc.nat(3), async ({ steps }, actor) => {
        const [history, made] = await play(version, steps);
        const state = history.stateAfter.get((made.at(-1) as RoomEvent).eventId) as StateMap;
        const event = await history.send(
          made.slice(-1),
          users[actor] as string,
          'm.room.name',
          '',
          {},
          { state, ignoreAuth: true },
        );
        for (const candidate of [event, ...made.slice(-3)]) {
          const wanted = new Set(authTypesFor(candidate, history.rules).map(([t, k]) => stateKeyOf(t, k)));
          wanted.add(stateKeyOf('m.room.create', ''));
          const relevant = new Map([...state].filter(([key]) => wanted.has(key)));
          const verdict = checkAuth(candidate, history.lookup(state));
          expect(checkAuth(candidate, history.lookup(relevant))).toEqual(verdict);
        }
      }),
      { numRuns: 40, seed: 13 },
    );
  });
});

describe('state keys', () => {
  it('are taken apart as they were put together, whatever they hold', () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (type, stateKey) => {
        expect(splitStateKey(stateKeyOf(type, stateKey))).toEqual([type, stateKey]);
      }),
    );
    expect(stateKeyOf('a', '1:b')).not.toBe(stateKeyOf('a1:', 'b'));
  });
});
