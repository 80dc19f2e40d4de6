import { E2eePorts, type KeyRoom, type RemoteKeysAnswer } from '@rookery/e2ee';
import type { FederationClient } from '@rookery/federation-client';
import { Metrics, SilentLogger } from '@rookery/platform';
import type { Database } from '@rookery/database';
import type { RemoteDeviceLists } from './remote-device-lists.js';
import { FakeClock } from '@rookery/testing';
import { FederationKeySource } from './remote-key-source.js';

/** Room for so many bytes. */
function roomOf(leftBytes = 8_388_608): KeyRoom {
  const room = {
    leftBytes,
    take: (bytes: number) => bytes <= room.leftBytes && ((room.leftBytes -= bytes), true),
  };
  return room;
}

/** Largest answers that the other server was allowed. */
const allowed: unknown[] = [];

/** A source whose one other server answers with a text. */
function sourceOf(answer: string): FederationKeySource {
  const logger = new SilentLogger();
  const postJson = async (_server: string, _path: string, _body: unknown, { maxBytes }: { maxBytes: number }) => {
    allowed.push(maxBytes);
    return JSON.parse(answer) as unknown;
  };
  const client = { postJson } as unknown as FederationClient;
  const lists = { wanted: () => Promise.resolve() } as unknown as RemoteDeviceLists;
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
    const claimed = await sourceOf(answer).claim('evil.test', { [eve]: { D: 'signed_curve25519' } }, 1_000, roomOf());
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
    const found = await sourceOf(answer).query('evil.test', { [eve]: [], '@mallory:evil.test': [] }, 1_000, roomOf());
    expect(found.device_keys).toEqual({ [eve]: { D: device } });
    expect(found.master_keys).toEqual({});
  });

  describe('that are large', () => {
    const device = (deviceId: string, chars: number) => ({ user_id: eve, device_id: deviceId, x: 'x'.repeat(chars) });
    const answerOf = (...devices: ReturnType<typeof device>[]): string =>
      JSON.stringify({ device_keys: { [eve]: Object.fromEntries(devices.map((one) => [one.device_id, one])) } });

    it('are none where no device here could have as large ones', async () => {
      const queried = sourceOf(answerOf(device('SMALL', 1), device('LARGE', 65_536)));
      const found = await queried.query('evil.test', { [eve]: [] }, 1_000, roomOf());
      expect(Object.keys(found.device_keys[eve] ?? {})).toEqual(['SMALL']);
      expect(found.failure).toBeUndefined();
      const keys = { SMALL: { 'a:1': 'key' }, LARGE: { 'a:1': 'x'.repeat(65_536) } };
      const wanted = { [eve]: { SMALL: 'a', LARGE: 'a' } };
      const claimed = sourceOf(JSON.stringify({ one_time_keys: { [eve]: keys } }));
      expect(await claimed.claim('evil.test', wanted, 1_000, roomOf())).toEqual({ [eve]: { SMALL: keys.SMALL } });
    });

    it('are given as far as there is room, and nobody is asked where there is none', async () => {
      const source = sourceOf(answerOf(device('FIRST', 60_000), device('SECOND', 60_000)));
      const answer = await source.query('evil.test', { [eve]: [] }, 1_000, roomOf(100_000));
      expect(Object.keys(answer.device_keys[eve] ?? {})).toEqual(['FIRST']);
      expect(answer.failure).toBeInstanceOf(Error);
      const before = allowed.length;
      await expect(source.query('evil.test', { [eve]: [] }, 1_000, roomOf(60_000))).rejects.toThrow('no room');
      await expect(source.claim('evil.test', { [eve]: { D: 'a' } }, 1_000, roomOf(60_000))).rejects.toThrow('no room');
      expect(allowed).toHaveLength(before);
    });

    it('may come in an answer that is as large as what is asked for', async () => {
      allowed.length = 0;
      const source = sourceOf('{}');
      const users = Object.fromEntries(Array.from({ length: 1_000 }, (_, n) => [`@u${n}:evil.test`, []]));
      await source.query('evil.test', { [eve]: [] }, 1_000, roomOf());
      await source.query('evil.test', { [eve]: [], '@b:evil.test': [] }, 1_000, roomOf());
      await source.query('evil.test', users, 1_000, roomOf());
      await source.claim('evil.test', { [eve]: { C: 'a', D: 'a' } }, 1_000, roomOf());
      expect(allowed).toEqual([1_048_576, 1_114_112, 8_388_608, 1_114_112]);
    });
  });

  describe('that are asked for one by one, and together', () => {
    const [kept, single, other] = ['@kept:far.test', '@single:far.test', '@other:far.test'];
    const both = { [single]: [], [other]: [] };

    /** A source that knows the devices of one user; another shares a room with somebody here, and is asked for alone. */
    function make(ask: (userId: string) => Promise<unknown>) {
      const clock = new FakeClock();
      const keys = { [kept]: { C: { c: 3 }, D: { a: 1 } } };
      const lists = {
        tracked: async () => ({ userIds: new Set([kept]), leftOut: ['@long:far.test'], device_keys: keys }),
        ask,
        wanted: async () => undefined,
      } as unknown as RemoteDeviceLists;
      const client = { postJson: () => ask(other) } as unknown as FederationClient;
      const database = {
        query: async () => [{ state_key: single }],
        dialect: { anyOf: () => '' },
      } as unknown as Database;
      const source = new FederationKeySource(
        ...([new E2eePorts(), client, lists, database, new SilentLogger(), clock, new Metrics('a.test')] as const),
      );
      return { clock, source };
    }
    const found = { device_keys: { [single]: { E: { b: 2 } } } };

    it('need not be asked for where they are kept', async () => {
      const { source } = make(() => Promise.reject(new Error('gone')));
      expect(await source.known({ [kept]: ['D'], [other]: [] }, roomOf())).toMatchObject({
        ...{ device_keys: { [kept]: { D: { a: 1 } } }, userIds: new Set([kept]), leftOut: ['@long:far.test'] },
      });
    });

    it('are given of who could be asked, with what went wrong for others', async () => {
      const gone = new Error('gone');
      const { source } = make(async (userId) => {
        if (userId === other) throw gone;
        return found;
      });
      const answer = await source.query('far.test', both, 1_000, roomOf());
      expect(answer.device_keys).toEqual(found.device_keys);
      expect(answer.failure).toBe(gone);
    });

    it('are given in time, whoever does not answer', async () => {
      const { clock, source } = make((userId) => (userId === single ? Promise.resolve(found) : new Promise(() => {})));
      let answer: RemoteKeysAnswer | undefined;
      void source.query('far.test', both, 1_000, roomOf()).then((given) => (answer = given));
      await clock.advance(990);
      expect(answer?.device_keys).toEqual(found.device_keys);
      expect(answer?.failure).toBeInstanceOf(Error);
    });

    it('are not given where nothing comes', async () => {
      const { source } = make(() => Promise.reject(new Error('gone')));
      await expect(source.query('far.test', both, 1_000, roomOf())).rejects.toThrow('gone');
    });
  });
});
