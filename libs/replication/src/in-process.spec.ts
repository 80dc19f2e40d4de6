import { describeBus, FakeClock } from '@rookery/testing';
import { DeadlineWheel } from './deadline-wheel.js';
import { type BusMessage, defineRpc, InProcessBus } from './index.js';
import { InProcessRpc } from './rpc/rpc.js';

describeBus('InProcessBus', async () => {
  const bus = new InProcessBus();
  return { connect: async () => bus, stop: () => bus.close() };
});

describe('InProcessBus', () => {
  it('does not run readers inside the publisher', async () => {
    const bus = new InProcessBus();
    const heard: BusMessage[] = [];
    bus.subscribe((message) => heard.push(message));
    bus.publish({ stream: 's', writer: 'main', position: 1 });
    expect(heard).toEqual([]);
    await Promise.resolve();
    expect(heard).toHaveLength(1);
  });
});

describe('InProcessRpc', () => {
  const double = defineRpc<{ n: number }, { n: number }>('double');

  it('calls the handler and passes its answer or its refusal on', async () => {
    const rpc = new InProcessRpc();
    rpc.handle(double, async ({ n }) => {
      if (n < 0) throw new RangeError('negative');
      return { n: n * 2 };
    });
    expect(await rpc.call(double, { n: 21 })).toEqual({ n: 42 });
    await expect(rpc.call(double, { n: -1 })).rejects.toThrow(RangeError);
  });

  it('refuses two handlers and calls nobody answers', async () => {
    const rpc = new InProcessRpc();
    await expect(rpc.call(double, { n: 1 })).rejects.toThrow(/double/);
    rpc.handle(double, async (request) => request);
    expect(() => rpc.handle(double, async (request) => request)).toThrow(/already/);
  });
});

describe('DeadlineWheel', () => {
  it('fires late by a tick at most, never early, and rests when nothing waits', async () => {
    const clock = new FakeClock(0);
    const wheel = new DeadlineWheel(clock, 50);
    const fired: [number, number][] = [];
    for (const delayMs of [1, 49, 50, 51, 120, 1000]) {
      wheel.add({ onExpired: () => fired.push([delayMs, clock.monotonicMs()]) }, delayMs);
    }
    await clock.advance(2000);
    expect(fired.map(([delayMs]) => delayMs)).toEqual([1, 49, 50, 51, 120, 1000]);
    for (const [delayMs, atMs] of fired) {
      expect(atMs).toBeGreaterThanOrEqual(delayMs);
      expect(atMs).toBeLessThanOrEqual(delayMs + 50);
    }
    expect(clock.pendingTimers).toBe(0);
  });

  it('catches up after the machine slept, in order', () => {
    let nowMs = 0;
    let tick: () => void = () => {};
    const clock = Object.assign(new FakeClock(0), {
      monotonicMs: () => nowMs,
      every: (_: number, fn: () => void) => ((tick = fn), { cancel: () => {} }),
    });
    const wheel = new DeadlineWheel(clock, 50);
    const fired: string[] = [];
    wheel.add({ onExpired: () => fired.push('b') }, 7000);
    wheel.add({ onExpired: () => fired.push('a') }, 300);
    wheel.add({ onExpired: () => fired.push('c') }, 50_000_000);
    nowMs = 40_000_000;
    tick();
    expect(fired).toEqual(['a', 'b']);
    expect(wheel.size).toBe(1);
  });

  it('lets a deadline remove another of its moment, and be added again', async () => {
    const clock = new FakeClock(0);
    const wheel = new DeadlineWheel(clock, 50);
    const fired: string[] = [];
    const second = { onExpired: () => void fired.push('second') };
    wheel.add({ onExpired: () => (fired.push('first'), wheel.remove(second)) }, 10);
    wheel.add(second, 10);
    wheel.remove({ onExpired: () => {} });
    await clock.advance(100);
    wheel.add(second, 10);
    await clock.advance(100);
    expect(fired).toEqual(['first', 'second']);
    expect(clock.pendingTimers).toBe(0);
  });
});
