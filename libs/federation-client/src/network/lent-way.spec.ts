import { IpGuard, OutboundHttp } from '@rookery/http';
import { Config, Metrics, processProtocol, SystemClock } from '@rookery/platform';
import { HttpRpc, type RpcAddress } from '@rookery/replication';
import { eventually, FakeNames, openTestDatabase, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect as createTcpConnection, createServer as createTcpServer } from 'node:net';
import {
  type Answer,
  authority,
  json,
  makeClient,
  PlayedServer,
  type TestClient,
} from '../federation-client.fixture.js';
import { federationClientMigrations } from '../migrations/federation-client-01.migration.js';
import { FederationMedia, wayTo } from '../requests/federation-media.js';
import type { FederationRequestError } from '../requests/federation-request-error.js';
import { DirectWay } from './direct-way.js';
import { lendWay, LentWay } from './lent-way.js';
import { maySpeak, speakersOf } from './speakers.js';

const path = '/_matrix/federation/v1/version';
const ok: Answer = (_, response) => json(response, { ok: true });
const loopback = { ip_range_whitelist: ['127.0.0.0/8', '::1/128'] };

describe('Requests of a process that does not speak to other servers itself', () => {
  let test: TestDatabase;
  let addresses: Map<string, RpcAddress>;
  let logger: RecordingLogger;
  const stops: (() => unknown)[] = [];
  beforeAll(async () => {
    test = await openTestDatabase('sqlite');
    await test.migrate(federationClientMigrations);
  });
  afterAll(() => test.close());
  beforeEach(() => {
    addresses = new Map();
    logger = new RecordingLogger();
  });
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
    await test.database.write((tx) => tx.run('DELETE FROM destinations'));
  });

  const rpcOf = (instance: string): HttpRpc =>
    new HttpRpc({ instance, secret: 'shared', addressOf: (name) => addresses.get(name), others: () => [] });
  /** A process that speaks to others, as far as its names and settings go. */
  interface Lender {
    readonly metrics: Metrics;
    readonly names: FakeNames;
    stopLending(): void;
    close(): Promise<void>;
  }
  const lender = async (instance: string, names: FakeNames, settings: object = loopback): Promise<Lender> => {
    const rpc = rpcOf(instance);
    const metrics = new Metrics('origin.test');
    const config = Config.fromObject({ server_name: 'origin.test', ...settings });
    const stopLending = lendWay({ rpc, way: DirectWay.of(config, names), metrics });
    addresses.set(instance, await rpc.listen('127.0.0.1'));
    const close = (): Promise<void> => rpc.close();
    stops.push(close);
    return { metrics, names, stopLending, close };
  };
  let way: LentWay;
  /** A process that knows no name and may reach no address. */
  const borrower = (lenders: readonly string[]): TestClient => {
    const rpc = rpcOf('inside');
    way = new LentWay({ rpc, clock: new SystemClock(), logger, lenders });
    const settings = { ip_range_whitelist: [], 'federation.max_short_retry_delay': 200 };
    const client = makeClient({ database: test.database, settings, wayOf: () => way });
    stops.push(() => client.close());
    return client;
  };
  const play = async (...args: Parameters<typeof PlayedServer.start>): Promise<PlayedServer> => {
    const server = await PlayedServer.start(...args);
    stops.push(() => server.stop());
    return server;
  };
  const failure = (attempt: Promise<unknown>): Promise<FederationRequestError> =>
    attempt.then(
      () => Promise.reject(new Error('it was answered')),
      (error: FederationRequestError) => error,
    );
  const once = { ignoreBackoff: true, retries: 'none' } as const;
  const countOf = async ({ metrics }: Lender, outcome: string): Promise<number> => {
    const { body: text } = await metrics.render();
    return Number(new RegExp(`lent_connections_total\\{outcome="${outcome}".*\\} (\\d+)`).exec(text)?.[1] ?? 0);
  };

  it('go out where that is allowed: names, documents, records and connections are found there, and nothing here', async () => {
    const server = await play(['b.test'], ok);
    const delegated = await play(['delegate.test'], ok);
    const host = await play(['c.test'], (_, response) => json(response, { 'm.server': 'delegate.test' }));
    const names = new FakeNames()
      .host('b.test:8448', server.endpoint)
      .host('c.test:443', host.endpoint)
      .host('here.test:1234', delegated.endpoint)
      .service('_matrix-fed._tcp.delegate.test', { name: 'here.test', port: 1234, priority: 1, weight: 1 });
    const out = await lender('out', names);
    const { client, names: own } = borrower(['out']);
    expect(await client.getJson('b.test', path)).toEqual({ ok: true });
    expect(await client.putJson('c.test', '/_matrix/federation/v1/x/y', { a: 1 })).toEqual({ ok: true });
    expect(host.seen.map(({ url }) => url)).toEqual(['/.well-known/matrix/server']);
    expect(delegated.seen[0]).toMatchObject({
      method: 'PUT',
      sni: 'delegate.test',
      headers: { host: 'delegate.test' },
    });
    expect(own.asked).toEqual([]);
    expect(names.asked).toContain('_matrix-fed._tcp.delegate.test');
    expect(await countOf(out, 'open')).toBeGreaterThanOrEqual(3);
    // They are kept, as others are.
    for (let i = 0; i < 10; i++) await client.getJson('b.test', path);
    expect(server.connections).toBeLessThanOrEqual(2);
    expect(logger.lines).toEqual([]);
  });

  it('fail as they would from there', async () => {
    const silent = createTcpServer(() => undefined);
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    stops.push(() => silent.close());
    const wrong = await play(['someone-else.test'], ok);
    const names = new FakeNames()
      .host('refused.test:8448', { address: '127.0.0.1', port: 9 })
      .host('wrong.test:8448', wrong.endpoint)
      .host('private.test:8448', { address: '10.0.0.1', port: 8448 });
    const out = await lender('out', names);
    const direct = makeClient({ database: test.database, names });
    stops.push(() => direct.close());
    const { client } = borrower(['out']);
    for (const [server, reason] of [
      ['refused.test', 'unreachable'],
      ['nowhere.test', 'unreachable'],
      ['private.test', 'blocked'],
      ['10.0.0.1', 'blocked'],
      ['wrong.test', 'certificate'],
    ] as const) {
      const own = await failure(direct.client.getJson(server, path, {}, once));
      const lent = await failure(client.getJson(server, path, {}, once));
      expect([lent.reason, lent.message]).toEqual([reason, own.message]);
    }
    expect(await countOf(out, 'blocked')).toBeGreaterThanOrEqual(2);
    expect(await countOf(out, 'unreachable')).toBeGreaterThanOrEqual(1);
    // The other servers' failures are none of this one's.
    expect(logger.lines).toEqual([]);
  });

  it('go to no address that the process closes by which they go, whatever this one allows', async () => {
    const server = await play(['b.test'], ok);
    const names = new FakeNames().host('b.test:8448', server.endpoint);
    await lender('out', names, {});
    const rpc = rpcOf('inside');
    const open = makeClient({
      ...{ database: test.database, settings: loopback, names },
      wayOf: () => new LentWay({ rpc, clock: new SystemClock(), logger, lenders: ['out'] }),
    });
    stops.push(() => open.close());
    expect((await failure(open.client.getJson('b.test', path, {}, once))).reason).toBe('blocked');
    expect((await failure(open.client.getJson(`127.0.0.1:${server.port}`, path, {}, once))).reason).toBe('blocked');
    expect(server.connections).toBe(0);
  });

  it('are spread, pass over who is gone, hangs or stops, and say so once', async () => {
    const server = await play(['b.test'], (_, response) => void response.setHeader('connection', 'close').end('{}'));
    const names = new FakeNames().host('b.test:8448', server.endpoint);
    const [one, other] = [await lender('one', names), await lender('other', names)];
    const hanging = createTcpServer((socket) => void socket.on('error', () => undefined));
    await new Promise<void>((resolve) => hanging.listen(0, '127.0.0.1', resolve));
    stops.push(() => hanging.close());
    const { client } = borrower(['gone', 'one', 'other', 'hangs']);
    addresses.set('hangs', {
      host: '127.0.0.1',
      port: (hanging.address() as AddressInfo).port,
      protocol: processProtocol,
    });
    const ask = async (): Promise<void> => void (await client.getJson('b.test', path));
    for (let i = 0; i < 8; i++) await ask();
    expect(await countOf(one, 'open')).toBeGreaterThan(0);
    expect(await countOf(other, 'open')).toBeGreaterThan(0);
    const warnings = logger.messages('warn');
    expect(warnings).toEqual([
      'A process that speaks to other servers cannot be reached',
      'A process that speaks to other servers cannot be reached',
    ]);
    // In order: it takes no more, and what it has may end.
    one.stopLending();
    const before = await countOf(one, 'open');
    for (let i = 0; i < 4; i++) await ask();
    expect(await countOf(one, 'open')).toBe(before);
    expect(logger.messages('error')).toEqual([]);
  });

  it('go another way once more where the process goes away in the middle of one', async () => {
    const held: ServerResponse[] = [];
    const server = await play(['b.test'], (_, response) => void held.push(response));
    const names = new FakeNames().host('b.test:8448', server.endpoint);
    const lenders = [await lender('one', names), await lender('other', names)];
    const { client } = borrower(['one', 'other']);
    const answer = client.getJson('b.test', path);
    await eventually(() => held.length === 1);
    const counts = await Promise.all(lenders.map((one) => countOf(one, 'open')));
    await lenders[counts.findIndex((count) => count > 0)]!.close();
    await eventually(() => held.length === 2);
    json(held[1]!, { ok: 'all the same' });
    expect(await answer).toEqual({ ok: 'all the same' });
  });

  it('fail as if the other server were away while nobody can be asked, of which nothing is remembered', async () => {
    const delegated = await play(['delegate.test'], ok);
    const host = await play(['c.test'], (_, response) => json(response, { 'm.server': 'delegate.test:99' }));
    const names = new FakeNames().host('c.test:443', host.endpoint).host('delegate.test:99', delegated.endpoint);
    const { client } = borrower(['out', 'writer']);
    for (let i = 0; i < 2; i++) {
      const error = await failure(client.getJson('c.test', path, {}, once));
      expect(error).toMatchObject({ reason: 'unreachable', retryable: true, isDown: true });
      expect(error.message).toBe(
        'c.test: no process of this server that speaks to other servers can be reached (out, writer)',
      );
    }
    expect(logger.messages('error')).toEqual([
      'No process that speaks to other servers can be reached: requests to them fail until one is back',
    ]);
    await expect(way.srv('_matrix._tcp.c.test')).rejects.toThrow('no process of this server');
    await lender('out', names);
    // Had its host been taken for one without document, it would be looked for elsewhere now.
    expect(await client.getJson('c.test', path, {}, once)).toEqual({ ok: true });
    expect(logger.messages('info')).toEqual(['A process that speaks to other servers can be reached again']);
  });

  it('do without records where DNS gives no answer, as elsewhere', async () => {
    const server = await play(['b.test'], ok);
    class NoRecords extends FakeNames {
      override srv(): Promise<never> {
        return Promise.reject(new Error('queryServ ETIMEOUT'));
      }
    }
    await lender('out', new NoRecords().host('b.test:8448', server.endpoint));
    const { client } = borrower(['out']);
    expect(await client.getJson('b.test', path)).toEqual({ ok: true });
    await expect(way.srv('_matrix._tcp.b.test')).rejects.toThrow('queryServ ETIMEOUT');
    expect(logger.lines).toEqual([]);
  });

  it('take the proxy where they go out', async () => {
    const server = await play(['b.test'], ok);
    const asked: string[] = [];
    const proxy = createServer().on('connect', (request, socket) => {
      asked.push(request.url ?? '');
      const { port } = server.endpoint;
      const way = createTcpConnection(port);
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      way.pipe(socket).pipe(way);
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    stops.push(() => {
      proxy.closeAllConnections();
      proxy.close();
    });
    await lender('out', new FakeNames(), {
      https_proxy: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    });
    const { client } = borrower(['out']);
    expect(await client.getJson('b.test:8448', path)).toEqual({ ok: true });
    // An address that is written out is judged before it is handed on.
    expect((await failure(client.getJson('10.0.0.1', path, {}, once))).reason).toBe('blocked');
    expect(asked).toEqual(['b.test:8448']);
  });

  it('fetch media from where other servers say they lie the same way', async () => {
    const elsewhere = createServer((_, response) => void response.end('from elsewhere'));
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve));
    stops.push(() => elsewhere.close());
    const secure = await play(['cdn.test'], (_, response) => void response.end('never'));
    const plain = (elsewhere.address() as AddressInfo).port;
    let location = `http://cdn.test:80/file`;
    const server = await play(['b.test'], (_, response) => {
      const parts = ['Content-Type: application/json\r\n\r\n{}', `Location: ${location}\r\n\r\n`];
      response.setHeader('content-type', 'multipart/mixed; boundary=line');
      response.end(`${parts.map((part) => `--line\r\n${part}\r\n`).join('')}--line--\r\n`);
    });
    const names = new FakeNames()
      .host('b.test:8448', server.endpoint)
      .host('cdn.test:80', { address: '127.0.0.1', port: plain })
      .host('cdn.test:443', secure.endpoint);
    const out = await lender('out', names);
    const { client } = borrower(['out']);
    const outbound = new OutboundHttp({ guard: new IpGuard([]), userAgent: 'Rookery/test', ca: [authority.cert] });
    const lent = outbound.connectingBy(wayTo(way));
    stops.push(() => lent.close());
    const media = new FederationMedia(client, lent);
    const wanted = { destination: 'b.test', mediaId: 'a', maxBytes: 1_000, timeoutMs: 20_000 };
    const read = async (): Promise<string> => {
      let text = '';
      for await (const chunk of (await media.download(wanted)).body) text += (chunk as Buffer).toString();
      return text;
    };
    expect(await read()).toBe('from elsewhere');
    location = 'https://cdn.test/file';
    expect(await read()).toBe('never');
    expect(secure.seen.map(({ url, sni }) => [url, sni])).toEqual([['/file', 'cdn.test']]);
    location = 'http://10.0.0.1/file';
    expect((await failure(read())).reason).toBe('blocked');
    location = 'https://nowhere.test/file';
    expect((await failure(read())).reason).toBe('unreachable');
    expect(await countOf(out, 'open')).toBeGreaterThanOrEqual(3);
  });
});

