import { Config } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { Arrivals } from './arrivals.js';

const config = Config.fromObject({ server_name: 'example.org' });
const never = new AbortController().signal;

describe('waiting for a file', () => {
  it('ends when it arrives, with no time gone by', async () => {
    const clock = new FakeClock();
    const arrivals = new Arrivals(config, clock);
    let there = false;
    const waiting = arrivals.wait('a', 20_000, never, async () => (there ? 'here' : undefined));
    await clock.advance(0);
    there = true;
    arrivals.arrived('b');
    arrivals.arrived('a');
    expect(await waiting).toBe('here');
    expect(clock.monotonicMs()).toBe(0);
    expect(clock.pendingTimers).toBe(0);
  });

  it('looks again by itself: another process may have taken it', async () => {
    const clock = new FakeClock();
    let looks = 0;
    const waiting = new Arrivals(config, clock).wait('a', 20_000, never, async () =>
      ++looks === 4 ? 'here' : undefined,
    );
    await clock.advance(2_999);
    expect(looks).toBe(3);
    await clock.advance(1);
    expect(await waiting).toBe('here');
  });

  it('ends when the time is over, and when nobody waits any more', async () => {
    const clock = new FakeClock();
    const arrivals = new Arrivals(config, clock);
    const nothing = async (): Promise<undefined> => undefined;
    expect(await arrivals.wait('a', 0, never, nothing)).toBeUndefined();
    const waiting = arrivals.wait('a', 2_500, never, nothing);
    await clock.advance(2_500);
    expect(await waiting).toBeUndefined();
    const gone = new AbortController();
    const left = arrivals.wait('a', 60_000, gone.signal, nothing);
    await clock.advance(10);
    gone.abort();
    expect(await left).toBeUndefined();
    expect(clock.pendingTimers).toBe(0);
  });

  it('is for so many at once; others look and go', async () => {
    const clock = new FakeClock();
    const arrivals = new Arrivals(config, clock);
    const gone = new AbortController();
    const waiting = Array.from({ length: 1_000 }, () => arrivals.wait('a', 60_000, gone.signal, async () => undefined));
    expect(await arrivals.wait('a', 60_000, never, async () => undefined)).toBeUndefined();
    gone.abort();
    await Promise.all(waiting);
  });
});
