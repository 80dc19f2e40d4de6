import { type RoomEvent, roomVersions, SigningKey } from '@rookery/events';
import { checkAuthEvents } from './auth-events.js';
import { type Case, alice, bob, carol, dave, ivy, mallory, key, casesOf, Room } from './room.fixture.js';

const power = 'm.room.power_levels ';
const own = `m.room.member ${bob}`;

/** From the section "Authorization rules" of every room version: all rules but those for memberships and power levels. */
const cases: Case[] = [
  {
    what: 'a create event has no previous events',
    rule: '1.1 1.1 1.1 1.1 1.1 1.1 1.1 1.1',
    refused: (room) => room.check(room.makeCreate({}, { prev: ['$x:a.example'] })),
    allowed: (room) => room.check(room.makeCreate({})),
  },
  {
    what: 'the room id fits the creator',
    rule: '1.2 1.2 1.2 1.2 1.2 1.2 1.2 -',
    refused: (room) => room.check(room.makeCreate({}, { sender: dave })),
    allowed: (room) => room.check(room.makeCreate({}, { sender: bob })),
  },
  {
    what: 'a create event has no room id',
    rule: '- - - - - - - 1.2',
    refused: (room) => {
      const { pdu, ...event } = room.makeCreate({});
      return room.check({ ...event, pdu: { ...pdu, room_id: event.roomId } });
    },
    allowed: (room) => room.check(room.makeCreate({})),
  },
  {
    what: 'the room version is known',
    rule: '1.3 1.3 1.3 1.3 1.3 1.3 1.3 1.3',
    refused: (room) => room.check(room.makeCreate({ room_version: 'rookery.unknown' })),
    allowed: (room) => room.check(room.makeCreate({ room_version: room.version })),
  },
  {
    what: 'the creator is named',
    rule: '1.4 1.4 1.4 1.4 1.4 1.4 - -',
    refused: (room) => room.check(room.makeCreate({ creator: undefined })),
    allowed: (room) => room.check(room.makeCreate({ creator: alice })),
  },
  {
    what: 'additional creators are user ids',
    rule: '- - - - - - - 1.4',
    refused: (room) => room.check(room.makeCreate({ additional_creators: ['bob'] })),
    allowed: (room) => room.check(room.makeCreate({ additional_creators: [bob] })),
  },
  {
    what: 'additional creators are a list',
    rule: '- - - - - - - 1.4',
    refused: (room) => room.check(room.makeCreate({ additional_creators: { 0: bob } })),
    allowed: (room) => room.check(room.makeCreate({ additional_creators: [] })),
  },
  {
    what: 'the room id is that of a known create event',
    rule: '- - - - - - - 2',
    refused: (room) =>
      room.check(room.event('m.x', bob, {}, { roomId: '!31hneApxJ_1o-63DmFrpeqnkFfWppnzWso1JvH3ogLM' })),
    allowed: (room) => room.check(room.event('m.x', bob, {})),
  },
  {
    what: 'no auth event is named twice',
    rule: '2.1 2.1 2.1 2.1 2.1 2.1 2.1 3.1',
    refused: (room) => room.checkCited('m.x', room.cite(power, own, own)),
    allowed: (room) => room.checkCited('m.x', room.cite(power, own)),
  },
  {
    what: 'no two auth events hold the same state',
    rule: '2.1 2.1 2.1 2.1 2.1 2.1 2.1 3.1',
    refused: (room) => {
      const [older] = room.cite(own).slice(-1) as [RoomEvent];
      room.member(bob, 'join');
      return room.checkCited('m.x', [...room.cite(own), older]);
    },
    allowed: (room) => room.checkCited('m.x', room.cite(own)),
  },
  {
    what: 'auth events are those of the selection',
    rule: '2.2 2.2 2.2 2.2 2.2 2.2 2.2 3.2',
    refused: (room) => room.checkCited('m.x', room.cite(own, `m.room.member ${carol}`)),
    allowed: (room) => room.checkCited('m.x', room.cite(own)),
  },
  {
    what: 'the create event is implied',
    rule: '- - - - - - - 3.2',
    refused: (room) => room.checkCited('m.x', [room.create, ...room.cite(own)]),
    allowed: (room) => room.checkCited('m.x', room.cite(own)),
  },
  {
    what: 'no auth event was rejected',
    rule: '2.3 2.3 2.3 2.3 2.3 2.3 2.3 3.3',
    refused: (room) => {
      const cited = room.cite(power, own);
      return room.checkCited('m.x', cited, new Set(cited.slice(-1).map((event) => event.eventId)));
    },
    allowed: (room) => room.checkCited('m.x', room.cite(power, own), new Set(['$another'])),
  },
  {
    what: 'the create event is cited',
    rule: '2.4 2.4 2.4 2.4 2.4 2.4 2.4 -',
    refused: (room) => room.checkCited('m.x', room.cite(power, own).slice(1)),
    allowed: (room) => room.checkCited('m.x', room.cite(power, own)),
  },
  {
    what: 'auth events are of the same room',
    rule: '2.5 2.5 2.5 2.5 2.5 2.5 2.5 3.4',
    refused: (room) => {
      const foreign = new Room(room.version);
      const elsewhere = foreign.event('m.room.power_levels', alice, {}, { stateKey: '', roomId: '!other:a.example' });
      return room.checkCited('m.x', [...room.cite(own), elsewhere]);
    },
    allowed: (room) => room.checkCited('m.x', room.cite(power, own)),
  },
  {
    what: 'a closed room admits its own server only',
    rule: '3 3 3 3 3 3 3 4',
    refused: (room) => {
      const closed = { ...room.create, content: { ...room.create.content, 'm.federate': false } };
      room.put(closed);
      return room.check(room.event('m.x', carol, {}));
    },
    allowed: (room) => {
      const closed = { ...room.create, content: { ...room.create.content, 'm.federate': false } };
      room.put(closed);
      return room.check(room.event('m.x', bob, {}));
    },
  },
  {
    what: 'aliases have a state key',
    rule: '4.1 4.1 - - - - - -',
    refused: (room) => room.check(room.event('m.room.aliases', dave, {})),
    allowed: (room) => room.check(room.event('m.room.aliases', dave, {}, { stateKey: 'b.example' })),
  },
  {
    what: 'aliases are of the sender’s server',
    rule: '4.2 4.2 - - - - - -',
    refused: (room) => room.check(room.event('m.room.aliases', dave, {}, { stateKey: 'a.example' })),
    allowed: (room) => room.check(room.event('m.room.aliases', dave, {}, { stateKey: 'b.example' })),
  },
  ...[dave, ivy, mallory].map((sender): Case => ({
    what: `${sender} is not in the room`,
    rule: '6 6 5 5 5 5 5 6',
    refused: (room) => room.check(room.event('m.room.message', sender, {})),
    allowed: (room) => room.check(room.event('m.room.message', carol, {})),
  })),
  {
    what: 'who invites a third party has the invite level',
    rule: '7.1 7.1 6.1 6.1 6.1 6.1 6.1 7.1',
    refused: (room) => room.check(room.event('m.room.third_party_invite', carol, {}, { stateKey: 'token' })),
    allowed: (room) => room.check(room.event('m.room.third_party_invite', bob, {}, { stateKey: 'token' })),
  },
  {
    what: 'a listed event type needs its level',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => room.check(room.event('m.odd', bob, {})),
    allowed: (room) => room.check(room.event('m.odd', alice, {})),
  },
  {
    what: 'state needs 50 unless set',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => room.check(room.event('m.room.name', carol, {}, { stateKey: '' })),
    allowed: (room) => room.check(room.event('m.room.name', bob, {}, { stateKey: '' })),
  },
  {
    what: 'state needs the default for state',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => room.withLevels({ state_default: 51 }).check(room.event('m.x', bob, {}, { stateKey: '' })),
    allowed: (room) => room.withLevels({ state_default: 50 }).check(room.event('m.x', bob, {}, { stateKey: '' })),
  },
  {
    what: 'messages need the default for messages',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => room.withLevels({ events_default: 1 }).check(room.event('m.x', carol, {})),
    allowed: (room) => room.withLevels({ events_default: 1, users_default: 1 }).check(room.event('m.x', carol, {})),
  },
  {
    what: 'without power levels the creator alone sets state',
    rule: '8 8 7 7 7 7 7 8',
    refused: (room) => {
      room.state.delete(power);
      return room.check(room.event('m.room.name', bob, {}, { stateKey: '' }));
    },
    allowed: (room) => {
      room.state.delete(power);
      return room.check(room.event('m.room.name', alice, {}, { stateKey: '' }));
    },
  },
  {
    what: 'state of a user is set by that user',
    rule: '9 9 8 8 8 8 8 9',
    refused: (room) => room.check(room.event('m.topic', bob, {}, { stateKey: alice })),
    allowed: (room) => room.check(room.event('m.topic', bob, {}, { stateKey: bob })),
  },
  {
    what: 'events of other servers are redacted with the redact level',
    rule: '11.3 - - - - - - -',
    refused: (room) => room.check(room.event('m.room.redaction', carol, {}, { redacts: '$target:a.example' })),
    allowed: (room) => room.check(room.event('m.room.redaction', bob, {}, { redacts: '$target:b.example' })),
  },
  {
    what: 'events of the own server are redacted freely',
    rule: '11.3 - - - - - - -',
    refused: (room) => room.check(room.event('m.room.redaction', carol, {})),
    allowed: (room) => room.check(room.event('m.room.redaction', carol, {}, { redacts: '$target:b.example' })),
  },
];

