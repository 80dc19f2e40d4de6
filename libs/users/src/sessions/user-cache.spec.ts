import { Config } from '@rookery/platform';
import { TokenCache } from './user-cache.js';
import type { TokenOwner } from './token.query.js';

const owner = (userId: string, puppetedBy?: string): TokenOwner => ({
  tokenId: 1,
  userId,
  puppetedBy,
  used: true,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  deactivated: false,
  approved: true,
});

const config = Config.fromObject({ server_name: 'x' });

const read = (value: TokenOwner) => () => Promise.resolve(value);
const nothing = (): Promise<undefined> => Promise.resolve(undefined);

describe('TokenCache', () => {
  it('keeps what was read for a minute', async () => {
    const cache = new TokenCache(config);
    await cache.fetch('hash', 1000, read(owner('@a:x')));
    expect(await cache.fetch('hash', 60_999, nothing)).toMatchObject({ userId: '@a:x' });
    expect(await cache.fetch('hash', 61_000, nothing)).toBeUndefined();
  });

  it('does not keep what was read before a change and comes in after it', async () => {
    const cache = new TokenCache(config);
    for (const change of [() => cache.invalidateUser('@a:x'), () => cache.invalidateAll()]) {
      const { promise, resolve } = Promise.withResolvers<TokenOwner>();
      const reading = cache.fetch('hash', 0, () => promise);
      change();
      resolve(owner('@a:x'));
      expect(await reading).toMatchObject({ userId: '@a:x' });
      expect(await cache.fetch('hash', 0, nothing)).toBeUndefined();
    }
  });

  it('keeps what was read while somebody else changed', async () => {
    const cache = new TokenCache(config);
    const { promise, resolve } = Promise.withResolvers<TokenOwner>();
    const reading = cache.fetch('hash', 0, () => promise);
    cache.invalidateUser('@b:x');
    resolve(owner('@a:x'));
    await reading;
    expect(await cache.fetch('hash', 0, nothing)).toMatchObject({ userId: '@a:x' });
  });

  it('forgets all tokens of a user, those of administrators acting as the user among them, and nobody else’s', async () => {
    const cache = new TokenCache(config);
    for (const [hash, one] of Object.entries({
      own: owner('@a:x'),
      puppet: owner('@a:x', '@root:x'),
      rootOwn: owner('@root:x'),
      other: owner('@b:x'),
    }))
      await cache.fetch(hash, 0, read(one));
    cache.invalidateUser('@a:x');
    const left = await Promise.all(['own', 'puppet', 'rootOwn', 'other'].map((hash) => cache.fetch(hash, 0, nothing)));
    expect(left.map((one) => one?.userId)).toEqual([undefined, undefined, '@root:x', '@b:x']);
  });

  it('stays within its size, and forgets by user what is left', async () => {
    const cache = new TokenCache(config);
    const hashes = Array.from({ length: 30_000 }, (_, i) => `hash${i}`);
    for (const hash of hashes) await cache.fetch(hash, 0, read(owner('@a:x')));
    const left = await Promise.all(hashes.map((hash) => cache.fetch(hash, 0, nothing)));
    expect(left.filter(Boolean)).toHaveLength(20_000);
    cache.invalidateUser('@a:x');
    expect(await cache.fetch('hash29999', 0, nothing)).toBeUndefined();
  });
});
