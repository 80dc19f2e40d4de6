import { roomVersions } from '@rookery/events';
import { type Case, alice, bob, carol, eve, casesOf, Room } from './room.fixture.js';

const power = 'm.room.power_levels ';
const scalar = ['users_default', 'events_default', 'state_default', 'ban', 'redact', 'kick', 'invite'];

/** From the section "Authorization rules" of every room version: the rules for `m.room.power_levels`. */
const cases: Case[] = [
  ...scalar.map((name): Case => ({
    what: `${name} is an integer`,
    rule: '- - - - - 9.1 9.1 10.1',
    refused: (room) => room.check(room.powerLevels(alice, { [name]: '50' })),
    allowed: (room) => room.check(room.powerLevels(alice, { [name]: 50 })),
  })),
  ...['events', 'notifications'].flatMap((map): Case[] => [
    {
      what: `${map} is an object`,
      rule: '- - - - - 9.2 9.2 10.2',
      refused: (room) => room.check(room.powerLevels(alice, { [map]: [] })),
      allowed: (room) => room.check(room.powerLevels(alice, { [map]: {} })),
    },
    {
      what: `${map} has integers`,
      rule: '- - - - - 9.2 9.2 10.2',
      refused: (room) => room.check(room.powerLevels(alice, { [map]: { room: null } })),
      allowed: (room) => room.check(room.powerLevels(alice, { [map]: { room: 1 } })),
    },
  ]),
  {
    what: 'users is an object',
    rule: '10.1 10.1 9.1 9.1 9.1 9.3 9.3 10.3',
    refused: (room) => room.check(room.powerLevels(alice, { users: [] })),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 1 }))),
  },
  {
    what: 'users has user ids',
    rule: '10.1 10.1 9.1 9.1 9.1 9.3 9.3 10.3',
    refused: (room) => room.check(room.powerLevels(alice, room.users({ carol: 1 }))),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 1 }))),
  },
  {
    what: 'users has levels',
    rule: '10.1 10.1 9.1 9.1 9.1 9.3 9.3 10.3',
    refused: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 'one' }))),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 1 }))),
  },
  {
    what: 'users has levels as text in old versions only',
    rule: '- - - - - 9.3 9.3 10.3',
    refused: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: '1' }))),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: 1 }))),
  },
  {
    what: 'levels are text with an integer',
    rule: '10.1 10.1 9.1 9.1 9.1 - - -',
    refused: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: '1.5' }))),
    allowed: (room) => room.check(room.powerLevels(alice, room.users({ [carol]: ' +0012 ' }))),
  },
  ...[alice, bob].map((creator): Case => ({
    what: `the level of ${creator === alice ? 'the creator' : 'an additional creator'} is not set`,
    rule: '- - - - - - - 10.4',
    refused: (room) => {
      const create = { ...room.create, content: { ...room.create.content, additional_creators: [bob] } };
      room.put(create);
      return room.check(room.powerLevels(alice, { users: { [creator]: 100 } }));
    },
    allowed: (room) => room.check(room.powerLevels(alice, { users: { [carol]: 100 } })),
  })),
  {
    what: 'the first power levels are free, later ones are not',
    rule: '10.7.1 10.7.1 9.7.1 9.7.1 9.7.1 9.9.1 9.9.1 10.10.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [carol]: 1000 }))),
    allowed: (room) => {
      room.state.delete(power);
      return room.check(room.event('m.room.power_levels', alice, { users: { [carol]: 1000 } }, { stateKey: '' }));
    },
  },
  ...scalar.flatMap((name): Case[] => [
    {
      what: `${name} above the sender is not changed`,
      rule: '10.3.1 10.3.1 9.3.1 9.3.1 9.3.1 9.5.1 9.5.1 10.6.1',
      refused: (room) => {
        room.withLevels({ [name]: 60, events: { 'm.room.power_levels': 0 } });
        return room.check(room.powerLevels(bob, { [name]: 40 }));
      },
      allowed: (room) => {
        room.withLevels({ [name]: 50, events: { 'm.room.power_levels': 0 } });
        return room.check(room.powerLevels(bob, { [name]: 40 }));
      },
    },
    {
      what: `${name} is not set above the sender`,
      rule: '10.3.2 10.3.2 9.3.2 9.3.2 9.3.2 9.5.2 9.5.2 10.6.2',
      refused: (room) => room.check(room.powerLevels(bob, { [name]: 51 })),
      allowed: (room) => room.check(room.powerLevels(bob, { [name]: 50 })),
    },
    {
      what: `${name} above the sender is not removed`,
      rule: '10.3.1 10.3.1 9.3.1 9.3.1 9.3.1 9.5.1 9.5.1 10.6.1',
      refused: (room) => {
        room.withLevels({ [name]: 60, events: { 'm.room.power_levels': 0 } });
        return room.check(room.powerLevels(bob, { [name]: undefined }));
      },
      allowed: (room) => {
        room.withLevels({ [name]: 60, events: { 'm.room.power_levels': 0 } });
        return room.check(room.powerLevels(bob, {}));
      },
    },
  ]),
  {
    what: 'event levels above the sender are not changed',
    rule: '10.4.1 10.4.1 9.4.1 9.4.1 9.4.1 9.6.1 9.6.1 10.7.1',
    refused: (room) => room.check(room.powerLevels(bob, { events: { 'm.odd': 50, 'm.high': 70 } })),
    allowed: (room) => room.check(room.powerLevels(alice, { events: { 'm.odd': 50, 'm.high': 70 } })),
  },
  {
    what: 'event levels above the sender are not removed',
    rule: '10.4.1 10.4.1 9.4.1 9.4.1 9.4.1 9.6.1 9.6.1 10.7.1',
    refused: (room) => room.check(room.powerLevels(bob, { events: {} })),
    allowed: (room) => room.check(room.powerLevels(bob, { events: { 'm.odd': 60, 'm.high': 70 } })),
  },
  {
    what: 'event levels are not set above the sender',
    rule: '10.5.1 10.5.1 9.5.1 9.5.1 9.5.1 9.7.1 9.7.1 10.8.1',
    refused: (room) => room.check(room.powerLevels(bob, { events: { 'm.odd': 60, 'm.high': 70, 'm.new': 51 } })),
    allowed: (room) => room.check(room.powerLevels(bob, { events: { 'm.odd': 60, 'm.high': 70, 'm.new': 50 } })),
  },
  {
    what: 'notification levels above the sender are not changed',
    rule: '- - 9.4.1 9.4.1 9.4.1 9.6.1 9.6.1 10.7.1',
    refused: (room) => room.check(room.powerLevels(bob, { notifications: { room: 50, high: 20 } })),
    allowed: (room) => room.check(room.powerLevels(bob, { notifications: { room: 20, high: 70 } })),
  },
  {
    what: 'notification levels are not set above the sender',
    rule: '- - 9.5.1 9.5.1 9.5.1 9.7.1 9.7.1 10.8.1',
    refused: (room) => room.check(room.powerLevels(bob, { notifications: { room: 51, high: 70 } })),
    allowed: (room) => room.check(room.powerLevels(bob, { notifications: { room: 50, high: 70, x: 50 } })),
  },
  {
    what: 'an equal is not demoted',
    rule: '10.6.1 10.6.1 9.6.1 9.6.1 9.6.1 9.8.1 9.8.1 10.9.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [eve]: 10 }))),
    allowed: (room) => room.check(room.powerLevels(bob, room.users({ [bob]: 10 }))),
  },
  {
    what: 'an equal is not removed',
    rule: '10.6.1 10.6.1 9.6.1 9.6.1 9.6.1 9.8.1 9.8.1 10.9.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [eve]: undefined }))),
    allowed: (room) => room.check(room.powerLevels(bob, room.users({ [bob]: undefined }))),
  },
  {
    what: 'nobody is raised above the sender',
    rule: '10.7.1 10.7.1 9.7.1 9.7.1 9.7.1 9.9.1 9.9.1 10.10.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [carol]: 51 }))),
    allowed: (room) => room.check(room.powerLevels(bob, room.users({ [carol]: 50 }))),
  },
  {
    what: 'nobody raises themselves',
    rule: '10.7.1 10.7.1 9.7.1 9.7.1 9.7.1 9.9.1 9.9.1 10.10.1',
    refused: (room) => room.check(room.powerLevels(bob, room.users({ [bob]: 51 }))),
    allowed: (room) => room.check(room.powerLevels(bob, room.users({ [bob]: 49 }))),
  },
];

describe.each(roomVersions)('power level rules of room version %s', (version) => {
  it.each(casesOf(version, cases))('$rule $row.what', ({ row, rule }) => {
    expect(row.refused(new Room(version))).toMatchObject({ allowed: false, rule });
    expect(row.allowed(new Room(version))).toEqual({ allowed: true });
  });
});
