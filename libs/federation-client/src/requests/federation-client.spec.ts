import { canonicalJson } from '@rookery/events';
import {
  eventually,
  FakeClock,
  FakeNames,
  makeTestAuthority,
  openTestDatabase,
  type TestDatabase,
} from '@rookery/testing';
import type { ServerResponse } from 'node:http';
import { type AddressInfo, connect, createServer as createTcpServer, type Server } from 'node:net';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import {
  type Answer,
  authority,
  type ClientOptions,
  json,
  makeClient,
  PlayedServer,
  type SeenRequest,
  type TestClient,
} from '../federation-client.fixture.js';
import { federationClientMigrations } from '../migrations/federation-client-01.migration.js';
import { parseAuthorization, signedRequestText } from '../signing/authorization.js';
import type { FederationRequestError } from './federation-request-error.js';

const __filename = fileURLToPath(import.meta.url);
const path = '/_matrix/federation/v1/version';
const ok: Answer = (_, response) => json(response, { ok: true });

describe('requests to other servers', () => {
  let test: TestDatabase;
  const stops: (() => Promise<unknown>)[] = [];
  beforeAll(async () => {
    test = await openTestDatabase('sqlite');
    await test.migrate(federationClientMigrations);
  });
  afterAll(() => test.close());
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
    await test.database.write((tx) => tx.run('DELETE FROM destinations'));
  });

  const clientWith = (options: Partial<ClientOptions> = {}): TestClient => {
    const client = makeClient({ database: test.database, ...options });
    stops.push(() => client.close());
    return client;
  };
  const play = async (...args: Parameters<typeof PlayedServer.start>): Promise<PlayedServer> => {
    const server = await PlayedServer.start(...args);
    stops.push(() => server.stop());
    return server;
  };
  /** A server called `b.test` that answers so, and a client that knows where it is. */
  const pair = async (
    answer: Answer,
    options: Partial<ClientOptions> = {},
  ): Promise<TestClient & { server: PlayedServer }> => {
    const server = await play(['b.test'], answer);
    const names = new FakeNames().host('b.test:8448', server.endpoint);
    return { ...clientWith({ ...options, names }), server };
  };
  const failure = (attempt: Promise<unknown>): Promise<FederationRequestError> =>
    attempt.then(
      () => Promise.reject(new Error('it was answered')),
      (error: FederationRequestError) => error,
    );
  const reason = async (attempt: Promise<unknown>): Promise<string> => (await failure(attempt)).reason;

  it('bring long answers piece by piece, so that nobody waits for them to be understood', async () => {
    const events = Array.from({ length: 2_000 }, (_, n) => ({ n, odd: 1.5, text: 'x'.repeat(1_000), more: [[n], {}] }));
    const { client } = await pair((_, response) => json(response, { events }));
    const parse = jest.spyOn(JSON, 'parse');
    try {
      expect(await client.getJson('b.test', path)).toEqual({ events });
      const exact = await client.requestExactJson({ destination: 'b.test', method: 'GET', path });
      expect((exact['events'] as { n: number; odd: unknown }[]).map(({ n, odd }) => [n, String(odd)])).toHaveLength(
        2_000,
      );
      expect(Math.max(...parse.mock.calls.map(([text]) => text.length))).toBeLessThan(200_000);
    } finally {
      parse.mockRestore();
    }
  });

  it('are signed, for one destination, over what is sent', async () => {
    const { client, server, own } = await pair(ok);
    const content = { ü: 1, a: { '10': true, '9': null } };
    expect(await client.putJson('b.test', '/_matrix/federation/v1/x/%24y', content)).toEqual({ ok: true });
    expect(await client.getJson('b.test', path, { via: ['a b', 'c'], limit: 1, not: undefined })).toEqual({ ok: true });
    const [put, get] = server.seen as [SeenRequest, SeenRequest];
    expect(put).toMatchObject({
      ...{ method: 'PUT', url: '/_matrix/federation/v1/x/%24y', sni: 'b.test', body: canonicalJson(content) },
      headers: { host: 'b.test', 'content-type': 'application/json', 'user-agent': 'Rookery/test' },
    });
    expect(get).toMatchObject({ method: 'GET', url: `${path}?via=a%20b&via=c&limit=1`, body: '' });
    for (const { method, url, headers, body } of [put, get]) {
      const credentials = parseAuthorization(headers.authorization!)!;
      expect(credentials).toMatchObject({ origin: 'origin.test', destination: 'b.test', keyId: own.current.keyId });
      const text = signedRequestText({
        ...{ method, uri: url, origin: 'origin.test', destination: 'b.test' },
        canonicalContent: body === '' ? undefined : canonicalJson(JSON.parse(body)),
      });
      expect(own.current.verifyKey.verify(text, credentials.signature)).toBe(true);
    }
    for (let i = 0; i < 20; i++) await client.getJson('b.test', path);
    expect(server.connections).toBeLessThanOrEqual(2);
  });

  it('take a body that is canonical already as it is', async () => {
    const { client, server } = await pair(ok);
    const request = { destination: 'b.test', method: 'PUT', path } as const;
    await client.requestJson({ ...request, canonicalContent: '{"a":1.0}' });
    expect(server.seen[0]!.body).toBe('{"a":1.0}');
  });

  it('bring numbers as they came where events are in the answer', async () => {
    const { client } = await pair((_, response) => void response.end('{"n":1.0,"big":12345678901234567890}'));
    const exact = await client.requestExactJson({ destination: 'b.test', method: 'GET', path });
    expect(canonicalJson(exact)).toBe('{"big":12345678901234567890,"n":1.0}');
  });

  it('tell what the other server answered', async () => {
    const { client } = await pair((_, response) =>
      json(response, { errcode: 'M_FORBIDDEN', error: 'No', extra: 1 }, 403),
    );
    const error = await failure(client.getJson('b.test', path));
    expect(error).toMatchObject({
      ...{ name: 'FederationRequestError', destination: 'b.test', reason: 'status', status: 403 },
      ...{ errcode: 'M_FORBIDDEN', retryable: false, isDown: false, body: { extra: 1 } },
    });
    expect(error.toMatrixError()).toMatchObject({ status: 403, errcode: 'M_FORBIDDEN', message: 'No' });
  });

  describe('check certificates', () => {
    const withCertificate = async (
      certificate: { cert: string; key: string },
      settings: object = {},
      answer = ok,
    ): Promise<string> => {
      const server = await play(['b.test'], answer, { certificate });
      const names = new FakeNames().host('b.test:8448', server.endpoint);
      const { client } = clientWith({ names, settings: { ...settings } });
      return client.getJson('b.test', path, {}, { ignoreBackoff: true, retries: 'none' }).then(
        () => 'answered',
        (error: FederationRequestError) => error.reason,
      );
    };
    const foreign = makeTestAuthority('Somebody else').issue(['b.test']);

    it('for the name, the time and the authority', async () => {
      expect(await withCertificate(authority.issue(['b.test']))).toBe('answered');
      expect(await withCertificate(authority.issue(['c.test']))).toBe('certificate');
      expect(await withCertificate(authority.issue(['b.test'], -86_400_000))).toBe('certificate');
      expect(await withCertificate(foreign)).toBe('certificate');
    });

    it('unless the settings say that they do not count', async () => {
      expect(await withCertificate(foreign, { federation_verify_certificates: false })).toBe('answered');
      const excepted = (glob: string): Promise<string> =>
        withCertificate(foreign, { federation_certificate_verification_whitelist: [glob] });
      expect(await excepted('*.TEST')).toBe('answered');
      expect(await excepted('b.tes?')).toBe('answered');
      expect(await excepted('*.example')).toBe('certificate');
      expect(await excepted('b.test.*')).toBe('certificate');
    });

    it('also when a session goes on that began without them', async () => {
      const server = await play(['b.test', 'c.test'], ok, { certificate: foreign });
      const names = new FakeNames().host('b.test:8448', server.endpoint).host('c.test:8448', server.endpoint);
      const { client } = clientWith({ names, settings: { federation_certificate_verification_whitelist: ['b.test'] } });
      await client.getJson('b.test', path);
      expect(await reason(client.getJson('c.test', path, {}, { retries: 'none' }))).toBe('certificate');
    });

    it('once for all connections of a session', async () => {
      const { client, server } = await pair((_, response) =>
        json(response.setHeader('connection', 'close') as ServerResponse, {}),
      );
      for (let i = 0; i < 4; i++) await client.getJson('b.test', path);
      expect([server.connections, server.resumed]).toEqual([4, 3]);
    });

    it('for addresses, without telling a name', async () => {
      const server = await play(['127.0.0.1'], ok);
      const { client } = clientWith();
      await client.getJson(`127.0.0.1:${server.port}`, path);
      expect(server.seen[0]).toMatchObject({ sni: false, headers: { host: `127.0.0.1:${server.port}` } });
      const other = await play(['127.0.0.9', 'b.test'], ok);
      expect(await reason(client.getJson(`127.0.0.1:${other.port}`, path))).toBe('certificate');
    });

    it('for whom the document speaks', async () => {
      const server = await play(['delegated.test'], ok);
      const document = await play(['b.test'], (_, response) => json(response, { 'm.server': 'delegated.test' }));
      const names = new FakeNames()
        .host('b.test:443', document.endpoint)
        .service('_matrix-fed._tcp.delegated.test', { name: 'machine.test', port: 7, priority: 1, weight: 1 })
        .host('machine.test:7', server.endpoint);
      await clientWith({ names }).client.getJson('b.test', path);
      const [{ sni, headers }] = server.seen as [SeenRequest];
      expect([sni, headers.host]).toEqual(['delegated.test', 'delegated.test']);
      // The signature is for the server, not for its machine.
      expect(parseAuthorization(headers.authorization!)!.destination).toBe('b.test');
    });

    it('with versions that are new enough', async () => {
      const server = await play(['b.test'], ok);
      const names = new FakeNames().host('b.test:8448', server.endpoint);
      await clientWith({ names, settings: { federation_client_minimum_tls_version: '1.3' } }).client.getJson(
        'b.test',
        path,
      );
      expect(server.seen).toHaveLength(1);
      const old = await play(['c.test'], ok, { tls: { maxVersion: 'TLSv1.2' } });
      const at = async (version: string): Promise<string> => {
        const { client } = clientWith({
          names: new FakeNames().host('c.test:8448', old.endpoint),
          settings: { federation_client_minimum_tls_version: version },
        });
        return client.getJson('c.test', path, {}, { retries: 'none', ignoreBackoff: true }).then(
          () => 'answered',
          (error: FederationRequestError) => error.reason,
        );
      };
      expect([await at('1.2'), await at('1.3')]).toEqual(['answered', 'unreachable']);
    });

    it('and refuse a list of authorities that is none', async () => {
      expect(() =>
        makeClient({ database: test.database, settings: { federation_custom_ca_list: [__filename] } }),
      ).toThrow('holds no certificate in PEM form');
      expect(() =>
        makeClient({ database: test.database, settings: { federation_custom_ca_list: ['/no/file'] } }),
      ).toThrow('cannot read /no/file');
    });
  });

  it('go to no blocked address', async () => {
    const server = await play(['b.test', '127.0.0.1'], ok);
    const names = new FakeNames().host('b.test:8448', server.endpoint);
    const { client } = clientWith({ names, settings: { ip_range_whitelist: [] } });
    expect(await reason(client.getJson('b.test', path))).toBe('blocked');
    expect(await reason(client.getJson(`127.0.0.1:${server.port}`, path))).toBe('blocked');
    expect(await reason(client.getJson(`[::ffff:127.0.0.1]:${server.port}`, path))).toBe('blocked');
    expect(server.connections).toBe(0);
  });

  it('go only to servers that the settings allow, and not to this one', async () => {
    const { client, server } = await pair(ok, { settings: { federation_domain_whitelist: ['c.test'] } });
    const error = await failure(client.getJson('b.test', path));
    expect([error.reason, error.toMatrixError().status]).toEqual(['denied', 403]);
    expect(await reason(client.getJson('origin.test', path))).toBe('denied');
    expect(await reason(client.getJson('not a name', path))).toBe('denied');
    expect([client.allows('c.test'), client.allows('b.test')]).toEqual([true, false]);
    expect(server.connections).toBe(0);
  });

  it('try further addresses and routes until one works', async () => {
    const server = await play(['b.test'], ok, { address: '127.0.0.3' });
    const names = new FakeNames()
      .service(
        '_matrix-fed._tcp.b.test',
        { name: 'gone.test', port: 1, priority: 1, weight: 1 },
        { name: 'there.test', port: 2, priority: 2, weight: 1 },
      )
      .host('there.test:2', { address: '127.0.0.4', port: server.port }, server.endpoint);
    const { client } = clientWith({ names });
    expect(await client.getJson('b.test', path, {}, { retries: 'none' })).toEqual({ ok: true });
  });

  it('do not wait long for an address that is silent', async () => {
    const server = await play(['b.test'], ok);
    // A connection to an address that answers nothing at all.
    const names = new FakeNames().host('b.test:8448', { address: '192.0.2.1', port: 9 }, server.endpoint);
    const { client } = clientWith({ names, settings: { ip_range_blacklist: [] } });
    const startedMs = Date.now();
    expect(await client.getJson('b.test', path, {}, { retries: 'none' })).toEqual({ ok: true });
    expect(Date.now() - startedMs).toBeLessThan(8_000);
  });

  describe('are tried again', () => {
    const failing = (times: number, answer: (response: ServerResponse) => void): Answer => {
      let count = 0;
      return (_, response) => (++count <= times ? answer(response) : json(response, { ok: count }));
    };

    it('a few times while somebody waits', async () => {
      const { client, server } = await pair(failing(3, (response) => json(response, {}, 502)));
      expect(await client.getJson('b.test', path)).toEqual({ ok: 4 });
      expect(server.seen).toHaveLength(4);
    });

    it('when the connection breaks', async () => {
      const { client } = await pair(failing(2, (response) => void response.socket?.destroy()));
      expect(await client.putJson('b.test', path, {})).toEqual({ ok: 3 });
    });

    it('not when they must not happen twice, nor when it is no use', async () => {
      const { client, server } = await pair(failing(1, (response) => json(response, {}, 500)));
      expect(await reason(client.postJson('b.test', path, {}))).toBe('status');
      expect(server.seen).toHaveLength(1);
      const refusing = await pair(failing(1, (response) => json(response, { errcode: 'M_FORBIDDEN' }, 403)));
      expect(await reason(refusing.client.getJson('b.test', path, {}, { ignoreBackoff: true }))).toBe('status');
      expect(refusing.server.seen).toHaveLength(1);
    });

    it('as often as the settings say for what must arrive', async () => {
      const { client, server } = await pair(
        failing(100, (response) => json(response, {}, 503)),
        {
          settings: { 'federation.max_long_retries': 5 },
        },
      );
      const error = await failure(client.putJson('b.test', path, {}, { retries: 'long' }));
      expect([error.status, error.retryable, server.seen.length]).toEqual([503, true, 6]);
    });

    it('when the server wants it, and not before', async () => {
      const clock = new FakeClock(Date.now());
      const { client, server } = await pair(
        failing(1, (response) => json(response, { errcode: 'M_LIMIT_EXCEEDED', retry_after_ms: 1_500 }, 429)),
        { clock, settings: { 'federation.max_short_retry_delay': 2_000 } },
      );
      const answered = client.getJson('b.test', path);
      while (clock.pendingTimers < 2 || server.seen.length < 1) await pause(5);
      await clock.advance(1_400);
      await pause(30);
      expect(server.seen).toHaveLength(1);
      await clock.advance(200);
      expect(await answered).toEqual({ ok: 2 });
      const slow = await pair(
        failing(1, (response) => void response.writeHead(429, { 'retry-after': '3600' }).end('{}')),
      );
      const error = await failure(slow.client.getJson('b.test', path));
      expect([error.status, error.retryAfterMs, error.retryable]).toEqual([429, 3_600_000, true]);
    });
  });

  describe('are bounded', () => {
    let cut = 0;
    const endless: Answer = (_, response) => {
      const timer = setInterval(() => response.write(Buffer.alloc(100_000, 0x20)), 1);
      response.on('close', () => {
        cut++;
        clearInterval(timer);
      });
    };

    it('in the size of the answer, also after unpacking', async () => {
      const { client } = await pair(endless);
      expect(await reason(client.getJson('b.test', path, {}, { maxBytes: 1_000_000 }))).toBe('too_large');
      // Nothing more is taken of it.
      await eventually(() => cut > 0);
      expect(cut).toBe(1);
      const bomb = await pair(
        (_, response) =>
          void response.setHeader('content-encoding', 'gzip').end(gzipSync(Buffer.alloc(5_000_000, 0x20))),
      );
      expect(await reason(bomb.client.getJson('b.test', path, {}, { maxBytes: 1_000_000 }))).toBe('too_large');
      const announced = await pair(
        (_, response) => void response.writeHead(200, { 'content-length': '2000000' }).flushHeaders(),
      );
      expect(await reason(announced.client.getJson('b.test', path, {}, { maxBytes: 1_000_000 }))).toBe('too_large');
      const errors = await pair((_, response) => {
        response.writeHead(400);
        endless(announced.server.seen[0]!, response);
      });
      expect(await failure(errors.client.getJson('b.test', path))).toMatchObject({ status: 400, body: undefined });
    });

    it('in time, from connecting to the last byte', async () => {
      const { client } = await pair(() => undefined);
      const none = { retries: 'none', timeoutMs: 100, ignoreBackoff: true } as const;
      expect(await reason(client.getJson('b.test', path, {}, none))).toBe('timeout');
      const drip = await pair((_, response) => {
        const timer = setInterval(() => response.write(' '), 10);
        response.on('close', () => clearInterval(timer));
      });
      expect(await reason(drip.client.getJson('b.test', path, {}, none))).toBe('timeout');
      const deaf = createTcpServer((socket) => void socket.on('error', () => undefined));
      await listen(deaf);
      const names = new FakeNames().host('b.test:8448', addressOf(deaf));
      expect(await reason(clientWith({ names }).client.getJson('b.test', path, {}, none))).toBe('timeout');
    });

    it('in silence, where much may come for long', async () => {
      const patient = { retries: 'none', timeoutMs: 600_000, silenceMs: 50, ignoreBackoff: true } as const;
      const mute = await pair(() => undefined);
      expect(await reason(mute.client.getJson('b.test', path, {}, patient))).toBe('timeout');
      const breaking = await pair((_, response) => void response.write('{'));
      expect(await reason(breaking.client.getJson('b.test', path, {}, patient))).toBe('timeout');
      const slow = await pair((_, response) => {
        let pieces = 0;
        const timer = setInterval(() => {
          response.write(' ');
          if (++pieces < 6) return;
          clearInterval(timer);
          response.end('{"ok":true}');
        }, 1_000);
      });
      const longer = { ...patient, silenceMs: 4_000 };
      expect(await slow.client.getJson('b.test', path, {}, longer)).toEqual({ ok: true });
    });

    it('in all its tries together, while somebody waits', async () => {
      const clock = new FakeClock(Date.now());
      const { client, server } = await pair(
        (_, response) => void clock.advance(60_000).then(() => json(response, {}, 503)),
        { clock },
      );
      expect(await failure(client.getJson('b.test', path, {}, { timeoutMs: 60_000 }))).toMatchObject({ status: 503 });
      expect(server.seen).toHaveLength(1);
    });

    it('while a server rests, for whoever waits, now and then and once', async () => {
      const clock = new FakeClock(Date.now());
      const { client, server, destinations } = await pair((_, response) => json(response, {}, 503), { clock });
      await failure(client.getJson('b.test', path, {}, { retries: 'none' }));
      expect((await destinations.state('b.test')).retryAtTs).toBeGreaterThan(0);
      expect(await reason(client.getJson('b.test', path))).toBe('backing_off');
      expect(await reason(client.getJson('b.test', path, {}, { awaited: true }))).toBe('status');
      expect(await reason(client.getJson('b.test', path, {}, { awaited: true }))).toBe('backing_off');
      await clock.advance(10_000);
      expect(await reason(client.getJson('b.test', path, {}, { awaited: true }))).toBe('status');
      expect(server.seen).toHaveLength(3);
    });

    it('by whoever gives up', async () => {
      const { client, server, destinations } = await pair(() => undefined);
      const giving = new AbortController();
      const attempt = failure(client.getJson('b.test', path, {}, { signal: giving.signal }));
      while (server.seen.length === 0) await pause(5);
      giving.abort();
      expect((await attempt).reason).toBe('aborted');
      expect((await destinations.state('b.test')).failingSinceTs).toBeUndefined();
    });

    it('by the end of this server, for which nobody is blamed', async () => {
      const { client, server, destinations } = await pair(() => undefined);
      const attempt = failure(client.getJson('b.test', path));
      while (server.seen.length === 0) await pause(5);
      await client.close();
      expect((await attempt).reason).toBe('unreachable');
      expect((await failure(client.getJson('b.test', path))).reason).toBe('aborted');
      expect(server.seen.length).toBe(1);
      expect((await destinations.state('b.test')).failingSinceTs).toBeUndefined();
    });

    it('by the end of this server, also those that wait', async () => {
      const { client, server } = await pair(() => undefined);
      const attempts = Array.from({ length: 20 }, () => failure(client.getJson('b.test', path)));
      await eventually(() => server.seen.length === 16);
      await client.close();
      const reasons = (await Promise.all(attempts)).map(({ reason }) => reason);
      expect(reasons.toSorted()).toEqual([
        ...Array.from({ length: 4 }, () => 'aborted'),
        ...Array.from({ length: 16 }, () => 'unreachable'),
      ]);
      expect(server.seen.length).toBe(16);
    });

    it('in their number for each server', async () => {
      const waiting: ServerResponse[] = [];
      const { client, server } = await pair((_, response) => void waiting.push(response));
      const attempts = Array.from({ length: 16 + 500 }, () => client.getJson('b.test', path).catch(() => 'failed'));
      await eventually(() => server.seen.length >= 16 && client.load('b.test') === attempts.length);
      await pause(50);
      expect([server.seen.length, client.load('b.test')]).toEqual([16, 516]);
      const error = await failure(client.getJson('b.test', path));
      expect([error.reason, error.retryable]).toEqual(['busy', true]);
      const answering = setInterval(() => {
        for (const response of waiting.splice(0)) json(response, { ok: true });
      }, 1);
      expect(new Set((await Promise.all(attempts)).map((one) => JSON.stringify(one)))).toEqual(
        new Set(['{"ok":true}']),
      );
      clearInterval(answering);
      expect([client.load('b.test'), server.connections <= 40]).toEqual([0, true]);
    });

    it('without blaming a server for those whose turn did not come', async () => {
      const { client, destinations, server } = await pair(() => undefined);
      const giving = new AbortController();
      const hanging = Array.from({ length: 16 }, () =>
        client.getJson('b.test', path, {}, { signal: giving.signal }).catch(() => undefined),
      );
      while (server.seen.length < 16) await pause(5);
      const error = await failure(client.getJson('b.test', path, {}, { retries: 'none', timeoutMs: 50 }));
      expect([error.reason, error.isDown]).toEqual(['busy', false]);
      expect((await destinations.state('b.test')).failingSinceTs).toBeUndefined();
      giving.abort();
      await Promise.all(hanging);
      expect(client.load('b.test')).toBe(0);
    });

    it.each([
      ['text', 'hello'],
      ['nothing', ''],
      ['a list', '[]'],
      ['half of it', '{"a":'],
      ['endless depth', `{"a":${'['.repeat(200)}${']'.repeat(200)}}`],
    ])('to JSON objects: %s is none', async (_, text) => {
      const { client } = await pair((__, response) => void response.end(text));
      expect(await reason(client.getJson('b.test', path))).toBe('bad_response');
    });

    it('to what unpacks, and to no redirect', async () => {
      const { client } = await pair(
        (_, response) => void response.setHeader('content-encoding', 'gzip').end('no gzip'),
      );
      expect(await reason(client.getJson('b.test', path))).toBe('bad_response');
      const redirecting = await pair(
        (_, response) => void response.writeHead(302, { location: 'https://c.test/' }).end(),
      );
      expect(await failure(redirecting.client.getJson('b.test', path))).toMatchObject({
        status: 302,
        retryable: false,
      });
    });
  });

  it('arrive as a stream that frees its place when it ends or is given up', async () => {
    const { client } = await pair((_, response) => {
      response.write('first ');
      setTimeout(() => response.end('second'), 20);
    });
    const request = { destination: 'b.test', method: 'GET', path } as const;
    let text = '';
    for await (const chunk of (await client.stream(request)).body) text += String(chunk);
    expect(text).toBe('first second');
    (await client.stream(request)).body.destroy();
    await eventually(() => client.load('b.test') === 0);
  });

  it('go through a proxy that is set, except where it is not to be used', async () => {
    const server = await play(['b.test', 'c.test'], ok);
    const tunnels: string[] = [];
    const proxy = createTcpServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', (head) => {
        const text = head.toString();
        tunnels.push(`${text.split(' ')[1]} ${/authorization: (.*)\r/i.exec(text)?.[1]}`);
        const onward = connect(server.port, '127.0.0.1', () => {
          socket.write('HTTP/1.1 200 OK\r\n\r\n');
          socket.pipe(onward).pipe(socket);
        });
        onward.on('error', () => undefined);
      });
    });
    await listen(proxy);
    const names = new FakeNames().host('c.test:8448', server.endpoint);
    const settings = {
      https_proxy: `http://me:p%40ss@127.0.0.1:${addressOf(proxy).port}`,
      no_proxy_hosts: ['c.test'],
    };
    const { client } = clientWith({ names, settings });
    expect(await client.getJson('b.test:77', path)).toEqual({ ok: true });
    expect(await client.getJson('c.test', path)).toEqual({ ok: true });
    const basic = Buffer.from('me:p@ss').toString('base64');
    expect(tunnels).toEqual([`b.test:77 Basic ${basic}`]);
    // A name that the proxy would resolve is nobody's here; an address written out is ours to judge.
    const guarded = clientWith({ settings: { ...settings, ip_range_whitelist: [] } });
    expect(await reason(guarded.client.getJson('127.0.0.1:8448', path))).toBe('blocked');
  });

  async function listen(server: Server): Promise<void> {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const open = new Set<{ destroy(): void }>();
    server.on('connection', (socket) => open.add(socket));
    stops.push(async () => {
      for (const socket of open) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    });
  }
  const addressOf = (server: Server): { address: string; port: number } => ({
    address: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
  });
  const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
});
