import type { RoomEvent } from '@rookery/events';
import { callbackContext } from './context.js';
import { frozenCopy, toModuleDraft, toModuleEvent, toStateView } from './isolation.js';

const roomEvent = (content: Record<string, unknown> = { body: 'hi' }): RoomEvent =>
  ({
    eventId: '$e',
    roomId: '!r:x',
    type: 'm.room.message',
    stateKey: undefined,
    sender: '@a:x',
    content,
    originServerTs: 1,
    depth: 2,
    prevEventIds: ['$p'],
    authEventIds: ['$a'],
    redacts: undefined,
    rules: { version: '12' },
    pdu: { content, hashes: {} },
  }) as unknown as RoomEvent;

describe('a frozen copy', () => {
  it('is equal, apart from the original, and frozen in every depth', () => {
    const original = { a: [1, { b: null }], c: 'd', e: undefined };
    const copy = frozenCopy(original);
    expect(copy).toEqual(original);
    expect(copy).not.toBe(original);
    expect([copy, copy.a, copy.a[1]].every(Object.isFrozen)).toBe(true);
    expect([original, original.a, original.a[1]].some(Object.isFrozen)).toBe(false);
  });

  it('survives depth, and a key called __proto__', () => {
    let deep: unknown = 'bottom';
    for (let i = 0; i < 200_000; i++) deep = i % 2 === 0 ? [deep] : { deep };
    const copied = frozenCopy(deep);
    let [at, depth] = [copied, 0];
    while (typeof at === 'object' && Object.isFrozen(at)) [at, depth] = [Object.values(at as object)[0], depth + 1];
    expect([at, depth]).toEqual(['bottom', 200_000]);
    const sly = JSON.parse('{"__proto__": {"polluted": true}}') as Record<string, unknown>;
    const copy = frozenCopy(sly);
    expect(Object.hasOwn(copy, '__proto__')).toBe(true);
    expect(copy.polluted).toBeUndefined();
    expect(JSON.stringify(copy)).toBe(JSON.stringify(sly));
  });

  it('leaves primitives and what is no plain data alone', () => {
    const map = new Map();
    const fn = (): void => {};
    expect(frozenCopy(7)).toBe(7);
    expect(frozenCopy(null)).toBe(null);
    expect(frozenCopy(map)).toBe(map);
    expect(frozenCopy({ fn, map })).toEqual({ fn, map });
    expect(Object.isFrozen(map)).toBe(false);
  });
});

describe('an event for modules', () => {
  it('says what the event says, frozen, also when it is written as JSON', () => {
    const event = roomEvent();
    const given = toModuleEvent(event);
    const expected = {
      eventId: '$e',
      roomId: '!r:x',
      roomVersion: '12',
      type: 'm.room.message',
      stateKey: undefined,
      sender: '@a:x',
      content: { body: 'hi' },
      originServerTs: 1,
      redacts: undefined,
      depth: 2,
      prevEventIds: ['$p'],
      authEventIds: ['$a'],
      pdu: { content: { body: 'hi' }, hashes: {} },
    };
    expect({ ...given, pdu: given.pdu }).toEqual(expected);
    expect(JSON.parse(JSON.stringify(given))).toEqual(JSON.parse(JSON.stringify(expected)));
    expect(Object.isFrozen(given) && Object.isFrozen(given.content) && Object.isFrozen(given.pdu.content)).toBe(true);
    expect(given.pdu).toBe(given.pdu);
    expect(Object.isFrozen(event.content)).toBe(false);
  });
});

it('a view of state reads nothing before it is asked, and asks for the empty state key by default', async () => {
  const asked: unknown[] = [];
  const view = toStateView({
    get: async (...key) => (asked.push(key), key[0] === 'm.room.name' ? roomEvent({ name: 'n' }) : undefined),
    ofType: async (type) => (asked.push(type), [roomEvent()]),
    all: async () => (asked.push('all'), []),
  });
  expect(asked).toEqual([]);
  expect((await view.get('m.room.name'))?.content).toEqual({ name: 'n' });
  expect(await view.get('m.room.member', '@a:x')).toBeUndefined();
  expect((await view.ofType('m.room.message'))[0]).toMatchObject({ eventId: '$e', roomVersion: '12' });
  expect(await view.all()).toEqual([]);
  expect(asked).toEqual([['m.room.name', ''], ['m.room.member', '@a:x'], 'm.room.message', 'all']);
});

it('what modules are given cannot be changed through its class either', () => {
  const given = [
    toModuleEvent(roomEvent()),
    toModuleDraft({ ...roomEvent(), roomVersion: '12' }),
    callbackContext(undefined),
    callbackContext(undefined, { source: 'federation' }),
    toStateView({ get: async () => undefined, ofType: async () => [], all: async () => [] }),
  ];
  for (const one of given) {
    expect(Object.isFrozen(one)).toBe(true);
    expect(Object.isFrozen(Object.getPrototypeOf(one))).toBe(true);
    expect(Object.getPrototypeOf(one)).not.toBe(Object.prototype);
  }
});

it('an event in the making says what the draft says, with a content of its own', () => {
  const content = { body: 'hi', list: [{ a: 1 }] };
  const draft = {
    roomId: '!r:x',
    roomVersion: '12',
    type: 'm.room.message',
    stateKey: undefined,
    sender: '@a:x',
    content,
    originServerTs: 7,
    redacts: undefined,
  };
  const given = toModuleDraft(draft);
  expect({ ...given }).toEqual({ ...draft, eventId: undefined });
  expect(given.content).not.toBe(content);
  expect([given.content, given.content['list']].every(Object.isFrozen)).toBe(true);
  expect(Object.isFrozen(content)).toBe(false);
});
