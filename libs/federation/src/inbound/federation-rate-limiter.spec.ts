import { Config, Metrics } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { FederationRateLimiter } from './federation-rate-limiter.js';

describe('requests of one other server', () => {
  const never = new AbortController().signal;
  const make = (settings: object): { limiter: FederationRateLimiter; clock: FakeClock; metrics: Metrics } => {
    const clock = new FakeClock();
    const config = Config.fromObject({ rc_federation: settings });
    const metrics = new Metrics('a.test');
    return { limiter: new FederationRateLimiter(config, clock, metrics), clock, metrics };
  };
  const settled = async (promise: Promise<unknown>): Promise<boolean> => {
    let done = false;
    const settle = (): void => void (done = true);
    promise.then(settle, settle);
    await new Promise((resolve) => setImmediate(resolve));
    return done;
  };

  it('are slowed down when they come too fast, and only then', async () => {
    const { limiter, clock } = make({ window_size: 1000, sleep_limit: 2, sleep_delay: 500, concurrent: 100 });
    for (let i = 0; i < 2; i++) (await limiter.enter('b.test', never))();
    const third = limiter.enter('b.test', never);
    expect(await settled(third)).toBe(false);
    expect(await settled(limiter.enter('c.test', never))).toBe(true);
    await clock.advance(500);
    expect(await settled(third)).toBe(true);
    await clock.advance(600);
    expect(await settled(limiter.enter('b.test', never))).toBe(true);
  });

  it('are told of in metrics: which servers are delayed and refused now, and how long requests waited', async () => {
    const { limiter, clock, metrics } = make({ window_size: 1000, sleep_limit: 1, sleep_delay: 500, reject_limit: 1 });
    const shown = async (name: string): Promise<number> => {
      const line = new RegExp(`^synapse_rate_limit_${name}\\{.*\\} (\\S+)$`, 'm').exec((await metrics.render()).body);
      return Number(line?.[1]);
    };
    await limiter.enter('b.test', never);
    const waiting = [limiter.enter('b.test', never), limiter.enter('b.test', never)];
    await expect(limiter.enter('b.test', never)).rejects.toMatchObject({ status: 429 });
    expect([await shown('sleep_affected_hosts'), await shown('reject_affected_hosts')]).toEqual([1, 1]);
    await clock.advance(500);
    await Promise.all(waiting);
    expect([await shown('sleep_affected_hosts'), await shown('reject_affected_hosts')]).toEqual([0, 1]);
    expect([await shown('queue_wait_time_seconds_count'), await shown('queue_wait_time_seconds_sum')]).toEqual([3, 1]);
    await clock.advance(1_000);
    expect(await shown('reject_affected_hosts')).toBe(0);
  });

  it('wait for their turn when there are many at once', async () => {
    const { limiter } = make({ sleep_limit: 100, concurrent: 2 });
    const leave = await limiter.enter('b.test', never);
    await limiter.enter('b.test', never);
    const third = limiter.enter('b.test', never);
    const gone = new AbortController();
    const given = limiter.enter('b.test', gone.signal);
    const fifth = limiter.enter('b.test', never);
    gone.abort();
    await expect(given).rejects.toMatchObject({ status: 503 });
    expect(await settled(third)).toBe(false);
    leave();
    leave();
    expect(await settled(third)).toBe(true);
    expect(await settled(fifth)).toBe(false);
    (await third)();
    expect(await settled(fifth)).toBe(true);
  });

  it('are refused when too many wait', async () => {
    const { limiter } = make({ window_size: 1000, sleep_limit: 10, concurrent: 1, reject_limit: 3 });
    await limiter.enter('b.test', never);
    for (let i = 0; i < 4; i++) limiter.enter('b.test', never).catch(() => undefined);
    await expect(limiter.enter('b.test', never)).rejects.toMatchObject({
      ...{ status: 429, errcode: 'M_LIMIT_EXCEEDED', extra: { retry_after_ms: 100 } },
    });
    expect(await settled(limiter.enter('c.test', never))).toBe(true);
  });

  it('servers that are quiet are forgotten', async () => {
    const { limiter, clock } = make({ window_size: 1000 });
    for (let i = 0; i < 5_000; i++) {
      (await limiter.enter(`s${i}.test`, never))();
      await clock.advance(10);
    }
    expect(limiter.size).toBeLessThan(1_200);
  });
});
