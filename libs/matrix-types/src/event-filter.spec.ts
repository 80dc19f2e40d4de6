import { parseEventFilter, parseSyncFilter, passesFilter } from './event-filter.js';

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
    expect(parseEventFilter({ types: [pattern] }).passesType(type)).toBe(expected);
    expect(parseEventFilter({ not_types: [pattern] }).passesType(type)).toBe(!expected);
  });

  it('look at their patterns once for each type, however many there are of it', () => {
    const patterns = Array.from({ length: 1_000 }, (_, i) => `*${i}*x*y`);
    const filter = parseEventFilter({ types: [...patterns.slice(1), 'm.*'], not_types: patterns });
    const startedMs = performance.now();
    for (let i = 0; i < 100_000; i++) filter.passesType(`m.type${'z'.repeat(i % 50)}`);
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    for (let i = 0; i < 2_000; i++) expect(filter.passesType(`m.made-up.${i}`)).toBe(true);
    expect(filter.passesType('m.1.x.y')).toBe(false);
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
