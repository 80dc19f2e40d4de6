import { canonicalJson, SigningKey, verifyJson, VerifyKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import type { TestHomeserver } from '@rookery/testing';
import { databases } from '../rooms/rooms-client.js';
import { FederationWorld, type PlayedServer, send } from './federation-world.js';

interface Statement extends JsonObject {
  readonly server_name: string;
  readonly valid_until_ts: number;
  readonly verify_keys: Record<string, { key: string }>;
  readonly signatures: Record<string, Record<string, string>>;
}

const key = (version: string, fill: number): SigningKey => SigningKey.fromSeed(version, new Uint8Array(32).fill(fill));

describe.each(databases)('the key server (%s)', (database) => {
  let world: FederationWorld;
  let server: TestHomeserver;
  let other: PlayedServer;
  const [first, second, past] = [key('one', 1), key('two', 2), key('old', 3)];
  beforeAll(async () => {
    world = await FederationWorld.create();
    server = await world.homeserver('here.test', {
      database,
      settings: {
        signing_key: `${first.serialize()}\n${second.serialize()}`,
        old_signing_keys: { 'ed25519:old': { key: past.publicKey, expired_ts: 1_600_000_000_000 } },
        key_refresh_interval: '2h',
      },
    });
    other = await world.played('there.test');
  });
  afterAll(() => world.stop());

  const query = async (server_keys: JsonObject): Promise<Statement[]> => {
    const { status, body } = await send(server, 'POST', '/_matrix/key/v2/query', undefined, { server_keys });
    expect(status).toBe(200);
    return body['server_keys'] as Statement[];
  };

  it('publishes all keys, signed with each of them, and those of the past', async () => {
    const nowMs = Date.now();
    const { status, body } = await send(server, 'GET', '/_matrix/key/v2/server', undefined);
    expect(status).toBe(200);
    expect(body).toEqual({
      server_name: 'here.test',
      verify_keys: { 'ed25519:one': { key: first.publicKey }, 'ed25519:two': { key: second.publicKey } },
      old_verify_keys: { 'ed25519:old': { key: past.publicKey, expired_ts: 1_600_000_000_000 } },
      valid_until_ts: expect.any(Number) as number,
      signatures: { 'here.test': expect.any(Object) as object },
    });
    expect(JSON.stringify(body)).toBe(canonicalJson(body));
    const validMs = (body as Statement).valid_until_ts - nowMs;
    expect(validMs).toBeGreaterThan(3_600_000);
    expect(validMs).toBeLessThanOrEqual(2 * 3_600_000 + 5_000);
    for (const one of [first, second]) {
      expect(verifyJson(body, 'here.test', one.keyId, one.verifyKey)).toBe(true);
    }
    for (const path of ['/_matrix/key/v2/server/', '/_matrix/key/v2/server/ed25519:one'])
      expect((await send(server, 'GET', path, undefined)).body).toEqual(body);
  });

  it("vouches for what another server says, beside that server's own signature", async () => {
    const { body } = await send(server, 'GET', '/_matrix/key/v2/query/there.test', undefined);
    const [told, ...more] = body['server_keys'] as Statement[];
    expect(more).toEqual([]);
    expect(verifyJson(told, 'there.test', other.key.keyId, other.key.verifyKey)).toBe(true);
    expect(verifyJson(told, 'here.test', first.keyId, first.verifyKey)).toBe(true);
    // Asked again, it knows already.
    const requests = other.asked.length;
    expect(await query({ 'there.test': {} })).toEqual([told]);
    expect(await query({ 'there.test': { [other.key.keyId]: { minimum_valid_until_ts: Date.now() } } })).toEqual([
      told,
    ]);
    expect(other.asked).toHaveLength(requests);
  });

  it('tells of itself and of many, and leaves out those that it cannot reach', async () => {
    const told = await query({ 'here.test': {}, 'nowhere.test': {}, 'there.test': {}, 'no name': {} });
    expect(told.map(({ server_name }) => server_name).toSorted()).toEqual(['here.test', 'there.test']);
    expect(await query({})).toEqual([]);
  });

  it('tells nothing that its server did not sign', async () => {
    const liar = await world.played('liar.test');
    liar.keys = () => ({ ...liar.statement(), valid_until_ts: Date.now() + 86_400_000 });
    expect(await query({ 'liar.test': {} })).toEqual([]);
    const impostor = await world.played('impostor.test');
    impostor.keys = () => other.statement();
    expect(await query({ 'impostor.test': {} })).toEqual([]);
  });

  it.each<[string, unknown, number]>([
    ['no JSON', 'x', 400],
    ['no keys', {}, 400],
    ['keys that are a list', { server_keys: [] }, 400],
    ['a server that is a list', { server_keys: { 'a.test': [] } }, 400],
    ['a key that is a number', { server_keys: { 'a.test': { 'ed25519:a': 1 } } }, 400],
    ['a time that is none', { server_keys: { 'a.test': { 'ed25519:a': { minimum_valid_until_ts: 'x' } } } }, 400],
    [
      'too many servers',
      { server_keys: Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`a${i}`, {}])) },
      400,
    ],
    ['too much', { server_keys: {}, more: 'x'.repeat(300_000) }, 413],
  ])('refuses %s', async (_, body, status) => {
    const sent = typeof body === 'string' ? body : JSON.stringify(body);
    const answer = await send(server, 'POST', '/_matrix/key/v2/query', undefined, sent);
    expect([answer.status, typeof answer.body['errcode']]).toEqual([status, 'string']);
  });

  it('says what runs here', async () => {
    const { body } = await send(server, 'GET', '/_matrix/federation/v1/version', undefined);
    expect(body).toEqual({ server: { name: 'Rookery', version: expect.stringMatching(/^\d+\.\d+\.\d+/) as string } });
  });
});

