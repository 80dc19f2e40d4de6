import { canonicalJson, SigningKey } from '@rookery/events';
import { parseAuthorization, signedRequestText } from '@rookery/federation-client';
import type { JsonObject } from '@rookery/matrix-types';
import { eventually, FakeClock, type TestHomeserver, type TestUser } from '@rookery/testing';
import { createRoom, databases } from '../rooms/rooms-client.js';
import { startProbe } from '../modules/probe-server.js';
import { FederationWorld, type PlayedServer, send, sendLines } from './federation-world.js';

const profileOf = (userId: string, more = ''): string =>
  `/_matrix/federation/v1/query/profile?user_id=${encodeURIComponent(userId)}${more}`;

/** A further key of the other server. */
const second = SigningKey.fromSeed('second', new Uint8Array(32).fill(79));

describe.each(databases)('requests that another server signs (%s)', (database) => {
  let world: FederationWorld;
  let server: TestHomeserver;
  let alice: TestUser;
  let other: PlayedServer;
  beforeAll(async () => {
    world = await FederationWorld.create();
    server = await world.homeserver('here.test', { database });
    alice = await server.registerUser('alice');
    await alice.request('PUT', `/profile/${alice.userId}/displayname`, { displayname: 'Alice' });
    other = await world.played('there.test');
    other.keys = () => {
      const keys = { [other.key.keyId]: { key: other.key.publicKey }, [second.keyId]: { key: second.publicKey } };
      return other.statement({ verify_keys: keys });
    };
  });
  afterAll(() => world.stop());

  const uri = profileOf('@alice:here.test');
  const outcome = async (authorization: string | undefined, path = uri): Promise<unknown[]> => {
    const { status, body } = await send(server, 'GET', path, authorization);
    return [status, body['errcode'] ?? 'answered'];
  };
  const refused = [401, 'M_UNAUTHORIZED'];

  it('requests with a good signature are answered', async () => {
    expect(await other.request(server, 'GET', uri)).toEqual({ status: 200, body: { displayname: 'Alice' } });
    const field = profileOf('@alice:here.test', '&field=displayname');
    expect((await other.request(server, 'GET', field)).body).toEqual({ displayname: 'Alice' });
    expect((await other.request(server, 'GET', profileOf('@alice:here.test', '&field=avatar_url'))).body).toEqual({});
    expect((await other.request(server, 'GET', profileOf('@nobody:here.test'))).status).toBe(404);
    expect((await other.request(server, 'GET', profileOf('@zoe:there.test'))).status).toBe(400);
    expect((await other.request(server, 'GET', '/_matrix/federation/v1/query/profile')).status).toBe(400);
  });

  it('have the prefix of the settings, on either way', async () => {
    const settings = { protocol_prefix: '_proto' };
    const prefixed = await world.homeserver('prefixed.test', { database, settings });
    const likewise = await world.played('likewise.test');
    likewise.answer = ({ url }, response) => {
      if (url === '/_proto/key/v2/server') response.end(JSON.stringify(likewise.statement()));
      else response.writeHead(404).end('{"errcode":"M_UNRECOGNIZED","error":"No"}');
    };
    const asked = '/_proto/federation/v1/query/profile?user_id=%40nobody%3Aprefixed.test';
    expect(await likewise.request(prefixed, 'GET', asked)).toMatchObject({
      ...{ status: 404, body: { errcode: 'M_NOT_FOUND' } },
    });
    expect(likewise.asked.map(({ url }) => url)).toEqual(['/_proto/key/v2/server']);
    // What was signed is what was sent.
    const other = likewise.authorization('GET', asked.replace('_proto', '_matrix'), 'prefixed.test');
    expect((await send(prefixed, 'GET', asked, other)).status).toBe(401);
  });

  it('ask once for the key', async () => {
    const fresh = await world.played('fresh.test');
    const answers = await Promise.all(Array.from({ length: 8 }, () => fresh.request(server, 'GET', uri)));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(fresh.asked.map(({ url }) => url)).toEqual(['/_matrix/key/v2/server']);
  });

  it('are refused without a signature, or with another than theirs', async () => {
    const good = other.authorization('GET', uri, 'here.test');
    expect(await outcome(good)).toEqual([200, 'answered']);
    expect(await outcome(undefined)).toEqual(refused);
    expect(await outcome('Bearer abc')).toEqual(refused);
    expect(await outcome(`Bearer ${alice.accessToken}`)).toEqual(refused);
    expect(await outcome(good.replace(/sig="./, 'sig="-'))).toEqual(refused);
    expect(await outcome(good, profileOf('@alice:here.test', '&field=displayname'))).toEqual(refused);
    expect(await outcome(other.authorization('POST', uri, 'here.test'))).toEqual(refused);
    // Signed by somebody else, under this server's name or one without a server.
    const stranger = SigningKey.fromSeed('played', new Uint8Array(32).fill(77));
    const forged = Object.assign(Object.create(other) as PlayedServer, { key: stranger });
    expect(await outcome(forged.authorization('GET', uri, 'here.test'))).toEqual(refused);
    for (const name of ['nowhere.test', 'here.test', 'not a name', 'x'.repeat(300)]) {
      const impostor = Object.assign(Object.create(other) as PlayedServer, { name });
      expect([name, await outcome(impostor.authorization('GET', uri, 'here.test'))]).toEqual([name, refused]);
    }
  });

  it('are refused when they are for another server', async () => {
    expect(await outcome(other.authorization('GET', uri, 'elsewhere.test'))).toEqual(refused);
    expect(
      await outcome(other.authorization('GET', uri, 'elsewhere.test').replace('elsewhere.test', 'here.test')),
    ).toEqual(refused);
    // Older servers do not name it at all.
    const text = signedRequestText({
      ...{ method: 'GET', uri, origin: 'there.test', destination: undefined, canonicalContent: undefined },
    });
    const old = `X-Matrix origin=there.test,key="${other.key.keyId}",sig="${other.key.sign(text)}"`;
    expect(await outcome(old)).toEqual([200, 'answered']);
  });

  describe('in old and odd forms of the header', () => {
    const signatureOf = (key: SigningKey, destination: string | undefined): string =>
      key.sign(
        signedRequestText({
          ...{ method: 'GET', uri, origin: 'there.test', destination, canonicalContent: undefined },
        }),
      );
    const unknown = SigningKey.fromSeed('unknown', new Uint8Array(32).fill(80));
    /** A header, where `O`, `D`, `K` and `S` stand for what belongs there. */
    const written = (form: string, key = other.key, destination: string | undefined = 'here.test'): string => {
      const values: Readonly<Record<string, string>> = {
        ...{ O: 'there.test', D: 'here.test', K: key.keyId },
        S: signatureOf(key, form.includes('D') ? destination : undefined),
      };
      return form.replace(/\b[ODKS]\b/g, (letter) => values[letter]!);
    };
    const usual = 'X-Matrix origin="O",destination="D",key="K",sig="S"';
    const withKeys = (key: SigningKey): string => written(usual, key);
    it.each<[string, () => readonly string[]]>([
      ['as it is now', () => [written(usual)]],
      ['without quotes', () => [written('X-Matrix origin=O,destination=D,key=K,sig=S')]],
      ['with some quotes', () => [written('X-Matrix origin=O,destination=D,key="K",sig="S"')]],
      ['without a destination', () => [written('X-Matrix origin=O,key="K",sig="S"')]],
      ['with spaces and tabs', () => [written('X-Matrix   origin = "O" ,\tdestination\t=\t"D" ,  key= "K",sig ="S"')]],
      ['with other letters', () => [written('x-mATRIX ORIGIN="O",Destination="D",KEY="K",sIG="S"')]],
      [
        'in another order, with more',
        () => [written('X-Matrix sig="S",x="\\"a, b=\\\\\\"",key="K",,destination="D",origin="O"')],
      ],
      [
        'with escapes',
        () => [written('X-Matrix origin="O",destination="D",key="K",sig="S"').replace('there', 't\\he\\re')],
      ],
      ['with a header for each key', () => [withKeys(other.key), withKeys(second)]],
      ['with a header for a key that nobody knows', () => [withKeys(unknown), withKeys(second)]],
      ['beside another scheme', () => ['Basic abc', withKeys(other.key)]],
    ])('are answered %s', async (_, headers) => {
      expect(await sendLines(server, uri, headers())).toEqual({ status: 200, body: { displayname: 'Alice' } });
    });

    it.each<[string, () => readonly string[]]>([
      ['another scheme', () => [`Bearer ${alice.accessToken}`, 'Basic abc']],
      ['no space after the scheme', () => [written('X-Matrix\torigin="O",destination="D",key="K",sig="S"')]],
      ['no commas', () => [written('X-Matrix origin="O" destination="D" key="K" sig="S"')]],
      ['no end of a quote', () => [written('X-Matrix origin="O",destination="D",key="K",sig="S')]],
      ['a part twice', () => [written('X-Matrix origin="O",origin="O",destination="D",key="K",sig="S"')]],
      ['no key', () => [written('X-Matrix origin="O",destination="D",sig="S"')]],
      [
        'a destination that is not signed',
        () => [written(usual, other.key).replace(/sig="[^"]*"/, `sig="${signatureOf(other.key, undefined)}"`)],
      ],
      [
        'a signed destination that is not said',
        () => [
          written('X-Matrix origin="O",key="K",sig="S"').replace(
            /sig="[^"]*"/,
            `sig="${signatureOf(other.key, 'here.test')}"`,
          ),
        ],
      ],
      ['an empty destination', () => [written('X-Matrix origin="O",destination="",key="K",sig="S"')]],
      ['two headers in one', () => [`${withKeys(other.key)}, ${withKeys(second)}`]],
      [
        'headers for different servers',
        () => [withKeys(other.key), withKeys(second).replace('here.test', 'elsewhere.test')],
      ],
      [
        'headers of different servers',
        () => [withKeys(other.key), withKeys(second).replace('there.test', 'elsewhere.test')],
      ],
      ['one header that cannot be read', () => [withKeys(other.key), 'X-Matrix origin="there.test"']],
      [
        'only keys that nobody knows',
        () => [withKeys(unknown), withKeys(SigningKey.fromSeed('third', new Uint8Array(32)))],
      ],
      ['too many headers', () => Array.from({ length: 5 }, () => withKeys(other.key))],
    ])('are refused with %s', async (_, headers) => {
      expect(await sendLines(server, uri, headers())).toMatchObject({
        ...{ status: 401, body: { errcode: 'M_UNAUTHORIZED' } },
      });
    });
  });

  it('are answered with a new key within a second, whatever its id, and wrong ones have nobody asked more often', async () => {
    const clock = new FakeClock(Date.now());
    const clocked = await world.homeserver('clocked.test', { database, clock });
    const changing = await world.played('changing.test');
    const withKey = (key: SigningKey): PlayedServer => Object.assign(Object.create(changing) as PlayedServer, { key });
    const answerTo = async (key: SigningKey): Promise<unknown> => {
      const asked = profileOf('@nobody:clocked.test');
      return (await send(clocked, 'GET', asked, withKey(key).authorization('GET', asked, 'clocked.test'))).status;
    };
    expect(await answerTo(changing.key)).toBe(404);
    expect(changing.asked).toHaveLength(1);
    // One under an id of its own; one under the id of the last, as of a server that was set up anew; one more.
    for (const [i, version] of ['next', 'next', 'last'].entries()) {
      const key = SigningKey.fromSeed(version, new Uint8Array(32).fill(90 + i));
      changing.keys = () => withKey(key).statement();
      await clock.advance(1_000);
      expect([version, await answerTo(key), changing.asked.length]).toEqual([version, 404, i + 2]);
      const strangers = Array.from({ length: 8 }, () => SigningKey.fromSeed(version, new Uint8Array(32).fill(1)));
      const madeUp = Array.from({ length: 8 }, (_, n) => SigningKey.fromSeed(`x${n}`, new Uint8Array(32).fill(2)));
      const answers = await Promise.all([...strangers, ...madeUp].map(answerTo));
      expect(new Set(answers)).toEqual(new Set([401]));
      expect([version, await answerTo(key), changing.asked.length]).toEqual([version, 404, i + 2]);
    }
    expect(new Set(changing.asked.map(({ url }) => url))).toEqual(new Set(['/_matrix/key/v2/server']));
  });

  it('are refused when the key does not hold anymore', async () => {
    const late = await world.played('late.test');
    late.keys = () => late.statement({ valid_until_ts: Date.now() - 60_000 });
    expect(await outcome(late.authorization('GET', uri, 'here.test'))).toEqual(refused);
    const retired = await world.played('retired.test');
    const current = SigningKey.fromSeed('current', new Uint8Array(32).fill(78));
    retired.keys = () => {
      const now = Object.assign(Object.create(retired) as PlayedServer, { key: current });
      return now.statement({
        old_verify_keys: { [retired.key.keyId]: { key: retired.key.publicKey, expired_ts: Date.now() - 60_000 } },
      });
    };
    expect(await outcome(retired.authorization('GET', uri, 'here.test'))).toEqual(refused);
  });

  it('find the room behind an alias', async () => {
    const roomId = await createRoom(alice, { room_alias_name: 'known' });
    const path = (alias: string): string =>
      `/_matrix/federation/v1/query/directory?room_alias=${encodeURIComponent(alias)}`;
    expect(await other.request(server, 'GET', path('#known:here.test'))).toEqual({
      ...{ status: 200, body: { room_id: roomId, servers: ['here.test'] } },
    });
    expect((await other.request(server, 'GET', path('#unknown:here.test'))).status).toBe(404);
    expect((await other.request(server, 'GET', path('#known:there.test'))).status).toBe(400);
    expect((await other.request(server, 'GET', path('known'))).status).toBe(400);
  });

  it('need none where everybody may ask: whose an OpenID token is', async () => {
    const { body } = await alice.request<{ access_token: string }>(
      'POST',
      `/user/${alice.userId}/openid/request_token`,
      {},
    );
    const userinfo = '/_matrix/federation/v1/openid/userinfo';
    expect(await send(server, 'GET', `${userinfo}?access_token=${body.access_token}`, undefined)).toEqual({
      ...{ status: 200, body: { sub: '@alice:here.test' } },
    });
    expect(await send(server, 'GET', `${userinfo}?access_token=${alice.accessToken}`, undefined)).toMatchObject({
      ...{ status: 401, body: { errcode: 'M_UNKNOWN_TOKEN' } },
    });
    expect(await send(server, 'GET', userinfo, undefined)).toMatchObject({
      status: 401,
      body: { errcode: 'M_MISSING_TOKEN' },
    });
  });
});

describe.each(databases)('requests that this server signs (%s)', (database) => {
  let world: FederationWorld;
  beforeAll(async () => {
    world = await FederationWorld.create();
  });
  afterAll(() => world.stop());

  it('bring the profiles of other servers, between two of ours', async () => {
    const [here, there] = await Promise.all([
      world.homeserver('here.test', { database }),
      world.homeserver('there.test', { database }),
    ]);
    const [alice, zoe] = [await here.registerUser('alice'), await there.registerUser('zoe')];
    await zoe.request('PUT', `/profile/${zoe.userId}/displayname`, { displayname: 'Zoë' });
    expect(await alice.request('GET', `/profile/${zoe.userId}`)).toMatchObject({
      ...{ status: 200, body: { displayname: 'Zoë' } },
    });
    expect((await alice.request('GET', '/profile/@nobody:there.test')).status).toBe(404);
    expect((await alice.request('GET', '/profile/@nobody:nowhere.test')).status).toBe(502);
  });

  it('are not made to servers that the settings do not name, nor taken from them', async () => {
    const closed = await world.homeserver('closed.test', {
      database,
      settings: { federation_domain_whitelist: ['friend.test'], federation_whitelist_endpoint_enabled: true },
    });
    const user = await closed.registerUser('carol');
    const [friend, stranger] = [await world.played('friend.test'), await world.played('stranger.test')];
    friend.answer = stranger.answer = (_, response) => void response.end('{"displayname":"X"}');
    expect((await user.request('GET', '/profile/@x:friend.test')).body).toEqual({ displayname: 'X' });
    expect((await user.request('GET', '/profile/@x:stranger.test')).status).toBe(403);
    expect(stranger.asked).toEqual([]);
    const uri = profileOf(user.userId);
    expect((await friend.request(closed, 'GET', uri)).status).toBe(200);
    expect(await stranger.request(closed, 'GET', uri)).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect((await user.request('GET', '/_synapse/client/v1/config/federation_whitelist')).body).toEqual({
      ...{ whitelist_enabled: true, whitelist: ['friend.test'] },
    });
  });

  it('hide profiles where the settings say so', async () => {
    const shy = await world.homeserver('shy.test', {
      database,
      settings: { allow_profile_lookup_over_federation: false },
    });
    const user = await shy.registerUser('dora');
    const other = await world.played('asker.test');
    expect(await other.request(shy, 'GET', profileOf(user.userId))).toMatchObject({
      ...{ status: 403, body: { errcode: 'M_FORBIDDEN' } },
    });
    expect((await user.request('GET', '/_synapse/client/v1/config/federation_whitelist')).status).toBe(404);
  });

  it('are not made for a while to a server that is down, also after a restart, until it shows life', async () => {
    const steady = await world.homeserver('steady.test', { database });
    const user = await steady.registerUser('erin');
    const down = await world.played('down.test');
    down.answer = (_, response) => void response.writeHead(503).end();
    const isReached = async (): Promise<boolean> => {
      const body = { device_keys: { '@x:down.test': [] } };
      const answer = await user.request<{ failures: object }>('POST', '/keys/query', body);
      return !('down.test' in answer.body.failures);
    };
    expect(await isReached()).toBe(false);
    const requests = down.asked.length;
    for (let n = 0; n < 8; n++) expect(await isReached()).toBe(false);
    await steady.restart();
    for (let n = 0; n < 8; n++) expect(await isReached()).toBe(false);
    // Keys are tried every ten seconds though it rests, since somebody waits for them.
    expect(down.asked.length - requests).toBeLessThan(8);
    // What is asked for by name is asked for each time.
    const asked = down.asked.length;
    expect((await user.request('GET', '/profile/@x:down.test')).status).toBe(502);
    expect(down.asked.length).toBeGreaterThan(asked);
    down.answer = (_, response) => void response.end('{"device_keys":{}}');
    expect((await down.request(steady, 'GET', profileOf(user.userId))).status).toBe(200);
    await eventually(isReached);
  });

  it('carry what modules send, where their entries allow it', async () => {
    const friend = await world.played('module-friend.test');
    const module = new URL('../modules/fixtures/probe.ts', import.meta.url).pathname;
    const probe = await startProbe(
      database,
      {
        ...world.settings,
        server_name: 'modules.test',
        modules: [{ module, allow_federation_to: ['module-friend.test', 'nowhere.test'] }],
      },
      { nameResolver: world.names },
    );
    try {
      friend.answer = (asked, response) => void response.end(JSON.stringify({ got: asked.body, by: asked.method }));
      const path = '/_matrix/federation/v1/org.example/x';
      expect(await probe.call('federation.getJson', 'module-friend.test', path, { 'a b': 'ü' })).toMatchObject({
        ...{ status: 200, result: { got: '', by: 'GET' } },
      });
      expect(await probe.call('federation.putJson', 'module-friend.test', path, { b: 1, a: [true] })).toMatchObject({
        ...{ status: 200, result: { got: '{"a":[true],"b":1}', by: 'PUT' } },
      });
      const own = (await probe.request<JsonObject>('GET', '/_matrix/key/v2/server')).body;
      const [get, put] = friend.asked;
      expect([get?.url, put?.url]).toEqual([`${path}?a%20b=%C3%BC`, path]);
      for (const { method, url, headers, body } of friend.asked) {
        const credentials = parseAuthorization(headers.authorization ?? '')!;
        expect([credentials.origin, credentials.destination]).toEqual(['modules.test', 'module-friend.test']);
        expect(Object.keys(own['verify_keys'] as object)).toContain(credentials.keyId);
        const content = body === '' ? undefined : canonicalJson(JSON.parse(body));
        const text = signedRequestText({ ...credentials, method, uri: url, canonicalContent: content });
        expect(text).toContain('"destination":"module-friend.test"');
      }
      expect(await probe.call('federation.getJson', 'foe.test', path)).toMatchObject({
        ...{ status: 403, error: 'M_FORBIDDEN' },
      });
      expect(await probe.call('federation.getJson', 'nowhere.test', path)).toMatchObject({ status: 502 });
      expect(await probe.call('federation.putJson', 'module-friend.test', path, ['no object'])).toMatchObject({
        error: 'RangeError',
      });
      friend.answer = (_, response) => void response.writeHead(403).end('{"errcode":"M_FORBIDDEN","error":"No"}');
      expect(await probe.call('federation.getJson', 'module-friend.test', path)).toMatchObject({
        ...{ status: 403, error: 'M_FORBIDDEN' },
      });
    } finally {
      await probe.stop();
    }
  });
});
