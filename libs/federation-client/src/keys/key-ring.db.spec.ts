import { buildEvent, roomVersionRules, type RoomEvent, signEvent, signJson, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eachDatabase, eventually, FakeClock, FakeNames, type TestDatabase } from '@rookery/testing';
import type { ServerResponse } from 'node:http';
import {
  authority,
  json,
  makeClient,
  PlayedServer,
  type SeenRequest,
  type TestClient,
} from '../federation-client.fixture.js';
import type { WantedKeys } from './key-fetcher.js';
import type { KeyRing } from './key-ring.js';
import { federationClientMigrations } from '../migrations/federation-client-01.migration.js';

const dayMs = 86_400_000;
const keyOf = (version: string, fill: number): SigningKey =>
  SigningKey.fromSeed(version, new Uint8Array(32).fill(fill));
const published = (key: SigningKey): JsonObject => ({ [key.keyId]: { key: key.publicKey } });

eachDatabase('the keys of other servers', (open) => {
  let test: TestDatabase;
  const clock = new FakeClock(Date.now());
  const stops: (() => Promise<unknown>)[] = [];
  let count = 0;
  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(federationClientMigrations);
  });
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
  });

  const now = (): number => clock.nowMs();
  const clientFor = (names: FakeNames, settings: object = {}): TestClient => {
    const client = makeClient({ database: test.database, clock, names, settings: { ...settings } });
    stops.push(() => client.close());
    return client;
  };
  const saidOf = async (keys: KeyRing, wanted: WantedKeys, untilTs?: number): Promise<JsonObject[]> => {
    await keys.renew(wanted, untilTs);
    return keys.statements(wanted);
  };
  const newName = (): string => `server${++count}.test`;
  const play = async (
    names: FakeNames,
    name: string,
    answer: (request: SeenRequest, response: ServerResponse) => void,
  ): Promise<PlayedServer> => {
    const server = await PlayedServer.start([name], answer, { certificate: authority.issue([name]) });
    names.host(`${name}:8448`, server.endpoint);
    stops.push(() => server.stop());
    return server;
  };
  /** What a server says about its keys, signed with its current ones. */
  const statement = (name: string, keys: readonly SigningKey[], change: object = {}): JsonObject => {
    let object: JsonObject = {
      ...{ server_name: name, valid_until_ts: now() + dayMs, old_verify_keys: {} },
      verify_keys: Object.assign({}, ...keys.map(published)) as JsonObject,
      ...change,
    };
    for (const key of keys) object = signJson(object, name, key);
    return object;
  };
  const publisher = async (
    says: (name: string) => unknown,
  ): Promise<TestClient & { name: string; server: PlayedServer; names: FakeNames }> => {
    const names = new FakeNames();
    const name = newName();
    const server = await play(names, name, (request, response) => {
      if (request.url === '/_matrix/key/v2/server') json(response, says(name));
      else json(response, {}, 404);
    });
    return { ...clientFor(names), name, server, names };
  };

  it('are asked for once, then remembered, also over a restart', async () => {
    const key = keyOf('a', 11);
    const { keys, name, server, names } = await publisher((own) => statement(own, [key]));
    const found = await Promise.all(Array.from({ length: 20 }, () => keys.keyOf(name, key.keyId, now())));
    for (const one of found) expect(one?.validUntilTs).toBe(now() + dayMs);
    expect(found[0]!.key.verify('text', key.sign('text'))).toBe(true);
    expect(server.seen).toHaveLength(1);
    expect((await clientFor(names).keys.keyOf(name, key.keyId, now()))?.validUntilTs).toBe(now() + dayMs);
    expect(server.seen).toHaveLength(1);
  });

  it('are those of this server itself without asking', async () => {
    const { keys, own } = clientFor(new FakeNames());
    const known = await keys.keyOf('origin.test', own.current.keyId, now());
    expect(known?.key.verify('text', own.current.sign('text'))).toBe(true);
    expect(await keys.keyOf('origin.test', 'ed25519:none', now())).toBeUndefined();
  });

  it('hold no longer than seven days, and old ones until they were given up', async () => {
    const key = keyOf('new', 12);
    const old = keyOf('old', 13);
    const { keys, name } = await publisher((own) =>
      statement(own, [key], {
        valid_until_ts: now() + 400 * dayMs,
        old_verify_keys: {
          [old.keyId]: { key: old.publicKey, expired_ts: now() - dayMs },
          'ed25519:future': { key: old.publicKey, expired_ts: now() + dayMs },
        },
      }),
    );
    expect((await keys.keyOf(name, key.keyId, 0))?.validUntilTs).toBe(now() + 7 * dayMs);
    expect((await keys.keyOf(name, old.keyId, 0))?.validUntilTs).toBe(now() - dayMs);
    expect((await keys.keyOf(name, 'ed25519:future', 0))?.validUntilTs).toBe(now());
  });

  it('are asked for again when they must hold for longer, not all the time', async () => {
    const key = keyOf('a', 14);
    const { keys, name, server } = await publisher((own) => statement(own, [key], { valid_until_ts: now() + 60_000 }));
    await keys.keyOf(name, key.keyId, now());
    await clock.advance(61_000);
    expect((await keys.keyOf(name, key.keyId, 0))?.validUntilTs).toBe(now() - 1_000);
    expect(server.seen).toHaveLength(1);
    expect((await keys.keyOf(name, key.keyId, now()))?.validUntilTs).toBe(now() + 60_000);
    expect(server.seen).toHaveLength(2);
    // An unknown id does not make this server ask and ask.
    for (let i = 0; i < 10; i++) expect(await keys.keyOf(name, `ed25519:x${i}`, now())).toBeUndefined();
    expect(server.seen).toHaveLength(2);
    await clock.advance(1_000);
    expect(await keys.keyOf(name, 'ed25519:x1', now())).toBeUndefined();
    expect(server.seen).toHaveLength(3);
  });

  it('are seen within a second when they are new, whatever was asked for before', async () => {
    let current = keyOf('before', 18);
    let isThere = true;
    const { keys, name, server } = await publisher((own) => (isThere ? statement(own, [current]) : {}));
    expect(await keys.keyOf(name, current.keyId, now())).toBeDefined();
    // A made-up signature has this server ask just before the key changes; and then it cannot be had for a while.
    await clock.advance(1_000);
    expect(await keys.keyOf(name, 'ed25519:made_up', now())).toBeUndefined();
    current = keyOf('after', 19);
    isThere = false;
    await clock.advance(1_000);
    expect(await keys.keyOf(name, current.keyId, now())).toBeUndefined();
    isThere = true;
    const before = server.seen.length;
    expect(await keys.keyOf(name, current.keyId, now())).toBeUndefined();
    expect(server.seen).toHaveLength(before);
    await clock.advance(1_000);
    expect(await keys.keyOf(name, current.keyId, now())).toBeDefined();
    expect(server.seen).toHaveLength(before + 1);
  });

  it('are asked for again when one may have taken the place of another under its id, once a second', async () => {
    const [first, second] = [keyOf('a', 21), keyOf('a', 22)];
    let current = first;
    let isThere = true;
    const { keys, name, server } = await publisher((own) => (isThere ? statement(own, [current]) : {}));
    const kept = (await keys.keyOf(name, first.keyId, now()))!.key;
    current = second;
    expect(await keys.replacementOf(name, first.keyId, kept)).toBeUndefined();
    expect(server.seen).toHaveLength(1);
    await clock.advance(1_000);
    const found = await Promise.all(
      Array.from({ length: 20 }, () => keys.replacementOf(name, first.keyId, first.verifyKey)),
    );
    for (const one of found) expect(one?.key.verify('x', second.sign('x'))).toBe(true);
    expect(server.seen).toHaveLength(2);
    expect((await keys.keyOf(name, first.keyId, now()))?.key.verify('x', second.sign('x'))).toBe(true);
    // Wrong signatures do not make this server ask and ask, nor forget what it has.
    isThere = false;
    for (let n = 0; n < 30; n++) {
      expect(await keys.replacementOf(name, n % 2 === 0 ? first.keyId : `ed25519:x${n}`, second.verifyKey)).toBe(
        undefined,
      );
      await clock.advance(100);
    }
    // In the second and the third of these seconds: the first was begun by those above.
    expect(server.seen).toHaveLength(2 + 2);
    expect(await keys.keptKey(name, first.keyId)).toBeDefined();
    expect(await keys.replacementOf('origin.test', first.keyId, kept)).toBeUndefined();
  });

  const key = keyOf('a', 15);
  const other = keyOf('b', 16);
  it.each<[string, (name: string) => unknown]>([
    ['a list', () => []],
    ['nothing', () => ({})],
    ['of another server', () => statement('other.test', [key])],
    [
      'of another server, but signed by this one',
      (name) => signJson({ ...statement('other.test', []), verify_keys: published(key) }, name, key),
    ],
    ['unsigned', (name) => ({ ...statement(name, [key]), signatures: {} })],
    [
      'signed by another server',
      (name) => signJson({ ...statement(name, []), verify_keys: published(key) }, 'x.test', key),
    ],
    [
      'signed with another key',
      (name) => signJson({ ...statement(name, []), verify_keys: published(key) }, name, other),
    ],
    [
      'signed with an old key only',
      (name) =>
        signJson(
          {
            ...statement(name, []),
            verify_keys: published(key),
            old_verify_keys: { [other.keyId]: { key: other.publicKey, expired_ts: 1 } },
          },
          name,
          other,
        ),
    ],
    ['changed afterwards', (name) => ({ ...statement(name, [key]), valid_until_ts: now() + 5 * dayMs })],
    ['without a time', (name) => statement(name, [key], { valid_until_ts: undefined })],
    ['with a time that is none', (name) => statement(name, [key], { valid_until_ts: '1' })],
    ['with a time before time', (name) => statement(name, [key], { valid_until_ts: -1 })],
    ['with a key that is none', (name) => statement(name, [key], { verify_keys: { [key.keyId]: { key: 'short' } } })],
    ['with keys that are none', (name) => statement(name, [key], { verify_keys: [key.publicKey] })],
    [
      'with a key of another kind',
      (name) => statement(name, [key], { verify_keys: { 'rsa:1': { key: key.publicKey } } }),
    ],
    ['nested without end', () => JSON.parse('['.repeat(3_000) + ']'.repeat(3_000)) as unknown],
    ['larger than anybody needs', (name) => statement(name, [key], { more: 'x'.repeat(70_000) })],
  ])('are not believed when they are %s', async (_, says) => {
    const { keys, name } = await publisher(says);
    expect(await keys.keyOf(name, key.keyId, 0)).toBeUndefined();
    const stored = await test.database.query('SELECT 1 FROM server_signature_keys WHERE server_name = ?', [name]);
    expect(stored).toEqual([]);
  });

  it('are limited in number, and bad ones among good ones are passed over', async () => {
    const many = Object.fromEntries(Array.from({ length: 150 }, (_, i) => [`ed25519:k${i}`, { key: key.publicKey }]));
    const { keys, name } = await publisher((own) =>
      statement(own, [key], {
        verify_keys: {
          ...published(key),
          'ed25519:bad key': { key: key.publicKey },
          'ed25519:': { key: key.publicKey },
          'ed25519:none': null,
          __proto__: { key: key.publicKey },
          ...many,
        },
      }),
    );
    expect(await keys.keyOf(name, key.keyId, now())).toBeDefined();
    const rows = await test.database.query<{ key_id: string }>(
      'SELECT key_id FROM server_signature_keys WHERE server_name = ?',
      [name],
    );
    expect(rows.length).toBeLessThanOrEqual(100);
    const texts = await test.database.query('SELECT key_id FROM server_keys_json WHERE server_name = ?', [name]);
    expect(texts).toHaveLength(10);
    expect(rows.every(({ key_id }) => /^ed25519:[a-z0-9]+$/.test(key_id))).toBe(true);
  });

  it('and what was said of them are kept of one server as far as anybody needs them, the newest', async () => {
    let round = 0;
    const { keys, name } = await publisher((own) => {
      round++;
      const more = Array.from({ length: 90 }, (_, i) => [`ed25519:r${round}k${i}`, { key: key.publicKey }] as const);
      return statement(own, [key], { verify_keys: { ...published(key), ...Object.fromEntries(more) } });
    });
    const other = await publisher((own) => statement(own, [key]));
    await other.keys.keyOf(other.name, key.keyId, now());
    for (let i = 1; i <= 5; i++) {
      await clock.advance(31_000);
      const told = await saidOf(keys, new Map([[name, new Map([[`ed25519:r${i}k0`, now()]])]]));
      expect(told).toMatchObject([{ server_name: name }]);
    }
    const keptOf = (table: string): Promise<readonly { key_id: string }[]> =>
      test.database.query<{ key_id: string }>(`SELECT key_id FROM ${table} WHERE server_name = ?`, [name]);
    const [texts, all] = [await keptOf('server_keys_json'), await keptOf('server_signature_keys')];
    expect(texts.length).toBeLessThanOrEqual(20);
    expect(all.length).toBeLessThanOrEqual(300);
    expect(all.map(({ key_id }) => key_id)).toEqual(
      expect.arrayContaining([key.keyId, 'ed25519:r5k0', 'ed25519:r4k0']),
    );
    expect(await other.keys.keptKey(other.name, key.keyId)).toBeDefined();
    const rest = await test.database.query('SELECT 1 FROM server_signature_keys WHERE server_name = ?', [other.name]);
    expect(rest).toHaveLength(1);
  });

  it('are never of what is no server', async () => {
    const names = new FakeNames();
    const { keys } = clientFor(names);
    for (const name of ['', 'a b', 'x'.repeat(300), 'https://a.test', '../a'])
      expect(await keys.keyOf(name, 'ed25519:a', 0)).toBeUndefined();
    expect(await keys.keyOf('a.test', 'rsa:a', 0)).toBeUndefined();
    expect(await keys.keyOf('a.test', `ed25519:${'x'.repeat(200)}`, 0)).toBeUndefined();
    expect(names.asked).toEqual([]);
  });

  describe('told by a trusted key server', () => {
    const notaryKey = keyOf('notary', 20);
    interface Notary {
      readonly client: TestClient;
      readonly server: PlayedServer;
      readonly names: FakeNames;
      readonly notary: string;
    }
    const withNotary = async (
      tells: (wanted: Record<string, Record<string, unknown>>, name: string) => unknown,
      trust: object = { verify_keys: { [notaryKey.keyId]: notaryKey.publicKey } },
    ): Promise<Notary> => {
      const names = new FakeNames();
      const notary = newName();
      const server = await play(names, notary, (request, response) => {
        const { server_keys } = JSON.parse(request.body) as { server_keys: Record<string, Record<string, unknown>> };
        json(response, tells(server_keys, notary));
      });
      const settings = { trusted_key_servers: [{ server_name: notary, ...trust }] };
      return { client: clientFor(names, settings), server, names, notary };
    };
    const vouched = (name: string, notary: string, change: object = {}): JsonObject =>
      signJson(statement(name, [key], change), notary, notaryKey);

    it('are believed with its signature', async () => {
      const { client, server } = await withNotary((wanted, notary) => ({
        server_keys: Object.keys(wanted).map((name) => vouched(name, notary)),
      }));
      const name = newName();
      const known = await client.keys.keyOf(name, key.keyId, now());
      expect(known?.key.verify('x', key.sign('x'))).toBe(true);
      expect(server.seen).toHaveLength(1);
      expect(server.seen[0]).toMatchObject({ method: 'POST', url: '/_matrix/key/v2/query' });
      expect(JSON.parse(server.seen[0]!.body)).toEqual({
        server_keys: { [name]: { [key.keyId]: { minimum_valid_until_ts: now() } } },
      });
    });

    it.each<[string, (name: string, notary: string) => unknown]>([
      ['without its signature', (name) => statement(name, [key])],
      ['with the signature of another key', (name, notary) => signJson(statement(name, [key]), notary, other)],
      [
        'without the signature of their server',
        (name, notary) => signJson({ ...statement(name, [key]), signatures: {} }, notary, notaryKey),
      ],
      ['of a server that nobody asked for', (_, notary) => vouched('unasked.test', notary)],
      ['in no object', () => 'x'],
    ])('are not believed %s', async (_, tells) => {
      const { client } = await withNotary((wanted, notary) => ({
        server_keys: Object.keys(wanted).map((name) => tells(name, notary)),
      }));
      expect(await client.keys.keyOf(newName(), key.keyId, 0)).toBeUndefined();
      const rows = await test.database.query("SELECT 1 FROM server_keys_json WHERE server_name = 'unasked.test'");
      expect(rows).toEqual([]);
    });

    it('do not count against what their server says itself', async () => {
      const { client, names, notary } = await withNotary((wanted) => ({
        server_keys: Object.keys(wanted).map((name) => signJson(statement(name, [keyOf('a', 77)]), notary, notaryKey)),
      }));
      const name = newName();
      const server = await play(names, name, (_, response) => json(response, statement(name, [key])));
      expect((await client.keys.keyOf(name, key.keyId, now()))?.key.verify('x', key.sign('x'))).toBe(true);
      await server.stop();
      await clock.advance(2 * dayMs);
      // Now only the notary answers, with another key of the same id.
      const known = await client.keys.keyOf(name, key.keyId, now());
      expect([known?.key.verify('x', key.sign('x')), (known?.validUntilTs ?? 0) < now()]).toEqual([true, true]);
    });

    it('do not bring back what their server has given up', async () => {
      const startedTs = now();
      const { client, names } = await withNotary((wanted, notary) => ({
        // As it was before the key was replaced.
        server_keys: Object.keys(wanted).map((name) =>
          vouched(name, notary, { valid_until_ts: startedTs + 6 * dayMs }),
        ),
      }));
      const name = newName();
      const expiredTs = startedTs - dayMs;
      const server = await play(names, name, (_, response) =>
        json(
          response,
          statement(name, [other], {
            old_verify_keys: { [key.keyId]: { key: key.publicKey, expired_ts: expiredTs } },
          }),
        ),
      );
      const untilTs = async (): Promise<unknown> => (await client.keys.keyOf(name, key.keyId, now()))?.validUntilTs;
      expect(await untilTs()).toBe(expiredTs);
      // Now only the notary answers.
      await server.stop();
      await clock.advance(2 * dayMs);
      expect(await untilTs()).toBe(expiredTs);
      expect((await client.keys.keptKey(name, key.keyId))?.validUntilTs).toBe(expiredTs);
      const restarted = clientFor(names);
      expect((await restarted.keys.keptKey(name, key.keyId))?.validUntilTs).toBe(expiredTs);
      const event = signedEvent('10', name, key, now());
      expect((await client.keys.verifyEvent(event)).valid).toBe(false);
    });

    it('are asked for in one request where there are many servers', async () => {
      const { client, server, notary } = await withNotary((wanted, by) => ({
        server_keys: Object.keys(wanted).map((name) => vouched(name, by)),
      }));
      const events = Array.from({ length: 40 }, () => signedEvent('10', newName(), key, now()));
      expect(await client.keys.verifyEvents(events)).toEqual(events.map(() => ({ valid: true })));
      expect(server.seen).toHaveLength(1);
      // Nobody waited for those that may be gone.
      expect(client.names.asked.filter((asked) => asked.endsWith(':8448'))).toEqual([`${notary}:8448`]);
      expect(await client.keys.verifyEvents(events)).toEqual(events.map(() => ({ valid: true })));
      expect(server.seen).toHaveLength(1);
    });

    it('are asked for twice a minute at most, about whatever server', async () => {
      const { client, server } = await withNotary(() => ({ server_keys: [] }));
      const name = newName();
      for (let n = 0; n < 30; n++) {
        expect(await client.keys.keyOf(name, `ed25519:x${n}`, now())).toBeUndefined();
        await clock.advance(1_000);
      }
      expect(server.seen).toHaveLength(1);
      await client.keys.keyOf(name, 'ed25519:y', now());
      expect(server.seen).toHaveLength(2);
    });

    it('are asked for in the name of one server about so many that it has named', async () => {
      const { client, server } = await withNotary(() => ({ server_keys: [] }));
      const names = Array.from({ length: 1_100 }, () => newName());
      await client.keys.verifyEvents(
        names.map((name) => signedEvent('10', name, key, now())),
        'stranger.test',
      );
      const asked = (): number =>
        server.seen.reduce(
          (sum, { body }) => sum + Object.keys((JSON.parse(body) as { server_keys: object }).server_keys).length,
          0,
        );
      expect(asked()).toBe(1_000);
      await client.keys.verifyEvents([signedEvent('10', newName(), key, now())], 'other.test');
      expect(asked()).toBe(1_001);
    });

    it('come from the next one when the first does not know', async () => {
      const names = new FakeNames();
      const [first, second, wanted] = [newName(), newName(), newName()];
      await play(names, first, (_, response) => json(response, { server_keys: [] }));
      await play(names, second, (_, response) => json(response, { server_keys: [vouched(wanted, second)] }));
      const client = clientFor(names, {
        trusted_key_servers: [first, second].map((server_name) => ({
          server_name,
          verify_keys: { [notaryKey.keyId]: notaryKey.publicKey },
        })),
      });
      expect(await client.keys.keyOf(wanted, key.keyId, now())).toBeDefined();
    });

    it('need a key that is one in the settings', () => {
      expect(() =>
        clientFor(new FakeNames(), {
          trusted_key_servers: [{ server_name: 'n.test', verify_keys: { 'ed25519:a': 'x' } }],
        }),
      ).toThrow('the key ed25519:a of n.test is not an Ed25519 key');
    });
  });

  describe('decide about events', () => {
    it('by the time of the event where the room version wants that', async () => {
      const old = keyOf('old', 30);
      const current = keyOf('new', 31);
      const { keys, name } = await publisher((own) =>
        statement(own, [current], {
          old_verify_keys: { [old.keyId]: { key: old.publicKey, expired_ts: now() - dayMs } },
        }),
      );
      const verdict = async (version: string, signer: SigningKey, ts: number): Promise<string> => {
        const result = await keys.verifyEvent(signedEvent(version, name, signer, ts));
        return result.valid ? 'valid' : result.reason;
      };
      expect(await verdict('10', old, now() - 2 * dayMs)).toBe('valid');
      expect(await verdict('10', old, now())).toBe('expiredKey');
      expect(await verdict('4', old, now())).toBe('valid');
      expect(await verdict('10', current, now())).toBe('valid');
      expect(await verdict('10', keyOf('new', 99), now())).toBe('wrong');
      expect(await verdict('10', keyOf('none', 99), now())).toBe('unknownKey');
    });

    it('whatever number of silent servers another server names', async () => {
      const names = new FakeNames();
      const world = `world${++count}.test`;
      const { keys } = clientFor(names);
      const playAll = async (answer: (request: SeenRequest, response: ServerResponse) => void) => {
        const certificate = authority.issue([`*.${world}`]);
        const server = await PlayedServer.start([], answer, { certificate });
        stops.push(() => server.stop());
        const made = (kind: string, n: number): string[] =>
          Array.from({ length: n }, (_, i) => {
            names.host(`${kind}${i}.${world}:8448`, server.endpoint);
            return `${kind}${i}.${world}`;
          });
        return { server, made };
      };
      const silent = await playAll(() => undefined);
      const honest = await playAll(({ headers }, response) =>
        json(response, statement(headers.host!.replace(/:.*/, ''), [signer])),
      );
      const signer = keyOf('a', 35);
      const by = (name: string): RoomEvent => signedEvent('10', name, signer, now());
      const [origin, ...many] = honest.made('h', 51);
      const [late] = honest.made('late', 1);
      const flood = keys.verifyEvents([...silent.made('s', 200), late!].map(by), 'stranger.test');
      await eventually(() => silent.server.seen.length === 32);
      // A server's own key, those of a transaction from a large room, and one that the stranger has named as well.
      expect(await keys.keyOf(origin!, signer.keyId, now())).toBeDefined();
      expect(await keys.keyOf(late!, signer.keyId, now())).toBeDefined();
      const relayed = [origin!, ...many].map(by);
      expect(await keys.verifyEvents(relayed, origin)).toEqual(relayed.map(() => ({ valid: true })));
      expect(silent.server.seen).toHaveLength(32);
      await silent.server.stop();
      expect((await flood).at(-1)).toEqual({ valid: true });
    });

    it('also about those of this server', async () => {
      const { keys, own } = clientFor(new FakeNames());
      expect(await keys.verifyEvents([signedEvent('10', 'origin.test', own.current, now())])).toEqual([
        { valid: true },
      ]);
    });
  });

  it('an object is verified by the key that its server publishes', async () => {
    const signer = keyOf('a', 32);
    const { keys, name } = await publisher((own) => statement(own, [signer]));
    const object = signJson({ a: 1 }, name, signer);
    expect(await keys.verifyJson(name, object, now())).toBe(true);
    expect(await keys.verifyJson(name, { ...object, a: 2 }, now())).toBe(false);
    expect(await keys.verifyJson(name, object, now() + 2 * dayMs)).toBe(false);
    expect(await keys.verifyJson('other.test', object, now())).toBe(false);
    for (const nothing of [undefined, null, 7, {}, { signatures: [] }, { signatures: { [name]: 'x' } }])
      expect(await keys.verifyJson(name, nothing, now())).toBe(false);
  });

  it('are passed on as they were said, renewed at half time, and kept when their server is gone', async () => {
    const signer = keyOf('a', 33);
    const { keys, name, server } = await publisher((own) =>
      statement(own, [signer], { odd: 1, valid_until_ts: now() + 2 * dayMs }),
    );
    const wanted = new Map([[name, new Map<string, number>()]]);
    const [first] = await saidOf(keys, wanted);
    expect(first).toMatchObject({ server_name: name, odd: 1, valid_until_ts: now() + 2 * dayMs });
    expect(await keys.verifyJson(name, first, now())).toBe(true);
    await clock.advance(0.9 * dayMs);
    await saidOf(keys, wanted);
    expect(server.seen).toHaveLength(1);
    await clock.advance(0.2 * dayMs);
    expect((await saidOf(keys, wanted))[0]).toMatchObject({ valid_until_ts: now() + 2 * dayMs });
    expect(server.seen).toHaveLength(2);
    const [told] = await saidOf(keys, new Map([[name, new Map([[signer.keyId, now()]])]]));
    expect(told).toMatchObject({ server_name: name });
    await server.stop();
    await clock.advance(9 * dayMs);
    expect(await saidOf(keys, wanted)).toEqual([told]);
    expect(
      await saidOf(
        keys,
        new Map([
          ['nobody.test', new Map()],
          ['not a name', new Map()],
        ]),
      ),
    ).toEqual([]);
  });

  it('are passed on as far as anybody needs them', async () => {
    const signer = keyOf('a', 36);
    let [round, more] = [0, 'x'];
    const said = (): string => `ed25519:r${round}`;
    const { keys, name } = await publisher((own) =>
      statement(own, [signer], { more, verify_keys: { ...published(signer), [said()]: { key: signer.publicKey } } }),
    );
    const all = new Map<string, number>();
    const next = async (): Promise<void> => {
      round++;
      all.set(said(), 0);
      await clock.advance(31_000);
      await saidOf(keys, new Map([[name, new Map([[said(), now()]])]]));
    };
    const told = async (ids: ReadonlyMap<string, number>): Promise<string[]> =>
      (await saidOf(keys, new Map([[name, ids]]))).map(({ verify_keys }) =>
        Object.keys(verify_keys as JsonObject).find((id) => id !== signer.keyId)!,
      );
    for (let i = 0; i < 5; i++) await next();
    expect(await told(new Map())).toEqual([5, 4, 3].map((n) => `ed25519:r${n}`));
    // Whoever wants certain keys has them, as long as they do not make much.
    expect(await told(all)).toEqual([5, 4, 3, 2, 1].map((n) => `ed25519:r${n}`));
    more = 'x'.repeat(30_000);
    for (let i = 0; i < 3; i++) await next();
    expect((await told(all)).filter((id) => id > 'ed25519:r5')).toEqual(['ed25519:r8', 'ed25519:r7']);
  });

  it('are asked for again for somebody who wants what a server says of itself to hold for longer', async () => {
    const signer = keyOf('a', 34);
    const { keys, name, server } = await publisher((own) => statement(own, [signer]));
    const wanted = new Map([[name, new Map<string, number>()]]);
    const until = async (untilTs: number): Promise<unknown> =>
      (await saidOf(keys, wanted, untilTs))[0]?.['valid_until_ts'];
    await until(now());
    await clock.advance(0.2 * dayMs);
    const first = await until(now() + 0.7 * dayMs);
    expect([first, server.seen.length]).toEqual([now() + 0.8 * dayMs, 1]);
    expect(await until(now() + 0.9 * dayMs)).toBe(now() + dayMs);
    // What nobody can promise is asked for once in a while.
    for (let n = 0; n < 3; n++) expect(await until(now() + 99 * dayMs)).toBe(now() + dayMs);
    expect(server.seen).toHaveLength(2);
  });

  function signedEvent(version: string, server: string, signer: SigningKey, originServerTs: number): RoomEvent {
    const rules = roomVersionRules(version)!;
    const draft = {
      ...{ type: 'm.room.message', sender: `@zoe:${server}`, content: { body: 'x' }, roomId: '!room:here.test' },
      ...{ originServerTs, depth: 1, prevEventIds: [], authEventIds: [], stateKey: undefined, redacts: undefined },
    };
    return signEvent(buildEvent(draft, rules), server, signer);
  }
});