describe.each(databases)('a trusted key server (%s)', (database) => {
  let world: FederationWorld;
  beforeAll(async () => {
    world = await FederationWorld.create();
  });
  afterAll(() => world.stop());

  it('tells of a server that is gone, to one that knows its key', async () => {
    const notaryKey = key('notary', 40);
    const notary = await world.homeserver('notary.test', {
      database,
      settings: { signing_key: notaryKey.serialize() },
    });
    const trusting = async (name: string, publicKey: string): Promise<TestHomeserver> =>
      world.homeserver(name, {
        database,
        settings: {
          trusted_key_servers: [{ server_name: 'notary.test', verify_keys: { [notaryKey.keyId]: publicKey } }],
        },
      });
    const here = await trusting('here.test', notaryKey.publicKey);
    const wary = await trusting('wary.test', key('notary', 41).publicKey);
    const gone = await world.played('gone.test');
    await send(notary, 'GET', '/_matrix/key/v2/query/gone.test', undefined);
    world.names.host('gone.test:8448');
    const uri = '/_matrix/federation/v1/query/profile?user_id=%40nobody%3A';
    expect((await gone.request(here, 'GET', `${uri}here.test`)).status).toBe(404);
    expect((await gone.request(wary, 'GET', `${uri}wary.test`)).status).toBe(401);
  });
});

describe('keys in the settings', () => {
  let world: FederationWorld;
  beforeAll(async () => {
    world = await FederationWorld.create();
  });
  afterAll(() => world.stop());

  it('may be others for vouching', async () => {
    const { mkdtempSync, writeFileSync, rmSync } = await import('node:fs');
    const folder = mkdtempSync('/tmp/rookery-notary-');
    const [one, two] = [key('n1', 5), key('n2', 6)];
    writeFileSync(`${folder}/notary.key`, `${one.serialize()}\n${two.serialize()}\n`);
    const server = await world.homeserver('here.test', {
      settings: { key_server_signing_keys_path: `${folder}/notary.key` },
    });
    const other = await world.played('there.test');
    const { body } = await send(server, 'GET', '/_matrix/key/v2/query/there.test', undefined);
    const [told] = body['server_keys'] as Statement[];
    expect(Object.keys(told!.signatures['here.test']!).toSorted()).toEqual(['ed25519:n1', 'ed25519:n2']);
    for (const notary of [one, two]) expect(verifyJson(told, 'here.test', notary.keyId, notary.verifyKey)).toBe(true);
    expect(verifyJson(told, 'there.test', other.key.keyId, VerifyKey.parse(other.key.publicKey)!)).toBe(true);
    rmSync(folder, { recursive: true });
  });

  it.each([
    [{ old_signing_keys: { 'ed25519:old': { key: 'short', expired_ts: 1 } } }, 'ed25519:old is not an Ed25519 key'],
    [{ key_server_signing_keys_path: '/no/such/file' }, 'Cannot read the signing key /no/such/file'],
    [{ federation_custom_ca_list: ['/no/such/ca'] }, 'cannot read /no/such/ca'],
    [
      { trusted_key_servers: [{ server_name: 'a.test', verify_keys: { 'ed25519:a': 'short' } }] },
      'the key ed25519:a of a.test is not an Ed25519 key',
    ],
  ])('end the start when they are wrong: %j', async (settings, message) => {
    await expect(world.homeserver('wrong.test', { settings })).rejects.toThrow(message);
  });
});
