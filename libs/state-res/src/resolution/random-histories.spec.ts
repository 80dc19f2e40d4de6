import { createHash } from 'node:crypto';
import type { RoomEvent } from '@rookery/events';
import fc from 'fast-check';
import { authTypesFor } from '../auth/auth-types.js';
import { checkAuth } from '../auth/check-auth.js';
import { powerLevelsOf } from '../auth/power-levels.js';
import { authStateOf } from '../auth/verdict.js';
import { splitStateKey, stateKeyOf, type StateMap } from '../state-map.js';
import { conflictAmong, findConflict, idsByKey } from './conflict.js';
import { alice, bob, carol, type Content, History, mallory } from './history.fixture.js';
import { compareByTime } from './power-order.js';
import type { StateResProvider } from './provider.js';
import { resolveConflict, resolveState } from './resolve-state.js';

const users = [alice, bob, carol, mallory];

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
    if (this.history.rules.stateResolution === 'v1') return this.resolveV1(sets);
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
    const power = new Set(events.filter((event) => this.isPowerEvent(event)));
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

  /** Version 1: a row of events by rising depth and falling hash for what decides about auth, one winner for the rest. */
  resolveV1(sets: readonly StateMap[]): StateMap {
    const keys = new Set(sets.flatMap((set) => [...set.keys()]));
    const byKey = new Map([...keys].map((key) => [key, new Set(sets.flatMap((set) => set.get(key) ?? []))]));
    const result = new Map<string, string>();
    for (const [key, ids] of byKey) if (ids.size === 1) result.set(key, [...ids][0] as string);
    const open = [...byKey].filter(([, ids]) => ids.size > 1).map(([key]) => key);
    const sha1 = (id: string): string => createHash('sha1').update(id).digest('hex');
    const sorted = (key: string): RoomEvent[] =>
      [...(byKey.get(key) as Set<string>)]
        .map((id) => this.get(id))
        .sort((a, b) => a.depth - b.depth || sha1(b.eventId).localeCompare(sha1(a.eventId)));
    const isAllowed = (event: RoomEvent, state: StateMap): boolean =>
      checkAuth(event, this.history.lookup(state)).allowed;
    const typeOf = (key: string): string => splitStateKey(key)[0];
    const deciding = ['m.room.power_levels', 'm.room.join_rules', 'm.room.member'];
    for (const type of deciding) {
      const winners = new Map<string, string>();
      for (const key of open.filter((name) => typeOf(name) === type)) {
        const own = new Map(result);
        for (const [at, event] of sorted(key).entries()) {
          if (at > 0 && !isAllowed(event, own)) break;
          own.set(key, event.eventId);
        }
        winners.set(key, own.get(key) as string);
      }
      for (const [key, id] of winners) result.set(key, id);
    }
    const settled = new Map(result);
    for (const key of open.filter((name) => !deciding.includes(typeOf(name)))) {
      const events = sorted(key).reverse();
      result.set(key, (events.find((event) => isAllowed(event, settled)) ?? (events.at(-1) as RoomEvent)).eventId);
    }
    return result;
  }

  private isPowerEvent({ type, sender, stateKey, content }: RoomEvent): boolean {
    if (type === 'm.room.power_levels' || type === 'm.room.join_rules') return true;
    return (
      type === 'm.room.member' && ['leave', 'ban'].includes(content['membership'] as string) && sender !== stateKey
    );
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

        // Known to differ at some keys only: at each at which they do, and at some others.
        const all = new Set(sets.flatMap((set) => [...set.keys()]));
        const differing = [...all].filter(
          (key, at) => at % 3 === 0 || new Set(sets.map((set) => set.get(key))).size > 1,
        );
        const narrow = await conflictAmong(
          new Set(differing),
          sets,
          history.rules.stateResolution,
          async () => undefined,
        );
        expect(narrow.sets).toEqual(conflict.sets);
        expect([...narrow.unconflicted.values()].sort()).toEqual([...conflict.unconflicted.values()].sort());
        for (const key of all) expect(narrow.unconflicted.get(key)).toBe(conflict.unconflicted.get(key));
        expect(await resolveConflict(narrow, history, history.rules)).toEqual(delta);
      }),
      { numRuns: 60, seed: 11 },
    );
    expect(conflicts).toBeGreaterThan(30);
  });

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
