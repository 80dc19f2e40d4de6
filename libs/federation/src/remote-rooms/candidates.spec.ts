import { type Destinations, type FederationClient, FederationRequestError } from '@rookery/federation-client';
import { Config, SilentLogger } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { type Attempt, Candidates } from './candidates.js';

describe('servers that may help', () => {
  const clock = new FakeClock();
  const failed: string[] = [];
  const make = (resting: readonly string[] = []): Candidates => {
    const config = Config.fromObject({ server_name: 'home.test', federation: { client_timeout: '60s' } });
    const client = { allows: () => true } as unknown as FederationClient;
    const destinations = {
      prepare: () => Promise.resolve(),
      state: (server: string) => Promise.resolve({ retryAtTs: resting.includes(server) ? 1 : 0 }),
      failed: (server: string) => Promise.resolve(void failed.push(server)),
    } as unknown as Destinations;
    return new Candidates(client, destinations, config, clock, new SilentLogger());
  };
  const failing = (server: string, reason: 'timeout' | 'unreachable'): never => {
    throw new FederationRequestError(server, reason, `${server}: ${reason}`);
  };

  it('are asked in their order, those that were down lately at the end', async () => {
    const asked: string[] = [];
    failed.length = 0;
    const ask = async (server: string): Promise<string> => {
      asked.push(server);
      return server === 'd.test' ? 'helped' : failing(server, 'unreachable');
    };
    const servers = ['a.test', 'b.test', 'home.test', 'c.test', 'd.test', 'e.test'];
    expect(await make(['a.test', 'b.test']).first(servers, ask)).toBe('helped');
    expect(asked).toEqual(['c.test', 'd.test']);
    // It is behind the others next time; those that rest are not made to rest longer.
    expect(failed).toEqual(['c.test']);
    asked.length = 0;
    expect(await make(['d.test']).first(servers, ask)).toBe('helped');
    expect(asked).toEqual(['a.test', 'b.test', 'c.test', 'e.test', 'd.test']);
  });

  it('have little time while there are others, and the usual time when there are none', async () => {
    const attempts: [string, Attempt][] = [];
    const ask = async (server: string, attempt: Attempt): Promise<string> => {
      attempts.push([server, attempt]);
      return attempt.timeoutMs === undefined ? 'helped late' : failing(server, 'timeout');
    };
    expect(await make().first(['a.test', 'b.test'], ask)).toBe('helped late');
    const little = { retries: 'none', timeoutMs: 10_000 };
    expect(attempts).toEqual([
      ['a.test', little],
      ['b.test', little],
      ['a.test', { retries: 'none' }],
    ]);
    attempts.length = 0;
    expect(await make().first(['a.test'], ask)).toBe('helped late');
    expect(attempts).toEqual([['a.test', { retries: 'short' }]]);
  });

  it('are asked once when they were down lately, and have little time where there are others', async () => {
    const attempts: [string, Attempt][] = [];
    const ask = async (server: string, attempt: Attempt): Promise<never> => {
      attempts.push([server, attempt]);
      return failing(server, 'timeout');
    };
    await expect(make(['a.test', 'b.test']).first(['a.test', 'b.test'], ask)).rejects.toMatchObject({ status: 504 });
    const little = { retries: 'none', timeoutMs: 10_000 };
    expect(attempts).toEqual([
      ['a.test', little],
      ['b.test', little],
    ]);
  });

  it('are asked no more than twice each', async () => {
    let asked = 0;
    const ask = (server: string): Promise<string> => {
      asked++;
      return Promise.reject(new FederationRequestError(server, 'timeout', 'silence'));
    };
    await expect(make().first(['a.test', 'b.test', 'c.test'], ask)).rejects.toMatchObject({ status: 504 });
    expect(asked).toBe(6);
  });
});
