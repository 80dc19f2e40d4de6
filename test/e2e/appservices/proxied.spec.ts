import type { JsonObject } from '@rookery/matrix-types';
import { eventually, freePort, type TestHomeserver, type TestUser } from '@rookery/testing';
import { once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  request as httpRequest,
  type Server,
  type ServerResponse,
} from 'node:http';
import { gzipSync } from 'node:zlib';
import { FederationWorld, type PlayedServer } from '../federation/federation-world.js';
import { acting, RegistrationFiles } from './support.js';

/** A request as the service got it. */
interface Got {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** The program behind `proxy_url`: notes what it gets, answers what the test wants. */
class ProxiedService {
  readonly got: Got[] = [];
  answer: (got: Got, response: ServerResponse) => void = (_, response) => this.usual(response);

  private constructor(
    readonly port: number,
    private readonly server: Server,
  ) {}

  static async start(): Promise<ProxiedService> {
    const server = createServer();
    const service = new ProxiedService(await freePort(), server);
    server.on('request', (incoming, response) => {
      const chunks: Buffer[] = [];
      incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
      incoming.on('end', () => {
        const { method = '', url = '', headers } = incoming;
        const got = { method, url, headers, body: Buffer.concat(chunks).toString() };
        service.got.push(got);
        service.answer(got, response);
      });
    });
    server.listen(service.port, '127.0.0.1');
    await once(server, 'listening');
    return service;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}/base/`;
  }

  usual(response: ServerResponse): void {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"by":"service"}');
  }

  /** What it got since the last time; it answers as usual again. */
  take(): Got[] {
    this.answer = (_, response) => this.usual(response);
    return this.got.splice(0);
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

const fields = (prefix: string, url: string) => ({
  'io.element.msc4512.proxy_prefix': prefix,
  'io.element.msc4512.proxy_url': url,
});
const outcome = ({ status, body }: { status: number; body: unknown }): string =>
  [status, (body as JsonObject)['errcode'] ?? []].flat().join(' ');

describe('paths that application services answer', () => {
  const files = new RegistrationFiles();
  let world: FederationWorld;
  let service: ProxiedService;
  let far: ProxiedService;
  let one: TestHomeserver;
  let alice: TestUser;
  let played: PlayedServer;

  beforeAll(async () => {
    world = await FederationWorld.create();
    service = await ProxiedService.start();
    far = await ProxiedService.start();
    const away = `http://127.0.0.1:${await freePort()}`;
    const experimental_features = { msc4512_enabled: true };
    one = await world.homeserver('one.test', {
      settings: {
        experimental_features,
        allow_guest_access: true,
        federation_domain_whitelist: ['one.test', 'two.test', 'played.test', 'nowhere.test'],
        app_service_config_files: [
          files.write('calls', fields('org.calls/rtc', service.url)),
          files.write('account', fields('account', service.url)),
          files.write('away', fields('away', away)),
          files.write('plain', {}),
        ],
      },
    });
    await world.homeserver('two.test', {
      settings: {
        experimental_features,
        app_service_config_files: [files.write('far', fields('org.calls/rtc', far.url))],
      },
    });
    played = await world.played('played.test');
    alice = await one.registerUser('alice');
  });
  beforeEach(() => {
    service.take();
    far.take();
  });
  afterAll(async () => {
    await world?.stop();
    await service?.stop();
    await far?.stop();
    files.remove();
  });

  /** A request exactly as it is written here. */
  const raw = (
    method: string,
    path: string,
    {
      headers = {},
      body,
      token = alice.accessToken,
    }: { headers?: object; body?: string | Buffer; token?: string } = {},
  ): Promise<{ status: number; headers: IncomingMessage['headers']; text: string }> =>
    new Promise((resolve, reject) => {
      const { hostname, port } = new URL(one.baseUrl);
      const authorization = token === '' ? {} : { authorization: `Bearer ${token}` };
      // Node.js says no length of its own accord where bodies are rare.
      const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body) };
      const all = { ...authorization, ...length, ...headers };
      const sent = httpRequest({ hostname, port, method, path, headers: all }, (answer) => {
        const chunks: Buffer[] = [];
        answer.on('data', (chunk: Buffer) => chunks.push(chunk));
        answer.on('error', reject);
        answer.on('end', () =>
          resolve({
            status: answer.statusCode ?? 0,
            headers: answer.headers,
            text: Buffer.concat(chunks).toString(),
          }),
        );
      });
      sent.on('error', reject);
      sent.end(body);
    });
  const asked = async (method: string, path: string, more: Parameters<typeof raw>[2] = {}): Promise<string> => {
    const { status, text } = await raw(method, path, more);
    return outcome({ status, body: JSON.parse(text) });
  };

  describe('for clients', () => {
    it.each(['/_matrix/client/v1', '/_matrix/client/v27', '/_matrix/client/unstable/org.example.msc1'])(
      'under %s, as the user who asks',
      async (version) => {
        const path = `${version}/org.calls/rtc/a%2Fb/c?x=%20y&access_token=other&access%5Ftoken=more&z`;
        expect(await raw('GET', path)).toMatchObject({ status: 200, text: '{"by":"service"}' });
        expect(service.take()).toMatchObject([
          {
            method: 'GET',
            url: `/base${version}/org.calls/rtc/a%2Fb/c?x=%20y&z`,
            headers: { 'x-matrix-user-identifier': alice.userId },
          },
        ]);
        await raw('GET', `${version}/org.calls/rtc/`);
        expect(service.take().map(({ url }) => url)).toEqual([`/base${version}/org.calls/rtc/`]);
      },
    );

    it.each(['POST', 'PUT', 'PATCH', 'DELETE'])(
      'by %s, with the body as it was before it was packed',
      async (method) => {
        const headers = { 'content-type': 'text/plain', 'content-encoding': 'gzip' };
        const answer = await raw(method, '/_matrix/client/v1/org.calls/rtc/x', {
          headers,
          body: gzipSync('no JSON at all'),
        });
        expect(answer).toMatchObject({ status: 200, text: '{"by":"service"}' });
        const [got, ...more] = service.take();
        expect(more).toEqual([]);
        expect(got).toMatchObject({ method, body: 'no JSON at all', headers: { 'content-type': 'text/plain' } });
        expect(got!.headers).not.toHaveProperty('content-encoding');
      },
    );

    it('headers of the connection, proofs and what only the server may say stay behind', async () => {
      const headers = {
        connection: 'keep-alive, X-Once',
        'keep-alive': 'timeout=5',
        te: 'trailers',
        upgrade: 'h2c',
        'x-once': '1',
        cookie: 'session=secret',
        'proxy-authorization': 'Basic x',
        'x-matrix-user-identifier': '@mallory:one.test',
        'x-matrix-origin': 'mallory.test',
        'x-forwarded-for': '192.0.2.1',
        'x-kept': 'kept',
      };
      expect(await raw('GET', '/_matrix/client/v1/org.calls/rtc/x', { headers })).toMatchObject({ status: 200 });
      const [got] = service.take();
      expect(got!.headers).toMatchObject({ 'x-kept': 'kept', 'x-matrix-user-identifier': alice.userId });
      for (const name of ['authorization', 'cookie', 'x-once', 'te', 'upgrade', 'keep-alive', 'proxy-authorization'])
        expect(got!.headers).not.toHaveProperty(name);
      for (const name of ['x-matrix-origin', 'x-forwarded-for']) expect(got!.headers).not.toHaveProperty(name);
    });

    it('the answer comes as it is, but for headers of the connection and cookies', async () => {
      service.answer = (_, response) => {
        const headers = {
          ...{ connection: 'X-Once', 'x-once': '1', 'x-kept': 'kept', 'set-cookie': 'a=b', location: '/elsewhere' },
          ...{ 'content-type': 'text/x-strange', 'content-encoding': 'gzip' },
        };
        response.writeHead(302, headers).end(gzipSync('an answer'));
      };
      const answer = await raw('GET', '/_matrix/client/v1/org.calls/rtc/x');
      expect(answer).toMatchObject({ status: 302, text: 'an answer' });
      expect(answer.headers).toMatchObject({
        ...{ 'x-kept': 'kept', location: '/elsewhere', 'content-type': 'text/x-strange' },
        'access-control-allow-origin': '*',
      });
      for (const name of ['x-once', 'set-cookie', 'content-encoding']) expect(answer.headers).not.toHaveProperty(name);
    });

    it('the answer comes while it is made', async () => {
      let finish = (): void => {};
      service.answer = (_, response) => {
        response.writeHead(200).write('first');
        finish = () => void response.end(' second');
      };
      const { hostname, port } = new URL(one.baseUrl);
      const headers = { authorization: `Bearer ${alice.accessToken}` };
      const sent = httpRequest({ hostname, port, path: '/_matrix/client/v1/org.calls/rtc/slow', headers }).end();
      const [answer] = (await once(sent, 'response')) as [IncomingMessage];
      const [first] = (await once(answer, 'data')) as [Buffer];
      expect(first.toString()).toBe('first');
      finish();
      const [second] = (await once(answer, 'data')) as [Buffer];
      expect(second.toString()).toBe(' second');
    });

    it('HEAD gets headers alone', async () => {
      service.answer = (_, response) => void response.writeHead(200, { 'x-kept': 'kept', 'content-length': '5' }).end();
      const answer = await raw('HEAD', '/_matrix/client/v1/org.calls/rtc/x');
      expect(answer).toMatchObject({ status: 200, headers: { 'x-kept': 'kept' }, text: '' });
      expect(service.take().map(({ method }) => method)).toEqual(['HEAD']);
    });

    it('nobody gets there whom the server does not know, nor a guest, nor too much', async () => {
      const path = '/_matrix/client/v1/org.calls/rtc/x';
      expect(await asked('GET', path, { token: '' })).toBe('401 M_MISSING_TOKEN');
      expect(await asked('GET', path, { token: 'rubbish' })).toBe('401 M_UNKNOWN_TOKEN');
      const guest = await one.request<{ access_token: string }>('POST', '/register?kind=guest', {});
      expect(await asked('GET', path, { token: guest.body.access_token })).toBe('403 M_GUEST_ACCESS_FORBIDDEN');
      expect(await asked('POST', path, { body: 'x'.repeat(1_048_577) })).toBe('413 M_TOO_LARGE');
      for (const inside of ['/../x', '/%2e%2E/x', '/a/.%2e', '/a%2f..%2fb', '/a%5C..', '/./x'])
        expect([inside, await asked('GET', `${path}${inside}`)]).toEqual([inside, '400 M_INVALID_PARAM']);
      expect(await asked('TRACE', path)).toBe('405 M_UNRECOGNIZED');
      expect(service.take()).toEqual([]);
      expect(await asked('GET', '/_matrix/client/v1/away/x')).toBe('502 M_UNKNOWN');
    });

    it('what the server answers itself, and what nobody does, is as ever', async () => {
      expect(await raw('GET', '/_matrix/client/v3/account/whoami')).toMatchObject({ status: 200 });
      expect(await raw('GET', '/_matrix/client/unstable/account/whoami')).toMatchObject({ status: 200 });
      for (const path of [
        '/_matrix/client/v1/org.calls/rtcx/x',
        '/_matrix/client/v1/org.calls',
        '/_matrix/client/org.calls/rtc/x',
        '/_matrix/client/w1/org.calls/rtc/x',
        '/_matrix/client/unstable/org.calls/rtc/x',
        '/_matrix/client/api/v1/org.calls/rtc/x',
        '/_matrix/other/v1/org.calls/rtc/x',
      ])
        expect([path, await asked('GET', path)]).toEqual([path, '404 M_UNRECOGNIZED']);
      expect(await asked('PUT', '/_matrix/client/v3/sync')).toBe('405 M_UNRECOGNIZED');
      expect(service.take()).toEqual([]);
    });

    it('who goes away ends the request', async () => {
      let ended = false;
      service.answer = (_, response) => void response.once('close', () => (ended = true));
      const { hostname, port } = new URL(one.baseUrl);
      const headers = { authorization: `Bearer ${alice.accessToken}` };
      const sent = httpRequest({ hostname, port, path: '/_matrix/client/v1/org.calls/rtc/slow', headers });
      sent.on('error', () => undefined);
      sent.end();
      await eventually(() => service.got.length === 1);
      sent.destroy();
      await eventually(() => ended);
    });

    it('a user may have eight requests under way', async () => {
      const waiting: ServerResponse[] = [];
      service.answer = (_, response) => void waiting.push(response);
      const under = Array.from({ length: 8 }, () => raw('GET', '/_matrix/client/v1/org.calls/rtc/x'));
      await eventually(() => waiting.length === 8);
      expect(await asked('GET', '/_matrix/client/v1/org.calls/rtc/x')).toBe('429 M_LIMIT_EXCEEDED');
      for (const response of waiting) service.usual(response);
      for (const { status } of await Promise.all(under)) expect(status).toBe(200);
      service.take();
      expect(await asked('GET', '/_matrix/client/v1/org.calls/rtc/x')).toBe('200');
    });
  });

  describe('for other servers', () => {
    const path = '/_matrix/federation/v1/org.calls/rtc/x?y=%20z';

    it('as the server that signed', async () => {
      expect(await played.request(one, 'GET', path)).toEqual({ status: 200, body: { by: 'service' } });
      const unstable = '/_matrix/federation/unstable/org.example/org.calls/rtc/x';
      expect(await played.request(one, 'POST', unstable, { a: [1, 'two'] })).toMatchObject({ status: 200 });
      const got = service.take();
      expect(got).toMatchObject([
        { method: 'GET', url: `/base${path}`, headers: { 'x-matrix-origin': 'played.test' } },
        { method: 'POST', url: `/base${unstable}`, body: '{"a":[1,"two"]}' },
      ]);
      for (const { headers } of got) expect(headers).not.toHaveProperty('authorization');
    });

    it('without a signature nothing gets there', async () => {
      expect(await asked('GET', path)).toBe('401 M_UNAUTHORIZED');
      expect(await asked('GET', '/_matrix/federation/v1/org.calls/other')).toBe('404 M_UNRECOGNIZED');
      expect(service.take()).toEqual([]);
    });
  });

  describe('asks other servers', () => {
    const endpoint = '/_matrix/client/unstable/io.element.msc4512/appservice/fed_proxy';
    const path = '/_matrix/federation/v1/org.calls/rtc/x';
    const usual = { destination: 'two.test', method: 'GET', path };
    const ask = (body: object, as = 'calls') => acting(one, as).request<JsonObject>('POST', endpoint, body);

    it('under its own prefix, and gets what they answer', async () => {
      expect((await ask({ ...usual, query: { a: 'b c', d: '' } })).body).toEqual({
        status: 200,
        content: { by: 'service' },
      });
      far.answer = (_, response) => void response.writeHead(418).end('{"errcode":"M_TEAPOT"}');
      const refused = await ask({ ...usual, method: 'POST', body: { a: { b: ['c'] } } });
      expect(refused).toMatchObject({ status: 200, body: { status: 418, content: { errcode: 'M_TEAPOT' } } });
      far.answer = (_, response) => void response.writeHead(503).end('no JSON');
      expect((await ask({ ...usual, method: 'PUT', body: {} })).body).toEqual({ status: 503 });
      far.answer = (_, response) => void response.writeHead(201).end('[]');
      expect((await ask({ ...usual, method: 'DELETE' })).body).toEqual({ status: 201 });
      expect(far.take()).toMatchObject([
        { method: 'GET', url: `/base${path}?a=b%20c&d=`, headers: { 'x-matrix-origin': 'one.test' } },
        { method: 'POST', url: `/base${path}`, body: '{"a":{"b":["c"]}}' },
        { method: 'PUT', body: '{}' },
        { method: 'DELETE', body: '' },
      ]);
      const unstable = '/_matrix/federation/unstable/org.example/org.calls/rtc/a%20b';
      expect((await ask({ ...usual, path: unstable })).body).toMatchObject({ status: 200 });
      expect(far.take()).toMatchObject([{ url: `/base${unstable}` }]);
    });

    it('is for services alone', async () => {
      expect(outcome(await alice.request('POST', endpoint, usual))).toBe('403 M_FORBIDDEN');
      expect(outcome(await alice.request('POST', endpoint, {}))).toBe('403 M_FORBIDDEN');
      expect(outcome(await one.request('POST', endpoint, usual))).toBe('401 M_MISSING_TOKEN');
    });

    const [missing, invalid] = ['400 M_MISSING_PARAM', '400 M_INVALID_PARAM'];
    const [denied, outside] = ['DESTINATION_DENIED', 'PATH_NOT_ALLOWED'].map(
      (name) => `403 IO.ELEMENT.MSC4512.M_FEDPROXY_${name}`,
    );
    it.each<[object, string | undefined]>([
      [{ destination: undefined }, missing],
      [{ method: undefined }, missing],
      [{ path: undefined }, missing],
      [{ destination: 'a b' }, invalid],
      [{ destination: 1 }, invalid],
      [{ method: 'PATCH' }, invalid],
      [{ method: 'get' }, invalid],
      [{ path: 7 }, invalid],
      [{ path: `${path}?x=y` }, invalid],
      [{ path: `${path}#x` }, invalid],
      [{ path: `${path}/\u00e4` }, invalid],
      [{ path: `${path}/%zz` }, invalid],
      [{ path: `${path}/a b` }, invalid],
      [{ path: `${path}/\\..` }, invalid],
      [{ query: 'a=b' }, invalid],
      [{ query: { a: 1 } }, invalid],
      [{ query: { a: ['b'] } }, invalid],
      [{ body: {} }, invalid],
      [{ method: 'DELETE', body: {} }, invalid],
      [{ method: 'POST', body: [] }, invalid],
      [{ destination: 'one.test' }, denied],
      [{ destination: 'elsewhere.test' }, denied],
      [{ path: '/_matrix/federation/v1/version' }, outside],
      [{ path: '/_matrix/federation/org.calls/rtc/x' }, outside],
      [{ path: '/_matrix/federation/v1/org.calls/rtc' }, outside],
      [{ path: '/_matrix/federation/v1/org.calls/rtcx/x' }, outside],
      [{ path: '/_matrix/federation/v1/x/org.calls/rtc/x' }, outside],
      [{ path: '/_matrix/federation/v1%2Fsend/org.calls/rtc/x' }, outside],
      [{ path: '/_matrix/client/v1/org.calls/rtc/x' }, outside],
      [{ path: `${path}/../../../version` }, outside],
      [{ path: `${path}/./y` }, outside],
      [{ path: `${path}/%2e%2E/y` }, outside],
      [{ path: `${path}/.%2e` }, outside],
      [{ path: `${path}/a%2f..%2fb` }, outside],
      [{ path: '/_matrix/federation/unstable/../org.calls/rtc/x' }, outside],
    ])('with %j is refused', async (change, expected) => {
      expect(outcome(await ask({ ...usual, ...change }))).toBe(expected);
      expect(far.take()).toEqual([]);
    });

    it('a service without a prefix has no path', async () => {
      expect(outcome(await ask(usual, 'plain'))).toBe(outside);
      expect(outcome(await ask(usual, 'away'))).toBe(outside);
    });

    it('a server that is not there cannot be asked, and is not held to be down for it', async () => {
      for (const _ of [1, 2])
        expect(outcome(await ask({ ...usual, destination: 'nowhere.test' }))).toBe(
          '502 IO.ELEMENT.MSC4512.M_FEDPROXY_CONNECTION_FAILED',
        );
      far.answer = (_, response) => void response.writeHead(500).end('{}');
      expect((await ask(usual)).body).toMatchObject({ status: 500 });
      far.take();
      expect((await ask(usual)).body).toMatchObject({ status: 200 });
    });
  });

  it('versions tell of it', async () => {
    const { body } = await one.request<{ unstable_features: JsonObject }>('GET', '/_matrix/client/versions');
    expect(body.unstable_features['io.element.msc4512']).toBe(true);
  });

  it('by way of another process, whose secret stays behind', async () => {
    const settings = {
      experimental_features: { msc4512_enabled: true },
      app_service_config_files: [files.write('calls', fields('org.calls/rtc', service.url))],
    };
    const many = await world.homeserver('many.test', { database: 'postgres', processes: 2, settings });
    const { userId, accessToken } = await many.registerUser('alice');
    const [, beside] = many.servers;
    const address = `http://127.0.0.1:${beside!.addresses[0]!.port}`;
    const headers = { authorization: `Bearer ${accessToken}`, 'content-type': 'text/plain' };
    const path = '/_matrix/client/v1/org.calls/rtc/x';
    const answer = await fetch(`${address}${path}`, { method: 'POST', headers, body: 'no JSON' });
    expect([answer.status, await answer.json()]).toEqual([200, { by: 'service' }]);
    const [got] = service.take();
    expect(got).toMatchObject({ method: 'POST', url: `/base${path}`, body: 'no JSON' });
    expect(got!.headers).toMatchObject({ 'x-matrix-user-identifier': userId });
    for (const name of ['x-rookery-process', 'authorization', 'x-forwarded-for'])
      expect(got!.headers).not.toHaveProperty(name);
  });

  it('nothing of it is there where it is not switched on', async () => {
    const off = await world.homeserver('off.test', {
      settings: { app_service_config_files: [files.write('calls', fields('org.calls/rtc', service.url))] },
    });
    const { body } = await off.request<{ unstable_features: JsonObject }>('GET', '/_matrix/client/versions');
    expect(body.unstable_features['io.element.msc4512']).toBe(false);
    const unknown = '404 M_UNRECOGNIZED';
    expect(outcome(await off.request('GET', '/_matrix/client/v1/org.calls/rtc/x'))).toBe(unknown);
    expect(outcome(await played.request(off, 'GET', '/_matrix/federation/v1/org.calls/rtc/x'))).toBe(unknown);
    const endpoint = '/_matrix/client/unstable/io.element.msc4512/appservice/fed_proxy';
    expect(outcome(await acting(off, 'calls').request('POST', endpoint, {}))).toBe(unknown);
    expect(service.take()).toEqual([]);
  });
});
