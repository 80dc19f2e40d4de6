import { E2eePorts, type RemoteKeysAnswer } from '@rookery/e2ee';
import type { FederationClient } from '@rookery/federation-client';
import { Metrics, SilentLogger } from '@rookery/platform';
import type { Database } from '@rookery/database';
import type { RemoteDeviceLists } from './remote-device-lists.js';
import { FakeClock } from '@rookery/testing';
import { FederationKeySource } from './remote-key-source.js';

/** A source whose one other server answers with a text. */
function sourceOf(answer: string): FederationKeySource {
  const logger = new SilentLogger();
  const client = { postJson: () => Promise.resolve(JSON.parse(answer) as unknown) } as unknown as FederationClient;
  const lists = {
    tracked: () => Promise.resolve({ userIds: new Set(), device_keys: {} }),
    wanted: () => Promise.resolve(),
  } as unknown as RemoteDeviceLists;
  const database = { query: () => Promise.resolve([]), dialect: { anyOf: () => '' } } as unknown as Database;
  return new FederationKeySource(
    ...([new E2eePorts(), client, lists, database, logger, new FakeClock(), new Metrics('a.test')] as const),
  );
}

describe('keys of other servers', () => {
  const eve = '@eve:evil.test';

  it('cannot reach into what every object has', async () => {
    const answer = `{"one_time_keys":{"__proto__":{"toString":{"a":1},"polluted":{"a":1}},"constructor":{"name":{"a":1}},
      "${eve}":{"__proto__":{"a":1},"toString":{"a":1},"D":{"signed_curve25519:A":{"key":"k"}}}}}`;
    const claimed = await sourceOf(answer).claim('evil.test', { [eve]: { D: 'signed_curve25519' } }, 1_000);
    expect(typeof Object.prototype.toString).toBe('function');
    expect(typeof Object.name).toBe('string');
    expect(Object.keys(claimed)).toEqual([eve]);
    expect(Object.keys(claimed[eve]!)).toEqual(['D']);
  });

  it('are taken for those who were asked about, whoever else is named', async () => {
    const device = { user_id: eve, device_id: 'D', keys: {} };
    const answer = JSON.stringify({
      device_keys: { constructor: {}, [eve]: { D: device } },
      master_keys: { constructor: { user_id: 'constructor' } },
    });
    const found = await sourceOf(answer).query('evil.test', { [eve]: [], '@mallory:evil.test': [] }, 1_000);
    expect(found.device_keys).toEqual({ [eve]: { D: device } });
    expect(found.master_keys).toEqual({});
  });

  describe('of whom some are known here', () => {
    const [kept, asked, other] = ['@kept:far.test', '@asked:far.test', '@other:far.test'];
    const all = { [kept]: [], [asked]: [], [other]: [] };

    /** @param shared who of those that are not known is in a room here, and so asked for alone */
    function make(ask: (userId: string) => Promise<unknown>, known: string[], shared: string[]) {
      const clock = new FakeClock();
      const keys = Object.fromEntries(known.map((userId) => [userId, { D: { a: 1 } }]));
      const lists = {
        tracked: async () => ({ userIds: new Set(known), device_keys: keys }),
        ask,
        wanted: async () => undefined,
      } as unknown as RemoteDeviceLists;
      const client = { postJson: () => ask(other) } as unknown as FederationClient;
      const database = {
        query: async () => shared.map((state_key) => ({ state_key })),
        dialect: { anyOf: () => '' },
      } as unknown as Database;
      const source = new FederationKeySource(
        ...([new E2eePorts(), client, lists, database, new SilentLogger(), clock, new Metrics('a.test')] as const),
      );
      return { clock, source };
    }

    it('are given for those, and for who could be asked, with what went wrong for others', async () => {
      const gone = new Error('gone');
      const ask = async (userId: string): Promise<unknown> => {
        if (userId === other) throw gone;
        return { device_keys: { [userId]: { E: { b: 2 } } } };
      };
      const { source } = make(ask, [kept], [asked]);
      const answer = await source.query('far.test', all, 1_000);
      expect(answer.device_keys).toEqual({ [kept]: { D: { a: 1 } }, [asked]: { E: { b: 2 } } });
      expect(answer.failure).toBe(gone);
    });

    it('are given in time, whoever does not answer', async () => {
      const { clock, source } = make(() => new Promise(() => undefined), [kept], [asked]);
      let answer: RemoteKeysAnswer | undefined;
      void source.query('far.test', all, 1_000).then((given) => (answer = given));
      await clock.advance(990);
      expect(answer?.device_keys).toEqual({ [kept]: { D: { a: 1 } } });
      expect(answer?.failure).toBeInstanceOf(Error);
    });

    it('are not given where nothing is known and nothing comes', async () => {
      const { source } = make(() => Promise.reject(new Error('gone')), [], [asked]);
      await expect(source.query('far.test', all, 1_000)).rejects.toThrow('gone');
    });
  });
});