describe.each(roomVersions)('auth rules of room version %s', (version) => {
  it.each(casesOf(version, cases))('$rule $row.what', ({ row, rule }) => {
    expect(row.refused(new Room(version))).toMatchObject({ allowed: false, rule });
    expect(row.allowed(new Room(version))).toEqual({ allowed: true });
  });
});

describe('auth rules that a version does not have', () => {
  it('leaves aliases to the power levels from version 6 on', () => {
    const room = new Room('6');
    expect(room.check(room.event('m.room.aliases', dave, {}, { stateKey: 'b.example' }))).toMatchObject({ rule: '5' });
    expect(room.check(room.event('m.room.aliases', bob, {}, { stateKey: 'b.example' }))).toEqual({ allowed: true });
  });

  it('leaves redactions to the power levels from version 3 on', () => {
    const room = new Room('3');
    const event = room.event('m.room.redaction', carol, {}, { redacts: '$target' });
    expect(room.check(event)).toEqual({ allowed: true });
  });

  it('does not look at notification levels before version 6', () => {
    const room = new Room('5');
    expect(room.check(room.powerLevels(bob, { notifications: { room: 1000 } }))).toEqual({ allowed: true });
  });

  it('does not ask for an authorizing signature before version 8', () => {
    const room = new Room('7');
    const event = room.membership(ivy, ivy, 'join', { join_authorised_via_users_server: bob });
    expect(checkAuthEvents(event, room.cite(power))).toEqual({ allowed: true });
  });

  it('cuts floats in versions 1 to 5', () => {
    const old = new Room('5').withLevels({ state_default: 40.9, users_default: -39.9 });
    old.withLevels(old.users({ [carol]: '+40 ' }));
    expect(old.check(old.event('m.room.name', carol, {}, { stateKey: '' }))).toEqual({ allowed: true });
    old.withLevels(old.users({ [carol]: 39.9 }));
    expect(old.check(old.event('m.room.name', carol, {}, { stateKey: '' }))).toMatchObject({ rule: '8' });
  });

  it('takes a level that it cannot read for a missing one', () => {
    const room = new Room('9').withLevels({ state_default: 'many', users: [] });
    expect(room.check(room.event('m.room.name', bob, {}, { stateKey: '' }))).toMatchObject({ rule: '7' });
    expect(room.check(room.event('m.room.name', bob, {}))).toEqual({ allowed: true });
    expect(room.check(room.powerLevels(alice, {}))).toMatchObject({ rule: '7' });
  });

  it('does not let values that nobody can read into the power levels of old rooms', () => {
    const room = new Room('9');
    expect(room.check(room.powerLevels(alice, { kick: 'many' }))).toMatchObject({ rule: '9.3.2' });
    expect(room.check(room.powerLevels(alice, { events: { 'm.x': {} } }))).toMatchObject({ rule: '9.5.1' });
    expect(room.check(room.powerLevels(alice, { events: [] }))).toMatchObject({ rule: '9.5.1' });
  });

  it('gives up on third-party invites with more signatures and keys than anybody needs', () => {
    const room = new Room('11');
    const keys = Array.from({ length: 64 }, (_, i) => ({
      public_key: SigningKey.fromSeed('1', Buffer.alloc(32, 10 + i)).publicKey,
    }));
    keys[63] = { public_key: key.publicKey };
    room.set('m.room.third_party_invite', 'token', { public_keys: keys }, bob);
    const invite = room.redeemed(bob, dave);
    expect(room.check(room.membership(bob, dave, 'invite', invite))).toEqual({ allowed: true });
    room.set('m.room.third_party_invite', 'token', { public_keys: [...keys, { public_key: 'more' }] }, bob);
    expect(room.check(room.membership(bob, dave, 'invite', invite))).toMatchObject({ rule: '4.4.1.8' });
  });

  it('takes no empty list for a signature', () => {
    const room = new Room('11');
    const event = room.membership(dave, dave, 'join', { join_authorised_via_users_server: bob });
    const signed = { ...event, pdu: { ...event.pdu, signatures: { 'a.example': {} } } };
    expect(checkAuthEvents(signed, room.cite(power, own))).toMatchObject({ rule: '4.2.1' });
    const odd = room.membership(dave, dave, 'join', { join_authorised_via_users_server: { a: 1 } });
    expect(checkAuthEvents(odd, room.cite(power), { signedBy: () => true })).toMatchObject({ rule: '4.2.1' });
  });

  it('does not take names from the prototype for levels', () => {
    const room = new Room('9');
    expect(room.check(room.event('constructor', bob, {}))).toEqual({ allowed: true });
    expect(room.check(room.event('toString', bob, {}, { stateKey: '__proto__' }))).toEqual({ allowed: true });
  });

  it('puts the creators of version 12 above every level', () => {
    const room = new Room('12').withLevels({ events: { 'm.x': Number.MAX_SAFE_INTEGER } });
    expect(room.check(room.event('m.x', alice, {}))).toEqual({ allowed: true });
    expect(room.check(room.event('m.x', bob, {}))).toMatchObject({ rule: '8' });
  });
});
