import { Clock, Config, type Requester, type Timer } from '@rookery/platform';
import { LeakyBucketRateLimiter, type RateLimit, RateLimitOverrides, rateLimitsOf } from './index.js';

class HeldClock extends Clock {
  ms = 0;
  nowMs(): number {
    return this.ms;
  }
  monotonicMs(): number {
    return this.ms;
  }
  after(): Timer {
    return { cancel: () => undefined };
  }
  every(): Timer {
    return { cancel: () => undefined };
  }
}

class Overrides extends RateLimitOverrides {
  constructor(private readonly limits: Record<string, RateLimit>) {
    super();
  }
  async find(userId: string): Promise<RateLimit | undefined> {
    return this.limits[userId];
  }
}

const requester = (userId: string, more: Partial<Requester> = {}): Requester => ({
  userId,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  ...more,
});

describe('LeakyBucketRateLimiter', () => {
  const clock = new HeldClock();
  const limits: Record<string, RateLimit> = {
    rc_message: { perSecond: 0.2, burstCount: 3 },
    'rc_login.address': { perSecond: 1, burstCount: 1 },
    never: { perSecond: 0, burstCount: 1 },
  };
  const limiter = (overrides?: RateLimitOverrides, max?: number): LeakyBucketRateLimiter =>
    new LeakyBucketRateLimiter(clock, (name) => limits[name], overrides, max);
  const refusal = async (attempt: Promise<void>): Promise<unknown> =>
    attempt.then(
      () => 'taken',
      (error: { extra: { retry_after_ms: number } }) => error.extra.retry_after_ms,
    );

  it('allows a burst, then what leaks, and says when to come back', async () => {
    const buckets = limiter();
    for (let i = 0; i < 3; i++) await buckets.take('rc_message', '@a:x');
    expect(await refusal(buckets.take('rc_message', '@a:x'))).toBe(5000);
    clock.ms += 4000;
    expect(await refusal(buckets.take('rc_message', '@a:x'))).toBe(1000);
    clock.ms += 1000;
    expect(await refusal(buckets.take('rc_message', '@a:x'))).toBe('taken');
    expect(await refusal(buckets.take('rc_message', '@a:x'))).toBe(5000);
  });

  it('takes nothing when it refuses, or only looks', async () => {
    const buckets = limiter();
    for (let i = 0; i < 100; i++) expect(await buckets.mayTake('rc_login.address', 'ip')).toBe(true);
    await buckets.take('rc_login.address', 'ip');
    for (let i = 0; i < 100; i++) expect(await buckets.mayTake('rc_login.address', 'ip')).toBe(false);
    for (let i = 0; i < 100; i++)
      await expect(buckets.take('rc_login.address', 'ip')).rejects.toMatchObject({
        status: 429,
        errcode: 'M_LIMIT_EXCEEDED',
      });
    clock.ms += 1000;
    await buckets.take('rc_login.address', 'ip');
  });

  it('keeps limiters and keys apart, and counts costs', async () => {
    const buckets = limiter();
    await buckets.take('rc_message', '@a:x', undefined, 3);
    await buckets.take('rc_message', '@b:x', undefined, 2);
    expect(await refusal(buckets.take('rc_message', '@b:x', undefined, 2))).toBe(5000);
    await buckets.take('rc_login.address', '@a:x');
    await buckets.take('unheard_of', 'k', undefined, 3);
    await expect(buckets.take('unheard_of', 'k')).rejects.toMatchObject({ status: 429 });
    // Whoever waits for what never fits would wait for ever.
    const tooMuch = buckets.take('rc_message', '@c:x', undefined, 4);
    await expect(tooMuch).rejects.toMatchObject({ status: 400, errcode: 'M_INVALID_PARAM' });
  });

  it('counts all addresses of an IPv6 network as one client', async () => {
    const buckets = limiter();
    await buckets.take('rc_login.address', '2001:db8:1:2::5');
    for (const address of ['2001:db8:1:2::6', '2001:db8:1:2:3:4:5:6', '2001:db8:1:2:ffff::']) {
      expect([address, await buckets.mayTake('rc_login.address', address)]).toEqual([address, false]);
    }
    for (const address of ['2001:db8:1:3::5', '2001:db8::5', '::1', '10.0.0.1']) {
      expect([address, await buckets.mayTake('rc_login.address', address)]).toEqual([address, true]);
    }
    // Whatever the limiter is: many are asked by address or by something else.
    await buckets.take('unheard_of', '2001:db8:1:2::5', undefined, 3);
    expect(await buckets.mayTake('unheard_of', '2001:db8:1:2::6')).toBe(false);
  });

  it('asks for a long pause where nothing ever leaks', async () => {
    const buckets = limiter();
    await buckets.take('never', 'k');
    expect(await refusal(buckets.take('never', 'k'))).toBe(86_400_000);
  });

  it('exempts application services, and honours overrides for limits by user', async () => {
    const buckets = limiter(
      new Overrides({ '@free:x': { perSecond: 0, burstCount: 0 }, '@fast:x': { perSecond: 1, burstCount: 5 } }),
    );
    for (let i = 0; i < 50; i++)
      await buckets.take('rc_message', '@bot:x', requester('@bot:x', { rateLimitExempt: true }));
    for (let i = 0; i < 50; i++) await buckets.take('rc_message', '@free:x', requester('@free:x'));
    for (let i = 0; i < 5; i++) await buckets.take('rc_message', '@fast:x', requester('@fast:x'));
    expect(await refusal(buckets.take('rc_message', '@fast:x', requester('@fast:x')))).toBe(1000);
    // Who is unlimited is so whatever is counted; other numbers are about what somebody sends.
    for (const name of ['rc_invites.per_room', 'rc_invites.per_user', 'rc_joins_per_room', 'rc_user_directory'])
      for (let i = 0; i < 50; i++) await buckets.take(name, 'key', requester('@free:x'));
    for (let i = 0; i < 3; i++) await buckets.take('rc_user_directory', '@fast:x', requester('@fast:x'));
    await expect(buckets.take('rc_user_directory', '@fast:x', requester('@fast:x'))).rejects.toMatchObject({
      status: 429,
    });
    await buckets.take('rc_login.address', 'ip', requester('@free:x'));
    await expect(buckets.take('rc_login.address', 'ip', requester('@free:x'))).rejects.toMatchObject({ status: 429 });
  });

  it('forgets empty buckets, and bounds the others', async () => {
    const buckets = limiter(undefined, 100);
    for (let i = 0; i < 1000; i++) await buckets.take('rc_message', `user ${i}`);
    expect(buckets.size).toBe(100);
    clock.ms += 60_000;
    for (let i = 0; i < 100; i++, clock.ms += 1000) await buckets.take('rc_login.address', 'one');
    expect(buckets.size).toBeLessThan(5);
  });

  it('takes its numbers from the settings', () => {
    const config = Config.fromObject({
      rc_message: { per_second: 7, burst_count: 9 },
      rc_login: { address: { per_second: 2 } },
    });
    const limitOf = rateLimitsOf(config);
    expect(limitOf('rc_message')).toEqual({ perSecond: 7, burstCount: 9 });
    expect(limitOf('rc_admin_redaction')).toEqual({ perSecond: 7, burstCount: 9 });
    expect(limitOf('rc_login.address')).toEqual({ perSecond: 2, burstCount: 5 });
    expect(limitOf('rc_third_party_invite')).toEqual({ perSecond: 0.0025, burstCount: 5 });
    expect(limitOf('nothing')).toBeUndefined();
    config.reload(Config.fromObject({ rc_message: { per_second: 1, burst_count: 2 } }));
    expect(limitOf('rc_message')).toEqual({ perSecond: 1, burstCount: 2 });
    expect(limitOf('rc_login.address')).toEqual({ perSecond: 0.003, burstCount: 5 });
  });
});
