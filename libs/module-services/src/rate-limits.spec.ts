import { LeakyBucketRateLimiter, type RateLimit, RateLimitOverrides } from '@rookery/http';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import type { Requester } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { ModuleRateLimiter } from './rate-limits.js';

const requester: Requester = {
  userId: '@ann:example.org',
  ...{ isGuest: false, isAdmin: false, shadowBanned: false, suspended: false, locked: false },
};

class Fixed extends RateLimitOverrides {
  constructor(private readonly limit?: RateLimit) {
    super();
  }
  find(): Promise<RateLimit | undefined> {
    return Promise.resolve(this.limit);
  }
}

/** A limiter whose settings allow one action, behind a module that answers. */
function limiterWith(
  answer: (limiter: string) => RateLimit | undefined,
  administrators = new Fixed(),
): ModuleRateLimiter {
  const clock = new FakeClock();
  const usual = new LeakyBucketRateLimiter(clock, () => ({ perSecond: 0.001, burstCount: 1 }), administrators);
  const dispatcher = new ModuleDispatcher();
  const registry = new ModuleRegistry(() => {});
  registry.addModule('m');
  registry.add('m', { onError: 'deny', timeLimitMs: undefined }, 'ratelimit', {
    getRatelimitOverrideForUser: (_userId, limiter) => answer(limiter),
  });
  dispatcher.install(registry.seal());
  return new ModuleRateLimiter(usual, administrators, dispatcher, clock);
}

/** How many of ten actions get through. */
async function through(
  limiter: ModuleRateLimiter,
  name: string,
  who: Requester | undefined = requester,
): Promise<number> {
  let count = 0;
  for (let i = 0; i < 10; i++) {
    const may = await limiter.mayTake(name, 'key', who);
    const took = await limiter.take(name, 'key', who).then(
      () => true,
      () => false,
    );
    expect(may).toBe(took);
    if (took) count++;
  }
  return count;
}

it.each(['rc_invites.per_room', 'rc_invites.per_user', 'rc_invites.per_issuer'])(
  'a module decides about %s',
  async (name) => {
    expect(
      await through(
        limiterWith(() => ({ perSecond: 0.001, burstCount: 4 })),
        name,
      ),
    ).toBe(4);
    expect(
      await through(
        limiterWith(() => ({ perSecond: 0, burstCount: 0 })),
        name,
      ),
    ).toBe(10);
    expect(
      await through(
        limiterWith(() => undefined),
        name,
      ),
    ).toBe(1);
  },
);

it('a module is not asked about other limiters, nor for nobody', async () => {
  const never = (): never => {
    throw new Error('asked');
  };
  expect(await through(limiterWith(never), 'rc_message')).toBe(1);
  const limiter = limiterWith(never);
  let count = 0;
  for (let i = 0; i < 3; i++)
    await limiter.take('rc_invites.per_room', 'key').then(
      () => count++,
      () => {},
    );
  expect(count).toBe(1);
});

it('whom an administrator freed of limits no module limits; other numbers of theirs are not about these', async () => {
  const module = () => ({ perSecond: 0.001, burstCount: 2 });
  const free = new Fixed({ perSecond: 0, burstCount: 0 });
  expect(await through(limiterWith(module, free), 'rc_invites.per_issuer')).toBe(10);
  const fast = new Fixed({ perSecond: 0.001, burstCount: 5 });
  expect(await through(limiterWith(module, fast), 'rc_invites.per_issuer')).toBe(2);
  const silent = limiterWith(() => undefined, fast);
  expect(await through(silent, 'rc_invites.per_issuer')).toBe(1);
  expect(await through(silent, 'rc_message')).toBe(5);
});

it('other numbers begin anew', async () => {
  let burstCount = 2;
  const limiter = limiterWith(() => ({ perSecond: 0.001, burstCount }));
  expect(await through(limiter, 'rc_invites.per_room')).toBe(2);
  burstCount = 3;
  expect(await through(limiter, 'rc_invites.per_room')).toBe(3);
});
