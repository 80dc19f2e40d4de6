import { E2eePorts } from '@rookery/e2ee';
import type { FederationClient } from '@rookery/federation-client';
import { Metrics, SilentLogger } from '@rookery/platform';
import type { Database } from '@rookery/database';
import type { RemoteDeviceLists } from './remote-device-lists.js';
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
  return new FederationKeySource(new E2eePorts(), client, lists, database, logger, new Metrics('a.test'));
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
});
