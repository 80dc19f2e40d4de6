import { offlineState } from '../model/presence-state.js';
import { EarlyPresences } from './early-presences.js';

describe('EarlyPresences', () => {
  const said = (userId: string, statusMsg: string) => ({ ...offlineState(userId), statusMsg });

  it('gives the latest of each user out once, and nothing that is old', () => {
    const early = new EarlyPresences();
    early.add([said('@a:x', 'one'), said('@b:y', 'other'), said('@a:x', 'two')], 0);
    expect(early.size).toBe(2);
    expect(early.takeOf(['@a:x', '@c:x'], 1).map(({ statusMsg }) => statusMsg)).toEqual(['two']);
    expect(early.takeOf(['@a:x'], 1)).toEqual([]);
    expect(early.takeOf(['@b:y'], 600_000)).toEqual([]);
    expect(early.size).toBe(0);
  });

  it('keeps so many of a server, and in all', () => {
    const early = new EarlyPresences();
    const usersOf = (server: string) => Array.from({ length: 1_500 }, (_, n) => said(`@user${n}:${server}`, ''));
    early.add(usersOf('one.test'), 0);
    expect(early.size).toBe(1_000);
    expect(early.takeOf(['@user499:one.test', '@user500:one.test'], 1).map(({ userId }) => userId)).toEqual([
      '@user500:one.test',
    ]);
    for (let n = 0; n < 20; n++) early.add(usersOf(`${n}.test`), 0);
    expect(early.size).toBe(10_000);
    expect(early.takeOf(['@user1499:one.test'], 1)).toEqual([]);
    expect(early.takeOf(['@user1499:19.test'], 1)).toHaveLength(1);
  });
});
