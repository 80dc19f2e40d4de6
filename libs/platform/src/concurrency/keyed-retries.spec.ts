import { FakeClock } from '@rookery/testing';
import { KeyedRetries } from './keyed-retries.js';

describe('retries by key', () => {
  it('come after pauses that grow, until it succeeds', async () => {
    const clock = new FakeClock();
    const retries = new KeyedRetries(clock, { firstMs: 10, longestMs: 50 });
    const at: number[] = [];
    const again = (): void => {
      at.push(clock.monotonicMs());
      retries.later('a', again);
    };
    retries.later('a', again);
    await clock.advance(220);
    expect(at).toEqual([10, 30, 70, 120, 170, 220]);
    retries.forget('a');
    expect(clock.pendingTimers).toBe(0);
    retries.later('a', again);
    await clock.advance(10);
    expect(at).toHaveLength(7);
    retries.stop();
    retries.later('b', again);
    expect(clock.pendingTimers).toBe(0);
  });
});
