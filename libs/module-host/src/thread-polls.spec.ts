import { AsyncLocalStorage } from 'node:async_hooks';
import type { RoomEvent } from '@rookery/events';
import { type ModuleEvent, NOT_SPAM } from '@rookery/module-api';
import { eventually } from '@rookery/testing';
import { callbackContext } from './context.js';
import { toModuleDraft, toModuleEvent } from './isolation.js';
import { answerPolls, type PollCall, Polls, together } from './thread-polls.js';

let polls: Polls;
beforeEach(() => void (polls = new Polls()));
afterEach(() => polls.close());

/** Stands for a module's thread: what it is asked, to be answered by the test, and what the server hears of it. */
interface Thread {
  readonly asked: PollCall[];
  readonly heard: (readonly [callId: number, value: unknown])[];
  /** How long it rested, each time. */
  readonly rests: readonly number[];
  readonly member: ReturnType<Polls['member']>['member'];
  /** The bell that wakes it, and how often that was rung. */
  readonly bell: () => { readonly number: number; readonly rung: number };
}

/** Whether threads have nothing else to wait for. */
let isAtRest = false;
/** Whether their event loops have something else to do. */
let isBusy = false;
afterEach(() => void (isAtRest = isBusy = false));

function thread(): Thread {
  const heard: Thread['heard'] = [];
  const asked: PollCall[] = [];
  const { memory, member } = polls.member((callId, value) => heard.push([callId, value]));
  const rests: number[] = [];
  void answerPolls(memory, {
    carryOut: (call) => asked.push(call),
    isAtRest: () => isAtRest,
    isBusy: () => isBusy,
    rested: (ms) => rests.push(ms),
  });
  const bell: Thread['bell'] = () => {
    const number = new Int32Array(memory.inbox)[0]!;
    return { number, rung: new Int32Array(memory.board)[number]! };
  };
  return { asked, heard, rests, member, bell };
}

let calls = 0;
/** Asks them in one go; those that were asked so. */
function ask(threads: readonly Thread[], ...args: unknown[]): Thread[] {
  const joined: Thread[] = [];
  together(() => {
    for (const one of threads) {
      const poll = polls.pollFor('callback:test', args);
      poll?.members.push({ member: one.member, callId: ++calls });
      if (poll) joined.push(one);
    }
  });
  return joined;
}
const several = (count: number): Thread[] => Array.from({ length: count }, thread);
const all = (threads: readonly Thread[]): Promise<PollCall[]> =>
  eventually(() => threads.every(({ asked }) => asked.length > 0) && threads.map(({ asked }) => asked.at(-1)!));

const draft = (body: string): object =>
  toModuleDraft({
    ...{ roomId: '!r:x', roomVersion: '12', type: 'm.room.message', stateKey: undefined, sender: '@a:x' },
    ...{ content: { body }, originServerTs: 1, redacts: undefined },
  });

it('brings one question to all, word for word and frozen', async () => {
  const threads = several(3);
  const context = callbackContext(undefined, { source: 'client', userId: '@a:x' });
  ask(threads, draft('äöü 🦉 line\nbreak'), '@a:x', undefined, null, true, 7, context);
  for (const asked of await all(threads)) {
    expect(asked.target).toBe('callback:test');
    const given = asked.args();
    expect(given).toMatchObject([
      { content: { body: 'äöü 🦉 line\nbreak' }, sender: '@a:x' },
      ...['@a:x', undefined, null, true, 7],
      { source: 'client', userId: '@a:x' },
    ]);
    const [event] = given as { content: object }[];
    expect(Object.isFrozen(event) && Object.isFrozen(event?.content)).toBe(true);
  }
});

