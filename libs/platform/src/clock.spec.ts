import { SystemClock } from './clock.js';

describe("the system's clock", () => {
  it.each([2 ** 31, 30 * 86_400_000, 1e300, Infinity])(
    'waits for %d milliseconds, which no timer of the system can',
    async (ms) => {
      const clock = new SystemClock();
      let fired = 0;
      const overflow: Error[] = [];
      const warned = (warning: Error): void => void overflow.push(warning);
      process.on('warning', warned);
      const timers = [clock.after(ms, () => fired++), clock.every(ms, () => fired++)];
      const giveUp = new AbortController();
      const sleep = clock.sleep(ms, giveUp.signal).then(() => fired++);
      await clock.sleep(30);
      expect(fired).toBe(0);
      giveUp.abort();
      await sleep;
      for (const timer of timers) timer.cancel();
      process.off('warning', warned);
      expect([fired, overflow]).toEqual([1, []]);
    },
  );
});
