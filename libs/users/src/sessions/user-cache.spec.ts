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

describe('TokenCache', () => {
  it('gives back what was put there, for a minute', () => {
    const cache = new TokenCache(config);
    cache.set('hash', owner('@a:x'), 1000, cache.generation);
    expect(cache.get('hash', 1000)).toMatchObject({ userId: '@a:x' });
    expect(cache.get('hash', 60_999)).toBeDefined();
    expect(cache.get('hash', 61_000)).toBeUndefined();
  });

  it('does not keep what was read before a change and comes in after it', () => {
    const cache = new TokenCache(config);
    const { generation } = cache;
    cache.invalidateUser('@a:x');
    cache.set('hash', owner('@a:x'), 0, generation);
    expect(cache.get('hash', 0)).toBeUndefined();
  });

  it('forgets all tokens of a user, those of administrators acting as the user among them, and nobody else’s', () => {
    const cache = new TokenCache(config);
    for (const [hash, one] of Object.entries({
      own: owner('@a:x'),
      puppet: owner('@a:x', '@root:x'),
      rootOwn: owner('@root:x'),
      other: owner('@b:x'),
    }))
      cache.set(hash, one, 0, cache.generation);
    cache.invalidateUser('@a:x');
    expect(['own', 'puppet', 'rootOwn', 'other'].map((hash) => cache.get(hash, 0) !== undefined)).toEqual([
      false,
      false,
      true,
      true,
    ]);
  });

  it('stays within its size, and forgets by user what is left', () => {
    const cache = new TokenCache(config);
    for (let i = 0; i < 30_000; i++) cache.set(`hash${i}`, owner('@a:x'), 0, cache.generation);
    expect(Array.from({ length: 30_000 }, (_, i) => cache.get(`hash${i}`, 0)).filter(Boolean)).toHaveLength(20_000);
    cache.invalidateUser('@a:x');
    expect(cache.get('hash29999', 0)).toBeUndefined();
  });
});
