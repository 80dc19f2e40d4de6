import { Lifecycle, SilentLogger } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { GapFillers } from './gap-fillers.js';

describe('work that waits for other servers', () => {
  const make = (): { gaps: GapFillers; clock: FakeClock } => {
    const clock = new FakeClock();
    const logger = new SilentLogger();
    return { gaps: new GapFillers(clock, new Lifecycle(clock, logger), logger), clock };
  };
  const never = (): Promise<void> => new Promise(() => undefined);

  it('is done in its order, for one server and room', async () => {
    const { gaps, clock } = make();
    const done: number[] = [];
    for (let n = 0; n < 3; n++)
      gaps.add('a.test', '!r', async () => {
        await clock.sleep(10 - n);
        done.push(n);
      });
    await clock.advance(40);
    expect(done).toEqual([0, 1, 2]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('gets a place soon, however many servers take their time', async () => {
    const { gaps, clock } = make();
    for (let n = 0; n < 30; n++) gaps.add(`slow${n % 10}.test`, `!${n}`, never);
    let helped = 0;
    const help = (): Promise<void> => Promise.resolve(void helped++);
    gaps.add('good.test', '!r', help);
    await clock.advance(19_000);
    expect(helped).toBe(0);
    await clock.advance(2_000);
    expect(helped).toBe(1);
    // All the others are slow by now: who comes does not wait at all.
    await clock.advance(20_000);
    gaps.add('good.test', '!r', help);
    await clock.advance(0);
    expect(helped).toBe(2);
    // And nobody is waited for for ever.
    await clock.advance(600_000);
    expect(clock.pendingTimers).toBe(0);
  });

  it('has three places for one server, and a bounded number in all', async () => {
    const { gaps, clock } = make();
    let begun = 0;
    const slow = (): Promise<void> => {
      begun++;
      return never();
    };
    for (let n = 0; n < 5; n++) gaps.add('greedy.test', `!${n}`, slow);
    await clock.advance(100_000);
    expect(begun).toBe(3);
    for (let n = 0; n < 200; n++) gaps.add(`slow${n}.test`, '!r', slow);
    await clock.advance(190_000);
    expect(begun).toBe(64);
    expect(gaps.add('greedy.test', '!0', slow)).toBe(true);
  });
});
