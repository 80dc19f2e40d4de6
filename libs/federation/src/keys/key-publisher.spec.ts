import { SigningKey } from '@rookery/events';
import { type KeyRing, OwnKeys } from '@rookery/federation-client';
import { Config } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { UnprovenLimits } from '../inbound/unproven-limits.js';
import { KeyPublisher } from './key-publisher.js';

describe('keys of other servers, told to anybody', () => {
  it('have so many servers asked for one address, and no more', async () => {
    const [clock, config] = [new FakeClock(), Config.fromObject({ server_name: 'here.test' })];
    const asked: string[] = [];
    const ring: Pick<KeyRing, 'statements'> = {
      statements: async (wanted, _, within) => {
        for (const name of wanted.keys()) await within?.(name, async () => asked.push(name));
        return [];
      },
    };
    const own = new OwnKeys('here.test', [SigningKey.generate('one')], []);
    const publisher = new KeyPublisher(config, clock, own, ring as KeyRing, new UnprovenLimits(config, clock));
    const askFor = async (ip: string, from: number): Promise<number> => {
      const before = asked.length;
      await publisher.query(ip, new Map(Array.from({ length: 100 }, (_, i) => [`s${from + i}.test`, new Map()])));
      return asked.length - before;
    };
    expect(await askFor('10.0.0.1', 0)).toBe(100);
    expect(await askFor('10.0.0.1', 100)).toBe(0);
    expect(await askFor('10.0.0.2', 100)).toBe(100);
    await clock.advance(2_000);
    expect(await askFor('10.0.0.1', 200)).toBe(10);
  });
});
