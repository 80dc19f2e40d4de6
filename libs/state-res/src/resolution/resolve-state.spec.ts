import type { RoomEvent } from '@rookery/events';
import { stateKeyOf, type StateMap } from '../state-map.js';
import { alice, bob, carol, type Content, History, mallory } from './history.fixture.js';
import { StateResolutionLimitError, type StateResProvider } from './provider.js';
import { resolveState } from './resolve-state.js';

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

  it('drops what a banned moderator did meanwhile, whatever the clocks say', async () => {
    const [history, start] = await History.open(version);
    const old = await history.topic([start], alice, 'old');
    const ban = await history.send([old], alice, 'm.room.member', bob, { membership: 'ban' }, { ts: 9_000 });
    const topic = await history.send([old], bob, 'm.room.topic', '', { topic: 'new' }, { ts: 8_000 });
    expect(await history.winner([topic, ban], 'm.room.topic')).toBe(old);
    expect(await history.winner([ban, topic], 'm.room.member', bob)).toBe(ban);
  });

  it('sorts by how far back the power levels lie', async () => {
    const [history, start] = await History.open(version);
    const { content } = (await history.winner([start], 'm.room.power_levels')) as RoomEvent;
    const older = await history.send([start], alice, 'm.room.topic', '', { topic: 'a' }, { ts: 9_000 });
    let power = start;
    for (const kick of [41, 42, 43, 44]) power = await history.levels([power], alice, { ...content, kick });
    const newer = await history.send([power], alice, 'm.room.topic', '', { topic: 'b' }, { ts: 8_000 });
    let head = power;
    for (const kick of [45, 46, 47, 48]) head = await history.levels([head], alice, { ...content, kick });
    // The power levels are agreed on, so that those in between are read for the order alone.
    const sets = [older, newer].map((topic) =>
      new Map(history.stateAfter.get(head.eventId)).set(stateKeyOf('m.room.topic', ''), topic.eventId),
    );
    const resolved = await resolveState(sets, history.indexed(), history.rules);
    // Without power events in conflict, v2.1 has no power levels to start a mainline from: the clock decides.
    const expected = version === '12' ? older : newer;
    expect(resolved.get(stateKeyOf('m.room.topic', ''))).toBe(expected.eventId);
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

  it('walks no further than to where chains meet when it knows generations', async () => {
    const [history, start] = await History.open('12');
    const { content } = (await history.winner([start], 'm.room.power_levels')) as RoomEvent;
    let last = start;
    for (let i = 0; i < 300; i++) last = await history.levels([last], alice, { ...content, kick: i % 50 });
    // Two steps on either side: the first of each is in one chain only, and in no state.
    const fork = async (ban: number): Promise<StateMap> => {
      const first = await history.levels([last], alice, { ...content, ban });
      const second = await history.levels([first], alice, { ...content, ban: ban + 1 });
      return history.stateAfter.get(second.eventId) as StateMap;
    };
    const sets = [await fork(10), await fork(20)];
    const resolved = await resolveState(sets, history, history.rules);
    history.loaded = history.calls = 0;
    expect(await resolveState(sets, history.indexed(), history.rules)).toEqual(resolved);
    expect(history.loaded).toBeLessThan(20);
    expect(history.calls).toBeLessThan(20);
  });

  it('lets others run between the events that it asks for, in however many questions', async () => {
    const [history, start] = await History.open('11');
    let last = start;
    for (let n = 0; n < 1_600; n++)
      last = await history.send([last], alice, 'org.example.thing', `${n}`, {}, { ignoreAuth: true });
    // The join is in one chain only, and nothing on which both agree leads to it.
    const joined = await history.member([last], carol, carol, 'join');
    const left = await history.member([joined], carol, carol, 'leave');
    const sets = [last, left].map((event) => history.stateAfter.get(event.eventId) as StateMap);
    let [inTurn, most, all] = [0, 0, 0];
    const provider = history.indexed();
    const counted: StateResProvider = {
      ...provider,
      authLinks: (ids) => {
        all += ids.length;
        most = Math.max(most, (inTurn += ids.length));
        return provider.authLinks!(ids);
      },
    };
    const turn = (): Promise<void> => Promise.resolve(void (inTurn = 0));
    const resolved = await resolveState(sets, counted, history.rules, { turn });
    expect(resolved.get(stateKeyOf('m.room.member', carol))).toBe(left.eventId);
    expect(all).toBeGreaterThan(1_600);
    expect(most).toBeLessThanOrEqual(500);
  });

  it.each(['11', '12'])('leaves out events that nobody has in room version %s', async (version) => {
    const [history, start] = await History.open(version);
    const left = await history.member([start], carol, carol, 'join');
    const right = await history.member([start], carol, carol, 'join', { displayname: 'c' });
    const sets = [left, right].map((event) => history.stateAfter.get(event.eventId) as StateMap);
    history.all.delete(start.eventId);
    for (const id of left.authEventIds) if (id !== history.create.eventId) history.all.delete(id);
    const key = stateKeyOf('m.room.member', carol);
    const resolved = await resolveState(sets, history, history.rules);
    // Without the join rules nobody can join any more; all else is as it was.
    expect(resolved.get(key)).toBeUndefined();
    expect(resolved.size).toBe((sets[0] as StateMap).size - 1);
  });

  it('takes the state that is known over an unknown event', async () => {
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