describe('outbound_federation_restricted_to', () => {
  const of = (settings: object): [readonly string[] | undefined, boolean] => {
    const config = Config.fromObject({
      ...{ server_name: 'a.test', redis: { enabled: true }, worker_replication_secret: 's' },
      database: { name: 'psycopg2', args: {} },
      instance_map: Object.fromEntries(['main', 'w', 'v'].map((one) => [one, { host: 'a', port: 1 }])),
      ...settings,
    });
    return [speakersOf(config), maySpeak(config)];
  };
  const worker = { worker_app: 'synapse.app.generic_worker', worker_name: 'w' };

  it('names the processes that speak, of which main and master are the one', () => {
    expect(of({})).toEqual([undefined, true]);
    expect(of(worker)).toEqual([undefined, true]);
    expect(of({ outbound_federation_restricted_to: ['w', 'v'] })).toEqual([['w', 'v'], false]);
    expect(of({ ...worker, outbound_federation_restricted_to: ['w', 'v'] })).toEqual([['w', 'v'], true]);
    expect(of({ ...worker, outbound_federation_restricted_to: ['v'] })).toEqual([['v'], false]);
    expect(of({ outbound_federation_restricted_to: ['master', 'main', 'v'] })).toEqual([['writer', 'v'], true]);
    expect(of({ ...worker, outbound_federation_restricted_to: ['main'] })).toEqual([['writer'], false]);
    expect(of({ outbound_federation_restricted_to: [] })).toEqual([[], false]);
  });
});
