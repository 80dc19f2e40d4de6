import { eventually, FakeClock } from '@rookery/testing';
import { atEase, SystemClock } from '../index.js';

/** Time passes as the test says. */
class SteppedClock extends SystemClock {
  readonly slept: number[] = [];
  ms = 0;
  override monotonicMs(): number {
    return this.ms;
  }
  override async sleep(ms: number): Promise<void> {
    this.slept.push(ms);
  }
}

it.each([
  [0, []],
  [40, [40]],
  [2_000, [100]],
])('rests after a step of %i ms: %j', async (tookMs, slept) => {
  const clock = new SteppedClock();
  const step = async (): Promise<string> => {
    clock.ms += tookMs;
    return 'done';
  };
  expect(await atEase(clock, undefined, step)).toBe('done');
  expect(clock.slept).toEqual(slept);
});

it('gives others a turn after a short step', async () => {
  const order: string[] = [];
  setImmediate(() => order.push('others'));
  await atEase(new SteppedClock(), undefined, async () => void order.push('step'));
  order.push('next');
  expect(order).toEqual(['step', 'others', 'next']);
});

it('rests no longer when the work is to end', async () => {
  const clock = new FakeClock();
  const ending = new AbortController();
  const work = atEase(clock, ending.signal, () => clock.advance(40));
  await eventually(() => clock.pendingTimers === 1);
  ending.abort();
  await work;
  expect(clock.pendingTimers).toBe(0);
});
