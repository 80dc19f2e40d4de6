import { matchesType, parseEventFilter, parseSyncFilter, passesFilter } from './event-filter.js';

const event = { type: 'm.room.message', sender: '@a:b', roomId: '!r', content: { body: 'x' } };

describe('event filters', () => {
  it.each<[object, boolean]>([
    [{}, true],
    [{ types: ['m.room.message'] }, true],
    [{ types: [] }, false],
    [{ types: ['m.room.*'] }, true],
    [{ types: ['m.room.member'] }, false],
    [{ not_types: ['m.*'] }, false],
    [{ types: ['m.room.message'], not_types: ['m.room.message'] }, false],
    [{ senders: ['@a:b'] }, true],
    [{ senders: [] }, false],
    [{ senders: ['@a:b'], not_senders: ['@a:b'] }, false],
    [{ rooms: ['!r'] }, true],
    [{ rooms: ['!s'] }, false],
    [{ not_rooms: ['!r'] }, false],
    [{ contains_url: true }, false],
    [{ contains_url: false }, true],
    [{ rel_types: ['m.thread'] }, false],
  ])('%j passes: %s', (filter, expected) => {
    expect(passesFilter(parseEventFilter(filter), event)).toBe(expected);
  });

  it.each([
    ['a*c', 'abc', true],
    ['a*c', 'ac', true],
    ['a*a', 'a', false],
    ['*b*', 'abc', true],
    ['a*b*c', 'abcc', true],
    ['a*bc*bc', 'abc', false],
    ['a.c', 'abc', false],
  ])('type pattern %s on %s: %s', (pattern, type, expected) => {
    expect(matchesType([pattern], type)).toBe(expected);
  });

  it.each([
    [null],
    [[]],
    [{ room: [] }],
    [{ room: { timeline: { limit: 'x' } } }],
    [{ room: { timeline: { limit: -1 } } }],
    [{ room: { state: { types: 'm' } } }],
    [{ room: { state: { lazy_load_members: 1 } } }],
    [{ event_format: 'other' }],
    [{ presence: { senders: [1] } }],
    [{ account_data: { types: new Array(1001).fill('x') } }],
  ])('%j is refused', (value) => {
    expect(() => parseSyncFilter(value)).toThrow(expect.objectContaining({ errcode: 'M_BAD_JSON', status: 400 }));
  });
});
