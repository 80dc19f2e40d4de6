import { buildEvent, type RoomEvent, roomVersionRules, type RoomVersionRules } from '@rookery/events';
import { creatorsOf, parsePowerLevel, powerLevelsOf } from './power-levels.js';
import { type AuthState, authStateOf } from './verdict.js';

const alice = '@alice:a';
const bob = '@bob:a';
const rulesOf = (version: string): RoomVersionRules => roomVersionRules(version) as RoomVersionRules;

function event(version: string, type: string, content: Record<string, unknown>): RoomEvent {
  const rules = rulesOf(version);
  const roomId = rules.createEventImplied && type === 'm.room.create' ? undefined : '!room:a';
  const fixed = { sender: alice, stateKey: '', originServerTs: 1, depth: 1, prevEventIds: [], authEventIds: [] };
  return buildEvent({ ...fixed, type, content, roomId, eventId: '$1:a' }, rules);
}

function state(version: string, create: Record<string, unknown>, levels?: Record<string, unknown>): AuthState {
  const events = [event(version, 'm.room.create', create)];
  if (levels !== undefined) events.push(event(version, 'm.room.power_levels', levels));
  return authStateOf(events);
}

describe('PowerLevels', () => {
  it('has the defaults of a room without power levels', () => {
    const levels = powerLevelsOf(state('10', { creator: bob }), rulesOf('10'));
    expect([levels.user(alice), levels.user(bob)]).toEqual([0, 100]);
    expect([levels.event('m.x', true), levels.event('m.x', false)]).toEqual([50, 0]);
    const scalars = (['ban', 'kick', 'redact', 'invite', 'users_default'] as const).map((name) => levels.scalar(name));
    expect(scalars).toEqual([50, 50, 50, 0, 0]);
    expect(levels.notification('room')).toBe(50);
  });

  it('knows the creator by the sender from version 11 on', () => {
    expect(powerLevelsOf(state('11', { creator: bob }), rulesOf('11')).user(alice)).toBe(100);
    expect(powerLevelsOf(state('11', { creator: bob }), rulesOf('11')).user(bob)).toBe(0);
  });

  it('treats creators like everybody else once there are power levels, up to version 11', () => {
    const levels = powerLevelsOf(state('11', {}, { users: { [bob]: 30 }, users_default: 5 }), rulesOf('11'));
    expect([levels.user(alice), levels.user(bob)]).toEqual([5, 30]);
  });

  it('keeps creators above all in version 12', () => {
    const create = { additional_creators: [bob] };
    const levels = powerLevelsOf(state('12', create, { users: { [bob]: 1 } }), rulesOf('12'));
    expect([levels.user(alice), levels.user(bob), levels.user('@x:a')]).toEqual([Infinity, Infinity, 0]);
    expect(powerLevelsOf(state('11', create), rulesOf('11')).user(bob)).toBe(0);
  });

  it('reads what the power levels event says', () => {
    const content = {
      events: { 'm.x': 7 },
      events_default: 3,
      state_default: 4,
      invite: 9,
      notifications: { room: 20 },
    };
    const levels = powerLevelsOf(state('11', {}, content), rulesOf('11'));
    expect([levels.event('m.x', true), levels.event('m.y', true), levels.event('m.y', false)]).toEqual([7, 4, 3]);
    expect([levels.scalar('invite'), levels.notification('room'), levels.notification('other')]).toEqual([9, 20, 50]);
  });
});

describe('creatorsOf', () => {
  it('lists each creator once, the sender first', () => {
    const create = event('12', 'm.room.create', { additional_creators: [bob, alice, bob, 7] });
    expect(creatorsOf(create)).toEqual([alice, bob]);
    expect(creatorsOf(event('11', 'm.room.create', { additional_creators: [bob] }))).toEqual([alice]);
    expect(creatorsOf(event('10', 'm.room.create', { creator: bob }))).toEqual([bob]);
    expect(creatorsOf(event('10', 'm.room.create', { creator: 1 }))).toEqual([]);
  });
});

describe('parsePowerLevel', () => {
  it.each([
    [50, 50, 50, 50],
    [-3, -3, -3, -3],
    [50.9, 50, undefined, undefined],
    [-50.9, -50, undefined, undefined],
    [Infinity, undefined, undefined, undefined],
    [NaN, undefined, undefined, undefined],
    ['50', 50, 50, undefined],
    ['  -0050\n', -50, -50, undefined],
    ['+7', 7, 7, undefined],
    ['50.0', undefined, undefined, undefined],
    ['5e1', undefined, undefined, undefined],
    ['0x10', undefined, undefined, undefined],
    ['+-1', undefined, undefined, undefined],
    ['', undefined, undefined, undefined],
    ['9'.repeat(400), undefined, undefined, undefined],
    [null, undefined, undefined, undefined],
    [true, undefined, undefined, undefined],
    [[50], undefined, undefined, undefined],
  ])('reads %j', (value, floats, texts, integers) => {
    expect(parsePowerLevel(value, rulesOf('5'))).toBe(floats);
    expect(parsePowerLevel(value, rulesOf('9'))).toBe(texts);
    expect(parsePowerLevel(value, rulesOf('10'))).toBe(integers);
  });
});
