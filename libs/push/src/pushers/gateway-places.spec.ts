import { setImmediate as turn } from 'node:timers/promises';
import { GatewayPlaces } from './gateway-places.js';

describe('GatewayPlaces', () => {
  let places: GatewayPlaces;
  let begun: string[];
  let open: (() => void)[];

  beforeEach(() => {
    places = new GatewayPlaces();
    [begun, open] = [[], []];
  });

  /** Users with so many pushers each, that all keep their places until told. */
  const ask = async (users: readonly string[], gateway: string | undefined, count: number): Promise<void> => {
    const asking = (userId: string): Promise<void> =>
      places.run({ userId, gateway }, () => {
        begun.push(userId);
        return new Promise((done) => open.push(done));
      });
    for (const userId of users) for (let i = 0; i < count; i++) void asking(userId);
    await turn();
  };
  const of = (userId: string): number => begun.filter((one) => one === userId).length;
  const end = async (): Promise<void> => {
    open.shift()?.();
    await turn();
  };

  it('keep neither a user with many nor a gateway from those who wait for others', async () => {
    await ask(['a'], 'silent', 100);
    expect(of('a')).toBe(8);
    await ask(['b', 'c', 'd', 'e'], 'silent', 10);
    expect(begun).toHaveLength(32);
    await ask(['a', 'f'], 'other', 1);
    expect([of('a'), of('f')]).toEqual([8, 1]);
  });

  it('go to those who have waited longest, one for each before a second one for anybody', async () => {
    for (const n of [1, 2, 3, 4]) await ask([`${n}a`, `${n}b`, `${n}c`, `${n}d`], `slow ${n}`, 100);
    expect(begun).toHaveLength(128);
    await ask(['late'], undefined, 1);
    await end();
    expect(of('late')).toBe(1);
  });

  it('are given back by what fails, and not waited for any longer when that is pointless', async () => {
    for (const n of [1, 2, 3, 4]) await ask([`${n}a`, `${n}b`, `${n}c`, `${n}d`], `slow ${n}`, 10);
    const fails = expect(places.run({ userId: 'z' }, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
    const given = new AbortController();
    const givesUp = expect(places.run({ userId: 'y' }, () => Promise.resolve(), given.signal)).rejects.toThrow(
      'enough',
    );
    given.abort(new Error('enough'));
    await givesUp;
    while (open.length > 0) await end();
    await fails;
    expect(begun).toHaveLength(160);
  });
});
