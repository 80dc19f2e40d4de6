import { SystemIds } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { RendezvousSessions } from './rendezvous-sessions.js';

describe('sessions in which one device signs in another', () => {
  const make = () => {
    const clock = new FakeClock();
    const sessions = new RendezvousSessions(clock, new SystemIds());
    const create = (holder: string) => sessions.create(holder, Buffer.from('hello'), '', 60_000).id;
    const isThere = (id: string): boolean => {
      try {
        return sessions.get(id).id === id;
      } catch {
        return false;
      }
    };
    return { clock, create, isThere };
  };

  it("end for one's own alone", () => {
    const { create, isThere } = make();
    const others = create('other');
    const own = Array.from({ length: 200 }, () => create('own'));
    expect(isThere(others)).toBe(true);
    expect(own.filter(isThere)).toEqual(own.slice(-10));
  });

  it('are some thousands at most, until they end', async () => {
    const { clock, create, isThere } = make();
    const all = Array.from({ length: 5_000 }, (_, n) => create(`n${n % 1_000}`));
    expect(() => create('late')).toThrow(expect.objectContaining({ status: 429, extra: { retry_after_ms: 60_000 } }));
    expect(all.every(isThere)).toBe(true);
    await clock.advance(60_000);
    expect(isThere(create('late'))).toBe(true);
  });
});
