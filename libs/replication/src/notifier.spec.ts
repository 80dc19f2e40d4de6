import { FakeClock, RecordingLogger } from '@rookery/testing';
import { SystemClock } from '@rookery/platform';
import { InProcessBus, Notifier } from './index.js';
import { type PositionSource, type WaitOutcome } from './notifier.js';

/** Positions that a test moves by hand. */
class FakeSource implements PositionSource {
  #listeners = new Set<(position: number) => void>();
  #position = 0;
  constructor(readonly name: string) {}
  current(): number {
    return this.#position;
  }
  onAdvance(listener: (position: number) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
  moveTo(position: number): void {
    this.#position = position;
    for (const listener of this.#listeners) listener(position);
  }
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('Notifier', () => {
  let clock: FakeClock;
  let bus: InProcessBus;
  let notifier: Notifier;
  let outcomes: Record<string, WaitOutcome>;
  const wait = (userId: string, label = userId, options: Partial<Parameters<Notifier['wait']>[1]> = {}): void =>
    void notifier.wait(userId, { timeoutMs: 30_000, ...options }).then((outcome) => (outcomes[label] = outcome));

  beforeEach(() => {
    clock = new FakeClock();
    bus = new InProcessBus();
    notifier = new Notifier(clock, bus);
    outcomes = {};
  });

  it('wakes those whom news concern, and nobody else', async () => {
    wait('@a:x');
    wait('@a:x', 'second device');
    wait('@b:x');
    notifier.announce('events', 5, { users: ['@a:x', '@stranger:x'] });
    await settled();
    expect(outcomes).toEqual({ '@a:x': 'news', 'second device': 'news' });
    expect(notifier.waiting).toBe(1);
    notifier.announce('events', 6, { users: new Set(['@c:x', '@d:x', '@b:x', '@e:x']) });
    await settled();
    expect(outcomes['@b:x']).toBe('news');
    expect(notifier.waiting).toBe(0);
    expect(clock.pendingTimers).toBe(0);
  });

  it('wakes by room those who are interested in it', async () => {
    wait('@a:x', 'in', { inRoom: (roomId) => roomId === '!r' });
    wait('@b:x', 'out', { inRoom: (roomId) => roomId === '!s' });
    wait('@c:x', 'none');
    notifier.announce('typing', 1, { rooms: ['!q', '!r'] });
    await settled();
    expect(outcomes).toEqual({ in: 'news' });
  });

  it('ends at the time-out, not before, and on the signal', async () => {
    const gone = new AbortController();
    wait('@a:x', 'short', { timeoutMs: 1000 });
    wait('@a:x', 'long', { timeoutMs: 30_000 });
    wait('@a:x', 'client gone', { signal: gone.signal });
    await clock.advance(999);
    expect(outcomes).toEqual({});
    gone.abort();
    await clock.advance(60);
    expect(outcomes).toEqual({ short: 'timeout', 'client gone': 'aborted' });
    await clock.advance(28_900);
    expect(outcomes['long']).toBeUndefined();
    await clock.advance(100);
    expect(outcomes['long']).toBe('timeout');
    expect(clock.pendingTimers).toBe(0);
  });

  it('answers at once when there is news, no time or no client', async () => {
    expect(await notifier.wait('@a:x', { timeoutMs: 1000, hasNews: () => true })).toBe('news');
    expect(await notifier.wait('@a:x', { timeoutMs: 0, hasNews: () => false })).toBe('timeout');
    expect(await notifier.wait('@a:x', { timeoutMs: 1000, signal: AbortSignal.abort() })).toBe('aborted');
    const givenUp = notifier.begin('@a:x', { timeoutMs: 1000 });
    expect(notifier.waiting).toBe(1);
    givenUp.end();
    expect([await givenUp.outcome, notifier.waiting]).toEqual(['aborted', 0]);
    givenUp.end();
    const over = notifier.begin('@a:x', { timeoutMs: 1000, hasNews: () => true });
    over.end();
    expect(await over.outcome).toBe('news');
    expect(notifier.waiting).toBe(0);
  });

  it('holds news until everything before them is readable', async () => {
    const events = new FakeSource('events');
    notifier.track(events);
    const followed: number[] = [];
    notifier.onAdvance('events', (position) => followed.push(position));
    wait('@first:x');
    wait('@second:x');
    // 6 was committed before 5: whoever looked now would find nothing.
    notifier.announce('events', 6, { users: ['@second:x'] });
    await settled();
    expect(outcomes).toEqual({});
    events.moveTo(6);
    notifier.announce('events', 5, { users: ['@first:x'] });
    await settled();
    expect(outcomes).toEqual({ '@first:x': 'news', '@second:x': 'news' });
    expect(followed).toEqual([6]);
    expect(notifier.position('events')).toBe(6);
  });

  it('tells others in the order of the positions, once all that happens at the same time has been announced', async () => {
    const events = new FakeSource('events');
    notifier.track(events);
    const told: (readonly [number, unknown])[] = [];
    bus.subscribe(({ position, changed }) => told.push([position, changed?.['room']]));
    const announce = (position: number, room: string): void =>
      notifier.announce('events', position, { changed: { room: [room] } });
    announce(3, '!third');
    announce(2, '!second');
    await settled();
    expect(told).toEqual([]);
    // With the first all three can be read, a moment before it says what it changed.
    events.moveTo(3);
    announce(1, '!first');
    // What is done in the same moment has to wait its turn.
    queueMicrotask(() => {
      events.moveTo(4);
      announce(4, '!fourth');
    });
    await settled();
    expect(told).toEqual([
      [1, ['!first']],
      [2, ['!second']],
      [3, ['!third']],
      [4, ['!fourth']],
    ]);

    // Whoever stops lets go of those who wait, and still tells what others do.
    announce(6, '!sixth');
    notifier.close();
    events.moveTo(6);
    announce(5, '!fifth');
    await settled();
    expect(told.slice(4)).toEqual([
      [5, ['!fifth']],
      [6, ['!sixth']],
    ]);
  });

  it('does so for a stream that counts down', async () => {
    const backfill = new FakeSource('backfill');
    notifier.track(backfill);
    wait('@a:x');
    notifier.announce('backfill', -2, { users: ['@a:x'] });
    await settled();
    expect(outcomes).toEqual({});
    backfill.moveTo(-3);
    await settled();
    expect(outcomes).toEqual({ '@a:x': 'news' });
  });

  it('hears of other processes over the bus, in any order, and not of itself twice', async () => {
    const other = new Notifier(clock, bus, { instance: 'worker1' });
    const here: number[] = [];
    const there: number[] = [];
    notifier.onAdvance('receipts', (position) => here.push(position));
    other.onAdvance('receipts', (position) => there.push(position));
    wait('@a:x');
    other.announce('receipts', 3, { users: new Set(['@a:x']) });
    await settled();
    expect(outcomes).toEqual({ '@a:x': 'news' });
    bus.publish({ stream: 'receipts', writer: 'worker1', position: 2 });
    other.announce('receipts', 4);
    await settled();
    expect(here).toEqual([3, 4]);
    expect(there).toEqual([3, 4]);
    expect(notifier.position('receipts')).toBe(4);
    other.close();
  });

  it('waits until a position may be read, for a while', async () => {
    const events = new FakeSource('events');
    notifier.track(events);
    const results: Record<string, boolean> = {};
    const reach = (label: string, position: number, signal?: AbortSignal): void =>
      void notifier
        .reached('events', position, { timeoutMs: 1000, signal })
        .then((result) => (results[label] = result));
    const gone = new AbortController();
    reach('soon', 5);
    reach('never', 9);
    reach('gone', 9, gone.signal);
    events.moveTo(4);
    await settled();
    expect(results).toEqual({});
    events.moveTo(6);
    gone.abort();
    await settled();
    expect(results).toEqual({ soon: true, gone: false });
    expect(await notifier.reached('events', 6, { timeoutMs: 0 })).toBe(true);
    expect(await notifier.reached('events', 7, { timeoutMs: 0 })).toBe(false);
    await clock.advance(1100);
    expect(results['never']).toBe(false);
    expect(clock.pendingTimers).toBe(0);
  });

  it('limits the waits of one user', async () => {
    notifier = new Notifier(clock, bus, { maxWaitsPerUser: 2 });
    for (const label of ['1', '2', '3']) wait('@a:x', label);
    await settled();
    expect(outcomes).toEqual({ '1': 'timeout' });
    expect(notifier.waiting).toBe(2);
    const single = new Notifier(clock, bus, { maxWaitsPerUser: 1 });
    const first = single.wait('@a:x', { timeoutMs: 1000 });
    const second = single.wait('@a:x', { timeoutMs: 1000 });
    expect(await first).toBe('timeout');
    single.announce('events', 1, { users: ['@a:x'] });
    expect(await second).toBe('news');
  });

  it('survives a follower that throws and lets go of everybody when it closes', async () => {
    const logger = new RecordingLogger();
    notifier = new Notifier(clock, bus, { logger });
    notifier.onAdvance('events', () => {
      throw new Error('bad');
    });
    wait('@a:x');
    notifier.announce('events', 1);
    expect(logger.messages('error')).toHaveLength(1);
    notifier.close();
    await settled();
    expect(outcomes).toEqual({ '@a:x': 'aborted' });
    expect(await notifier.wait('@a:x', { timeoutMs: 1000 })).toBe('aborted');
    expect(clock.pendingTimers).toBe(0);
  });

  it('lets go of whoever waits for a position when it closes', async () => {
    const reached = notifier.reached('events', 9, { timeoutMs: 60_000 });
    notifier.close();
    expect(await reached).toBe(false);
    expect(clock.pendingTimers).toBe(0);
  });

  it('ends waits before it falls silent: what is written until then is told, and what others write heard', async () => {
    const other = new Notifier(clock, bus, { instance: 'worker1' });
    const heard: Record<'here' | 'there', number[]> = { here: [], there: [] };
    for (const [at, one] of [['here', notifier] as const, ['there', other] as const])
      one.share('notes', { changed: ({ position }) => heard[at].push(position), missed: () => heard[at].push(-1) });
    wait('@a:x');
    notifier.endWaits();
    await settled();
    expect([outcomes, notifier.waiting]).toEqual([{ '@a:x': 'aborted' }, 0]);
    expect(await notifier.wait('@a:x', { timeoutMs: 1000, hasNews: () => true })).toBe('aborted');
    notifier.announceShared('notes', { from: 0, position: 1 });
    await settled();
    other.announceShared('notes', { from: 1, position: 2 });
    await settled();
    expect(heard).toEqual({ here: [1, 2], there: [1, 2] });

    // Whoever wrote behind others still answers once it knows of what they wrote.
    let isSettled = false;
    notifier.announceShared('notes', { from: 3, position: 4 });
    void notifier.settled('notes', 4)?.then(() => (isSettled = true));
    await settled();
    expect([isSettled, heard.here]).toEqual([false, [1, 2]]);
    other.announceShared('notes', { from: 2, position: 3 });
    await settled();
    expect([isSettled, heard]).toEqual([true, { here: [1, 2, 3, 4], there: [1, 2, 3, 4] }]);

    isSettled = false;
    void notifier.settled('notes', 6)?.then(() => (isSettled = true));
    await settled();
    expect(isSettled).toBe(false);
    notifier.close();
    await settled();
    expect([isSettled, notifier.settled('notes', 6)]).toEqual([true, undefined]);
    other.announceShared('notes', { from: 4, position: 5 });
    notifier.announceShared('notes', { from: 5, position: 6 });
    await settled();
    expect(heard).toEqual({ here: [1, 2, 3, 4], there: [1, 2, 3, 4, 5] });
    other.close();
    expect(clock.pendingTimers).toBe(0);
  });

  it('carries 2,000 waiters in little memory, with little work', async () => {
    const rooms = new Set(['!r']);
    let [bytesEach, spentMs] = [Infinity, Infinity];
    // The least of a few tries is the work itself: what else the process does, such as collecting garbage, only adds.
    for (let round = 0; round < 3 || (bytesEach === Infinity && round < 30); round++) {
      const real = new Notifier(new SystemClock(), bus);
      globalThis.gc?.();
      const started = process.cpuUsage();
      const before = process.memoryUsage().heapUsed;
      const waits = Array.from({ length: 2000 }, (_, i) =>
        real.wait(`@user${i}:x`, { timeoutMs: 30_000, inRoom: (roomId) => rooms.has(roomId) }),
      );
      // Where garbage was collected meanwhile, the difference says nothing.
      const grown = process.memoryUsage().heapUsed - before;
      if (grown > 0) bytesEach = Math.min(bytesEach, grown / 2000);
      const spent = process.cpuUsage(started);
      spentMs = Math.min(spentMs, (spent.user + spent.system) / 1000);
      real.close();
      expect((await Promise.all(waits)).every((outcome) => outcome === 'aborted')).toBe(true);
    }
    expect(bytesEach).toBeLessThan(2048);
    expect(spentMs).toBeLessThan(250);
  });
});
