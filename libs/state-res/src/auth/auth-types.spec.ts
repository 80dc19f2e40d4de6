import { roomVersionRules, type RoomVersionRules } from '@rookery/events';
import { authTypesFor } from './auth-types.js';

const alice = '@alice:a';
const bob = '@bob:b';
const carol = '@carol:c';

function select(version: string, type: string, stateKey: string | undefined, content = {}): string[] {
  const input = { type, stateKey, sender: alice, content };
  return authTypesFor(input, roomVersionRules(version) as RoomVersionRules).map(([name, key]) => `${name} ${key}`);
}

const base = ['m.room.create ', 'm.room.power_levels ', `m.room.member ${alice}`];
const token = { third_party_invite: { signed: { token: 't' } } };

describe('authTypesFor', () => {
  it('selects nothing for the create event', () => {
    expect(select('1', 'm.room.create', '')).toEqual([]);
    expect(select('12', 'm.room.create', '')).toEqual([]);
  });

  it('selects the create event up to version 11', () => {
    expect(select('11', 'm.room.message', undefined)).toEqual(base);
    expect(select('12', 'm.room.message', undefined)).toEqual(base.slice(1));
    expect(select('11', 'm.room.name', '')).toEqual(base);
  });

  it.each([
    ['join', {}, ['m.room.join_rules ']],
    ['invite', {}, ['m.room.join_rules ']],
    ['knock', {}, ['m.room.join_rules ']],
    ['leave', {}, []],
    ['ban', {}, []],
    ['invite', token, ['m.room.join_rules ', 'm.room.third_party_invite t']],
    ['join', token, ['m.room.join_rules ']],
    ['invite', { third_party_invite: { signed: {} } }, ['m.room.join_rules ']],
    ['invite', { third_party_invite: 'odd' }, ['m.room.join_rules ']],
    ['join', { join_authorised_via_users_server: carol }, ['m.room.join_rules ', `m.room.member ${carol}`]],
    ['join', { join_authorised_via_users_server: bob }, ['m.room.join_rules ']],
    ['join', { join_authorised_via_users_server: alice }, ['m.room.join_rules ']],
    ['join', { join_authorised_via_users_server: 1 }, ['m.room.join_rules ']],
    ['leave', { join_authorised_via_users_server: carol }, []],
  ])('selects for a membership %s with %j', (membership, content, more) => {
    const selected = select('9', 'm.room.member', bob, { membership, ...content });
    expect(selected).toEqual([...base, `m.room.member ${bob}`, ...more]);
  });

  it('selects one member for a membership of the sender', () => {
    expect(select('9', 'm.room.member', alice, { membership: 'leave' })).toEqual(base);
  });

  it('knows no authorizing user before version 8', () => {
    const content = { membership: 'join', join_authorised_via_users_server: carol };
    expect(select('7', 'm.room.member', alice, content)).toEqual([...base, 'm.room.join_rules ']);
  });

  it('selects no target of a membership event without a state key', () => {
    expect(select('9', 'm.room.member', undefined, { membership: 'leave' })).toEqual(base);
  });
});
