import { SigningKey } from '@rookery/events';
import { type KeyRing, OwnKeys } from '@rookery/federation-client';
import { Config } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { UnprovenLimits } from '../inbound/unproven-limits.js';
import { KeyPublisher } from './key-publisher.js';

const keysOf = (servers: number, ids: number): Map<string, Map<string, number>> =>
  new Map(
    Array.from({ length: servers }, (_, i) => [
      `s${i}.test`,
      new Map(Array.from({ length: ids }, (__, j) => [`ed25519:${j}`, 0])),
    ]),
  );

describe('keys of other servers, told to anybody', () => {
  it('are told to one address so many times, whether anybody is asked for them or not', async () => {
    const [clock, config] = [new FakeClock(), Config.fromObject({ server_name: 'here.test' })];
    let told = 0;
    const ring: Pick<KeyRing, 'renew' | 'statements'> = {
      renew: async () => undefined,
      statements: async () => (told++, []),
    };
    const own = new OwnKeys('here.test', [SigningKey.generate('one')], []);
    const publisher = new KeyPublisher(config, clock, own, ring as KeyRing, new UnprovenLimits(config, clock));
    for (let i = 0; i < 50; i++) await publisher.query('10.0.0.1', keysOf(50, i % 2 === 0 ? 0 : 3));
    for (let i = 0; i < 10; i++) await publisher.query('10.0.0.2', keysOf(100, 0));
    await expect(publisher.query('10.0.0.1', keysOf(1, 0))).rejects.toMatchObject({ status: 429 });
    expect(await publisher.query('10.0.0.1', new Map())).toEqual([]);
    await clock.advance(1_000);
    await publisher.query('10.0.0.1', keysOf(50, 0));
    await expect(publisher.query('10.0.0.1', keysOf(1, 0))).rejects.toMatchObject({ status: 429 });
    expect(told).toBe(62);
  });

  it('have so many servers asked for one address, and no more', async () => {
    const [clock, config] = [new FakeClock(), Config.fromObject({ server_name: 'here.test' })];
    const asked: string[] = [];
    const ring: Pick<KeyRing, 'renew' | 'statements'> = {
      renew: async (wanted, _, within) => {
        for (const name of wanted.keys()) await within?.(name, async () => asked.push(name));
      },
      statements: async () => [],
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