it('brings each of several events with its own PDU, frozen in every depth', async () => {
  const event = (body: string, deep: object): ModuleEvent =>
    toModuleEvent({
      ...{ eventId: `$${body}`, roomId: '!r:x', rules: { version: '12' }, type: 'm.room.message', stateKey: undefined },
      ...{ sender: '@a:x', content: { body, deep }, originServerTs: 1, redacts: undefined, depth: 2 },
      ...{ prevEventIds: ['$p'], authEventIds: ['$a'], pdu: { content: { body }, hashes: { sha256: body } } },
    } as unknown as RoomEvent);
  const threads = several(2);
  const events = [event('äöü', { a: [{ b: 1 }] }), event('plain', {})];
  ask(threads, events[0], 'between', events[1]);
  for (const asked of await all(threads)) {
    const [first, between, second] = asked.args() as [ModuleEvent, string, ModuleEvent];
    expect(between).toBe('between');
    expect([first, second].map((one) => ({ ...one }))).toEqual(events.map((one) => ({ ...one })));
    expect([first.pdu, second.pdu]).toEqual(events.map(({ pdu }) => pdu));
    const { a } = first.content['deep'] as { a: object[] };
    expect([first, first.content, a, a[0], first.pdu['hashes'], second.prevEventIds].every(Object.isFrozen)).toBe(true);
  }
});

it('brings a question of nothing', async () => {
  const threads = several(1);
  ask(threads);
  const [asked] = await all(threads);
  expect(asked!.args()).toEqual([]);
});

it('hears of all answers when the last one comes', async () => {
  const threads = several(3);
  ask(threads, '@a:x');
  const [first, second, third] = await all(threads);
  expect(first!.pass(NOT_SPAM)).toBe(true);
  expect(third!.pass(true)).toBe(true);
  expect(second!.pass({ errcode: 'M_FORBIDDEN' })).toBe(false);
  second!.told();
  await eventually(() => threads[2]!.heard.length === 1);
  expect(threads.map(({ heard }) => heard)).toEqual([
    [[first!.callId, NOT_SPAM]],
    [], // It came as a message.
    [[third!.callId, true]],
  ]);
});

it('lets nobody wait for one that hangs', async () => {
  const threads = several(3);
  ask(threads, '@a:x');
  const [, second, third] = await all(threads);
  second!.pass(NOT_SPAM);
  await eventually(() => threads[1]!.heard.length === 1);
  // From now on, each rings.
  third!.pass(NOT_SPAM);
  await eventually(() => threads[2]!.heard.length === 1);
  expect(threads[0]!.heard).toEqual([]);
});

it('looks at one that hangs once, not again and again', async () => {
  const { setTimeout: real } = globalThis;
  const timers: (() => void)[] = [];
  const later = (fn: () => void): object => {
    timers.push(fn);
    return { unref: () => ({}) };
  };
  globalThis.setTimeout = later as unknown as typeof real;
  try {
    ask(several(2), '@a:x');
    const askedAtMs = performance.now();
    while (performance.now() - askedAtMs < 10);
    expect(timers).toHaveLength(1);
    timers.pop()!();
    expect(timers).toEqual([]);
    ask(several(2), '@b:x');
    expect(timers).toHaveLength(1);
  } finally {
    globalThis.setTimeout = real;
  }
});

it('goes on without one that has ended', async () => {
  const threads = several(2);
  for (let round = 0; round < 40; round++) {
    ask(threads, `@a:x`, round);
    await eventually(() => threads[1]!.asked.length === round + 1);
    threads[1]!.asked.at(-1)!.pass(NOT_SPAM);
    await eventually(() => threads[0]!.asked.length === round + 1);
    // As the thread's end does.
    polls.leave(threads[0]!.member);
    await eventually(() => threads[1]!.heard.length === round + 1);
  }
  // More than there are places: each was free again.
  expect(threads[1]!.asked.map((asked) => asked.args()[1])).toEqual(Array.from({ length: 40 }, (_, i) => i));
});

it('has no more under way than there is room for, and takes what has another way no further', async () => {
  const [one] = several(1) as [Thread];
  const rounds = Array.from({ length: 40 }, (_, i) => ask([one], i).length);
  expect(rounds.filter((joined) => joined === 1)).toHaveLength(32);
  await eventually(() => one.asked.length === 32);
  for (const asked of one.asked) asked.pass(NOT_SPAM);
  await eventually(() => one.heard.length === 32);
  expect(ask([one], 'again')).toHaveLength(1);
});

