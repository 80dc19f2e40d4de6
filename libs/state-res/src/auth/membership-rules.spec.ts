import { roomVersions, signEvent } from '@rookery/events';
import { checkAuthEvents } from './auth-events.js';
import {
  type Case,
  type Content,
  alice,
  bob,
  carol,
  dave,
  eve,
  ivy,
  kim,
  mallory,
  key,
  otherKey,
  casesOf,
  Room,
} from './room.fixture.js';
import type { AuthVerdict } from './verdict.js';

const power = 'm.room.power_levels ';
const own = `m.room.member ${bob}`;
const offer = { public_key: key.publicKey, public_keys: [{ public_key: key.publicKey }] };
const join = (room: Room, user: string, content: Content = {}): AuthVerdict =>
  room.check(room.membership(user, user, 'join', content));

/** From the section "Authorization rules" of every room version: the rules for `m.room.member`. */
const cases: Case[] = [
  {
    what: 'a membership event has a state key',
    rule: '5.1 5.1 4.1 4.1 4.1 4.1 4.1 5.1',
    refused: (room) => room.check(room.event('m.room.member', carol, { membership: 'join' })),
    allowed: (room) => room.check(room.event('m.room.member', carol, { membership: 'join' }, { stateKey: carol })),
  },
  ...['', 'carol', '@carol', '@carol:', 'carol:c.example', '!carol:c.example'].map((stateKey) => ({
    what: `a membership is not that of ${JSON.stringify(stateKey)}`,
    rule: '5.1 5.1 4.1 4.1 4.1 4.1 4.1 5.1',
    refused: (room: Room) => room.check(room.membership(alice, stateKey, 'invite')),
    allowed: (room: Room) => room.check(room.membership(alice, dave, 'invite')),
  })),
  {
    what: 'a membership event has a membership',
    rule: '5.1 5.1 4.1 4.1 4.1 4.1 4.1 5.1',
    refused: (room) => room.check(room.membership(carol, carol, undefined)),
    allowed: (room) => room.check(room.membership(carol, carol, 'leave')),
  },
  {
    what: 'the authorizing server has signed',
    rule: '- - - - 4.2.1 4.2.1 4.2.1 5.2.1',
    refused: (room) => {
      const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
      return checkAuthEvents(signEvent(event, 'b.example', key), room.cite(power, own));
    },
    allowed: (room) => {
      const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
      return checkAuthEvents(signEvent(event, 'a.example', key), room.cite(power, own));
    },
  },
  {
    what: 'the signature of the authorizing server is valid',
    rule: '- - - - 4.2.1 4.2.1 4.2.1 5.2.1',
    refused: (room) => {
      const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
      const signedBy = (server: string): boolean => server === 'b.example';
      return checkAuthEvents(signEvent(event, 'a.example', key), room.cite(power, own), { signedBy });
    },
    allowed: (room) => {
      const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
      return checkAuthEvents(event, room.cite(power, own), { signedBy: (server) => server === 'a.example' });
    },
  },
  {
    what: 'only the creator’s first join needs no join rule',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => room.check(room.membership(dave, dave, 'join', {}, { prev: [room.create.eventId] })),
    allowed: (room) => {
      room.joinRule('private').state.delete(`m.room.member ${alice}`);
      return room.check(room.membership(alice, alice, 'join', {}, { prev: [room.create.eventId] }));
    },
  },
  {
    what: 'the creator’s join follows the create event only',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => {
      room.state.delete(`m.room.member ${alice}`);
      return room.check(room.membership(alice, alice, 'join', {}, { prev: [room.create.eventId, '$other:a.example'] }));
    },
    allowed: (room) => {
      room.state.delete(`m.room.member ${alice}`);
      return room.check(room.membership(alice, alice, 'join', {}, { prev: [room.create.eventId] }));
    },
  },
  {
    what: 'nobody joins for another',
    rule: '5.2.2 5.2.2 4.2.2 4.2.2 4.3.2 4.3.2 4.3.2 5.3.2',
    refused: (room) => room.check(room.membership(alice, ivy, 'join')),
    allowed: (room) => room.check(room.membership(ivy, ivy, 'join')),
  },
  {
    what: 'the banned do not join',
    rule: '5.2.3 5.2.3 4.2.3 4.2.3 4.3.3 4.3.3 4.3.3 5.3.3',
    refused: (room) => join(room.joinRule('public'), mallory),
    allowed: (room) => join(room.joinRule('public'), dave),
  },
  {
    what: 'join rule invite lets the invited in',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => join(room, dave),
    allowed: (room) => join(room, ivy),
  },
  {
    what: 'join rule invite lets members change their profile',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => join(room, kim),
    allowed: (room) => join(room, carol, { displayname: 'Carol' }),
  },
  {
    what: 'no join rules means invite',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => {
      room.state.delete('m.room.join_rules ');
      return join(room, dave);
    },
    allowed: (room) => {
      room.state.delete('m.room.join_rules ');
      return join(room, ivy);
    },
  },
  {
    what: 'join rule knock lets the invited in',
    rule: '- - - 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => join(room.joinRule('knock'), kim),
    allowed: (room) => join(room.joinRule('knock'), ivy),
  },
  {
    what: 'join rule knock is unknown before version 7',
    rule: '5.2.6 5.2.6 4.2.6 - - - - -',
    refused: (room) => join(room.joinRule('knock'), ivy),
    allowed: (room) => join(room.joinRule('invite'), ivy),
  },
  {
    what: 'join rule restricted is unknown before version 8',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 - - - -',
    refused: (room) => join(room.joinRule('restricted'), ivy),
    allowed: (room) => join(room.joinRule('public'), ivy),
  },
  {
    what: 'join rule knock_restricted is unknown before version 10',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 - - -',
    refused: (room) => join(room.joinRule('knock_restricted'), ivy),
    allowed: (room) => join(room.joinRule('public'), ivy),
  },
  ...['restricted', 'knock_restricted'].map((rule): Case => {
    const numbers =
      rule === 'restricted' ? '- - - - 4.3.5.2 4.3.5.2 4.3.5.2 5.3.5.2' : '- - - - - 4.3.5.2 4.3.5.2 5.3.5.2';
    return {
      what: `join rule ${rule} asks for somebody who may invite`,
      rule: numbers,
      refused: (room) => join(room.joinRule(rule), dave, { join_authorised_via_users_server: carol }),
      allowed: (room) => join(room.joinRule(rule), dave, { join_authorised_via_users_server: bob }),
    };
  }),
  {
    what: 'the authorizing user is in the room',
    rule: '- - - - 4.3.5.2 4.3.5.2 4.3.5.2 5.3.5.2',
    refused: (room) => {
      room.member(bob, 'leave');
      return join(room.joinRule('restricted'), dave, { join_authorised_via_users_server: bob });
    },
    allowed: (room) => join(room.joinRule('restricted'), dave, { join_authorised_via_users_server: eve }),
  },
  {
    what: 'join rule restricted lets the invited in',
    rule: '- - - - 4.3.5.2 4.3.5.2 4.3.5.2 5.3.5.2',
    refused: (room) => join(room.joinRule('restricted'), dave),
    allowed: (room) => join(room.joinRule('restricted'), ivy),
  },
  {
    what: 'join rule public lets anybody in',
    rule: '5.2.6 5.2.6 4.2.6 4.2.6 4.3.7 4.3.7 4.3.7 5.3.7',
    refused: (room) => join(room.joinRule('private'), ivy),
    allowed: (room) => join(room.joinRule('public'), dave),
  },
  {
    what: 'the banned are not invited by a third party',
    rule: '5.3.1.1 5.3.1.1 4.3.1.1 4.3.1.1 4.4.1.1 4.4.1.1 4.4.1.1 5.4.1.1',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, mallory, 'invite', room.redeemed(bob, mallory)));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave)));
    },
  },
  {
    what: 'a third-party invite is signed',
    rule: '5.3.1.2 5.3.1.2 4.3.1.2 4.3.1.2 4.4.1.2 4.4.1.2 4.4.1.2 5.4.1.2',
    refused: (room) => room.check(room.membership(bob, dave, 'invite', { third_party_invite: {} })),
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', { public_key: key.publicKey }, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave)));
    },
  },
  ...['mxid', 'token'].map((name): Case => ({
    what: `a third-party invite has a ${name}`,
    rule: '5.3.1.3 5.3.1.3 4.3.1.3 4.3.1.3 4.4.1.3 4.4.1.3 4.4.1.3 5.4.1.3',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, { [name]: null })));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', { public_keys: offer.public_keys }, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave)));
    },
  })),
  {
    what: 'a third-party invite is for its user',
    rule: '5.3.1.4 5.3.1.4 4.3.1.4 4.3.1.4 4.4.1.4 4.4.1.4 4.4.1.4 5.4.1.4',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, '@zoe:b.example')));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, '@zoe:b.example', 'invite', room.redeemed(bob, '@zoe:b.example')));
    },
  },
  {
    what: 'a third-party invite is in the room',
    rule: '5.3.1.5 5.3.1.5 4.3.1.5 4.3.1.5 4.4.1.5 4.4.1.5 4.4.1.5 5.4.1.5',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, { token: 'other' })));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'other', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, { token: 'other' })));
    },
  },
  {
    what: 'a third-party invite is redeemed by its sender',
    rule: '5.3.1.6 5.3.1.6 4.3.1.6 4.3.1.6 4.4.1.6 4.4.1.6 4.4.1.6 5.4.1.6',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, eve);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave)));
    },
    allowed: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, eve);
      return room.check(room.membership(eve, dave, 'invite', room.redeemed(eve, dave)));
    },
  },
  {
    what: 'a third-party invite is signed by one of its keys',
    rule: '5.3.1.8 5.3.1.8 4.3.1.8 4.3.1.8 4.4.1.8 4.4.1.8 4.4.1.8 5.4.1.8',
    refused: (room) => {
      room.set('m.room.third_party_invite', 'token', offer, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, {}, otherKey)));
    },
    allowed: (room) => {
      const keys = [{ public_key: 'odd' }, { public_key: otherKey.publicKey }];
      room.set('m.room.third_party_invite', 'token', { public_key: key.publicKey, public_keys: keys }, bob);
      return room.check(room.membership(bob, dave, 'invite', room.redeemed(bob, dave, {}, otherKey)));
    },
  },
  {
    what: 'who invites is in the room',
    rule: '5.3.2 5.3.2 4.3.2 4.3.2 4.4.2 4.4.2 4.4.2 5.4.2',
    refused: (room) => {
      room.member(bob, 'leave');
      return room.check(room.membership(bob, dave, 'invite'));
    },
    allowed: (room) => room.check(room.membership(bob, dave, 'invite')),
  },
  ...[carol, mallory].map((target): Case => ({
    what: `nobody invites ${target === carol ? 'a member' : 'the banned'}`,
    rule: '5.3.3 5.3.3 4.3.3 4.3.3 4.4.3 4.4.3 4.4.3 5.4.3',
    refused: (room) => room.check(room.membership(bob, target, 'invite')),
    allowed: (room) => room.check(room.membership(bob, ivy, 'invite')),
  })),
  {
    what: 'who invites has the invite level',
    rule: '5.3.5 5.3.5 4.3.5 4.3.5 4.4.5 4.4.5 4.4.5 5.4.5',
    refused: (room) => room.check(room.membership(carol, dave, 'invite')),
    allowed: (room) => room.check(room.membership(bob, dave, 'invite')),
  },
  {
    what: 'the invite level is 0 unless set',
    rule: '5.3.5 5.3.5 4.3.5 4.3.5 4.4.5 4.4.5 4.4.5 5.4.5',
    refused: (room) => {
      const { invite: _invite, ...levels } = room.levels({ users_default: -1 });
      room.set('m.room.power_levels', '', levels);
      return room.check(room.membership(carol, dave, 'invite'));
    },
    allowed: (room) => {
      const { invite: _invite, ...levels } = room.levels({});
      room.set('m.room.power_levels', '', levels);
      return room.check(room.membership(carol, dave, 'invite'));
    },
  },
  {
    what: 'only who is in, or invited, leaves',
    rule: '5.4.1 5.4.1 4.4.1 4.4.1 4.5.1 4.5.1 4.5.1 5.5.1',
    refused: (room) => room.check(room.membership(dave, dave, 'leave')),
    allowed: (room) => room.check(room.membership(carol, carol, 'leave')),
  },
  {
    what: 'the banned do not leave, the invited may decline',
    rule: '5.4.1 5.4.1 4.4.1 4.4.1 4.5.1 4.5.1 4.5.1 5.5.1',
    refused: (room) => room.check(room.membership(mallory, mallory, 'leave')),
    allowed: (room) => room.check(room.membership(ivy, ivy, 'leave')),
  },
  {
    what: 'a knock is taken back from version 7 on',
    rule: '5.4.1 5.4.1 4.4.1 - - - - -',
    refused: (room) => room.check(room.membership(kim, kim, 'leave')),
    allowed: (room) => room.check(room.membership(ivy, ivy, 'leave')),
  },
  {
    what: 'a knock can be taken back',
    rule: '- - - 4.4.1 4.5.1 4.5.1 4.5.1 5.5.1',
    refused: (room) => room.check(room.membership(dave, dave, 'leave')),
    allowed: (room) => room.check(room.membership(kim, kim, 'leave')),
  },
  {
    what: 'who kicks is in the room',
    rule: '5.4.2 5.4.2 4.4.2 4.4.2 4.5.2 4.5.2 4.5.2 5.5.2',
    refused: (room) => {
      room.member(bob, 'invite');
      return room.check(room.membership(bob, carol, 'leave'));
    },
    allowed: (room) => room.check(room.membership(bob, carol, 'leave')),
  },
  {
    what: 'who unbans has the ban level',
    rule: '5.4.3 5.4.3 4.4.3 4.4.3 4.5.3 4.5.3 4.5.3 5.5.3',
    refused: (room) => room.withLevels({ ban: 51, kick: 0 }).check(room.membership(bob, mallory, 'leave')),
    allowed: (room) => room.withLevels({ ban: 50 }).check(room.membership(bob, mallory, 'leave')),
  },
  {
    what: 'who unbans has the kick level too',
    rule: '5.4.5 5.4.5 4.4.5 4.4.5 4.5.5 4.5.5 4.5.5 5.5.5',
    refused: (room) => room.withLevels({ kick: 51 }).check(room.membership(bob, mallory, 'leave')),
    allowed: (room) => room.withLevels({ kick: 50 }).check(room.membership(bob, mallory, 'leave')),
  },
  {
    what: 'who kicks has the kick level',
    rule: '5.4.5 5.4.5 4.4.5 4.4.5 4.5.5 4.5.5 4.5.5 5.5.5',
    refused: (room) => room.withLevels({ kick: 51 }).check(room.membership(bob, carol, 'leave')),
    allowed: (room) => room.withLevels({ kick: 50 }).check(room.membership(bob, carol, 'leave')),
  },
  {
    what: 'who kicks is above the kicked',
    rule: '5.4.5 5.4.5 4.4.5 4.4.5 4.5.5 4.5.5 4.5.5 5.5.5',
    refused: (room) => room.check(room.membership(bob, eve, 'leave')),
    allowed: (room) => room.check(room.membership(alice, eve, 'leave')),
  },
  {
    what: 'who bans is in the room',
    rule: '5.5.1 5.5.1 4.5.1 4.5.1 4.6.1 4.6.1 4.6.1 5.6.1',
    refused: (room) => {
      room.member(bob, 'leave');
      return room.check(room.membership(bob, carol, 'ban'));
    },
    allowed: (room) => room.check(room.membership(bob, carol, 'ban')),
  },
  {
    what: 'who bans has the ban level',
    rule: '5.5.3 5.5.3 4.5.3 4.5.3 4.6.3 4.6.3 4.6.3 5.6.3',
    refused: (room) => room.withLevels({ ban: 51 }).check(room.membership(bob, dave, 'ban')),
    allowed: (room) => room.withLevels({ ban: 50 }).check(room.membership(bob, dave, 'ban')),
  },
  {
    what: 'who bans is above the banned',
    rule: '5.5.3 5.5.3 4.5.3 4.5.3 4.6.3 4.6.3 4.6.3 5.6.3',
    refused: (room) => room.check(room.membership(bob, eve, 'ban')),
    allowed: (room) => room.check(room.membership(bob, carol, 'ban')),
  },
  {
    what: 'the join rule lets knock',
    rule: '- - - 4.6.1 4.7.1 4.7.1 4.7.1 5.7.1',
    refused: (room) => room.check(room.membership(dave, dave, 'knock')),
    allowed: (room) => room.joinRule('knock').check(room.membership(dave, dave, 'knock')),
  },
  {
    what: 'join rule knock_restricted lets knock from version 10 on',
    rule: '- - - 4.6.1 4.7.1 - - -',
    refused: (room) => room.joinRule('knock_restricted').check(room.membership(dave, dave, 'knock')),
    allowed: (room) => room.joinRule('knock').check(room.membership(dave, dave, 'knock')),
  },
  {
    what: 'join rule knock_restricted lets knock',
    rule: '- - - - - 4.7.1 4.7.1 5.7.1',
    refused: (room) => room.joinRule('restricted').check(room.membership(dave, dave, 'knock')),
    allowed: (room) => room.joinRule('knock_restricted').check(room.membership(dave, dave, 'knock')),
  },
  {
    what: 'nobody knocks for another',
    rule: '- - - 4.6.2 4.7.2 4.7.2 4.7.2 5.7.2',
    refused: (room) => room.joinRule('knock').check(room.membership(carol, dave, 'knock')),
    allowed: (room) => room.joinRule('knock').check(room.membership(dave, dave, 'knock')),
  },
  ...[mallory, ivy, carol].map((user): Case => ({
    what: `${user} does not knock`,
    rule: '- - - 4.6.4 4.7.4 4.7.4 4.7.4 5.7.4',
    refused: (room) => room.joinRule('knock').check(room.membership(user, user, 'knock')),
    allowed: (room) => room.joinRule('knock').check(room.membership(kim, kim, 'knock')),
  })),
  {
    what: 'the membership is known',
    rule: '5.6 5.6 4.6 4.7 4.8 4.8 4.8 5.8',
    refused: (room) => room.check(room.membership(carol, carol, 'lurk')),
    allowed: (room) => room.check(room.membership(carol, carol, 'leave')),
  },
  {
    what: 'knock is unknown before version 7',
    rule: '5.6 5.6 4.6 - - - - -',
    refused: (room) => room.joinRule('knock').check(room.membership(dave, dave, 'knock')),
    allowed: (room) => room.joinRule('public').check(room.membership(dave, dave, 'join')),
  },
  {
    what: 'the membership is text',
    rule: '5.6 5.6 4.6 4.7 4.8 4.8 4.8 5.8',
    refused: (room) => room.check(room.membership(carol, carol, ['join'])),
    allowed: (room) => room.check(room.membership(carol, carol, 'join')),
  },
];

describe.each(roomVersions)('membership rules of room version %s', (version) => {
  it.each(casesOf(version, cases))('$rule $row.what', ({ row, rule }) => {
    expect(row.refused(new Room(version))).toMatchObject({ allowed: false, rule });
    expect(row.allowed(new Room(version))).toEqual({ allowed: true });
  });
});