it.each([
  ['a long text', 'x'.repeat(20_000)],
  ['an object', { a: 1 }],
  ['a function', () => {}],
  ['what JSON does not know', Infinity],
])('leaves %s to messages', (_, value) => {
  expect(ask(several(2), value)).toEqual([]);
});

it('asks those together that are asked the same, and of them as many as have a bit', () => {
  const threads = several(35);
  expect(ask(threads, '@a:x')).toHaveLength(31);
  together(() => {
    expect(polls.pollFor('callback:one', ['a'])).toBeDefined();
    expect(polls.pollFor('callback:two', ['a'])).toBeUndefined();
    expect(polls.pollFor('callback:one', ['b'])).toBeUndefined();
  });
  expect(polls.pollFor('callback:one', ['a'])).toBeUndefined();
});

it('wakes all that are asked together by one bell, and nobody else more than once', async () => {
  const [one, two, three] = several(3) as [Thread, Thread, Thread];
  ask([one, two, three], 'all');
  await all([one, two, three]);
  expect(new Set([one, two, three].map(({ bell }) => bell().number)).size).toBe(1);
  ask([one, two], 'two');
  const aside = three.bell();
  for (let round = 0; round < 5; round++) ask([one, two], round);
  await eventually(() => [one, two].every(({ asked }) => asked.length === 7));
  expect(one.bell().number).toBe(two.bell().number);
  expect(three.bell()).toEqual(aside);
  expect(three.asked).toHaveLength(1);
  // Parted or not, all hear what concerns all.
  ask([one, two, three], 'all again');
  await eventually(() => three.asked.length === 2 && one.asked.length === 8 && two.asked.length === 8);
});

it('has bells for threads that come, whatever has gone', () => {
  const [stays] = several(1) as [Thread];
  for (let i = 0; i < 300; i++) {
    const one = thread();
    ask([one], i);
    expect(one.bell().number).not.toBe(stays.bell().number);
    polls.leave(one.member);
  }
});

it('wakes more than are asked where there are more threads than bells', async () => {
  const threads = several(300);
  for (let from = 0; from < threads.length; from += 30) {
    const some = threads.slice(from, from + 30);
    for (const one of some) ask([one], '@a:x');
    for (const asked of await all(some)) asked.pass(NOT_SPAM);
    await eventually(() => some.every(({ heard }) => heard.length === 1));
  }
});

it('knows where the question came from', () => {
  const requests = new AsyncLocalStorage<string>();
  together(() => {
    const poll = requests.run('one', () => polls.pollFor('callback:test', []));
    expect(poll?.context.runInAsyncScope(() => requests.getStore())).toBe('one');
  });
});

it('rests for the next question once it is asked often, and never while it has something else to wait for', async () => {
  const [one] = several(1) as [Thread];
  const until = async (isSo: () => boolean): Promise<void> => {
    while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
  };
  const round = async (): Promise<void> => {
    const before = one.asked.length;
    ask([one], before);
    await until(() => one.asked.length > before);
    one.asked.at(-1)!.pass(NOT_SPAM);
    await until(() => one.heard.length === one.asked.length);
  };
  for (let i = 0; i < 50; i++) await round();
  expect(one.rests).toEqual([]);
  isAtRest = true;
  // What rests is the thread of the test itself: its event loop has its turns all the same.
  while (one.rests.length < 3) await round();
  await round();
});

it('rests for longer where its event loop waits for nothing', async () => {
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const untilRested = async (one: Thread, isSo: (ms: number) => boolean): Promise<void> => {
    for (let asked = 0; !one.rests.some(isSo); asked = one.asked.length) {
      ask([one], asked);
      while (one.asked.length === asked) await turn();
      one.asked.at(-1)!.pass(NOT_SPAM);
    }
  };
  isAtRest = isBusy = true;
  // On a machine that is busy, any one of them may take longer.
  await untilRested(thread(), (ms) => ms < 20);
  isBusy = false;
  await untilRested(thread(), (ms) => ms > 15);
});
