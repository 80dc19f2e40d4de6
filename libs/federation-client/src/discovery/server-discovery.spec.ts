import { eventually, FakeClock, FakeNames, openTestDatabase, type TestDatabase } from '@rookery/testing';
import {
  authority,
  type ClientOptions,
  json,
  makeClient,
  PlayedServer,
  type TestClient,
} from '../federation-client.fixture.js';

/** A host at the port of HTTPS that has a document about its server. */
type Document = (host: string) => Promise<PlayedServer>;
const document =
  (content: unknown, headers: Record<string, string> = {}, status = 200): Document =>
  (host) =>
    PlayedServer.start([host], (_, response) => {
      response.writeHead(status, headers).end(typeof content === 'string' ? content : JSON.stringify(content));
    });

const srv = (name: string, port: number, priority = 10, weight = 5): Parameters<FakeNames['service']>[1] => ({
  ...{ name, port, priority, weight },
});

describe('the way to a server', () => {
  let test: TestDatabase;
  const started: PlayedServer[] = [];
  const clients: TestClient[] = [];
  beforeAll(async () => {
    test = await openTestDatabase('sqlite');
  });
  afterAll(async () => {
    for (const client of clients) await client.close();
    await test.close();
  });
  afterEach(async () => {
    for (const server of started.splice(0)) await server.stop();
  });

  const clientWith = (
    names: FakeNames,
    options: Partial<ClientOptions> = {},
  ): TestClient & { readonly clock: FakeClock } => {
    const clock = new FakeClock(Date.now());
    const client = makeClient({ database: test.database, names, clock, ...options });
    clients.push(client);
    return { ...client, clock };
  };
  const publish = async (names: FakeNames, host: string, make: Document): Promise<PlayedServer> => {
    const server = await make(host);
    started.push(server);
    names.host(`${host}:443`, server.endpoint);
    return server;
  };

  describe.each([
    ['1.2.3.4', '1.2.3.4', '1.2.3.4', ['1.2.3.4:8448']],
    ['1.2.3.4:1234', '1.2.3.4:1234', '1.2.3.4', ['1.2.3.4:1234']],
    ['[2001:db8::1]', '[2001:db8::1]', '2001:db8::1', ['2001:db8::1:8448']],
    ['[2001:db8::1]:443', '[2001:db8::1]:443', '2001:db8::1', ['2001:db8::1:443']],
    ['a.test:443', 'a.test:443', 'a.test', ['a.test:443']],
    ['A.test:8008', 'A.test:8008', 'A.test', ['A.test:8008']],
    ['a.test', 'a.test', 'a.test', ['a.test:8448']],
    ['256.256', '256.256', '256.256', ['256.256:8448']],
  ])('%s without a document', (serverName, hostHeader, tlsName, routes) => {
    it(`leads to ${routes.join()}`, async () => {
      const names = new FakeNames();
      const target = await clientWith(names).discovery.find(serverName);
      expect({ ...target, routes: target.routes.map(({ host, port }) => `${host}:${port}`) }).toEqual({
        ...{ hostHeader, tlsName, routes },
      });
      // What says all needs no look-up.
      const records = [`_matrix-fed._tcp.${serverName}`, `_matrix._tcp.${serverName}`];
      const isName = routes[0] === `${serverName}:8448` && tlsName !== '1.2.3.4';
      expect(names.asked.filter((asked) => asked !== 'a.test:443')).toEqual(isName ? records : []);
      expect(names.asked.includes('a.test:443')).toBe(serverName === 'a.test');
    });
  });

  describe.each([
    ['5.6.7.8', '5.6.7.8', '5.6.7.8', ['5.6.7.8:8448']],
    ['5.6.7.8:99', '5.6.7.8:99', '5.6.7.8', ['5.6.7.8:99']],
    ['[::5]', '[::5]', '::5', ['::5:8448']],
    ['b.test:99', 'b.test:99', 'b.test', ['b.test:99']],
    ['b.test', 'b.test', 'b.test', ['b.test:8448']],
    ['srv.test', 'srv.test', 'srv.test', ['one.test:1001', 'two.test:1002']],
    ['old.test', 'old.test', 'old.test', ['three.test:1003']],
  ])('a document that points to %s', (delegate, hostHeader, tlsName, routes) => {
    it(`leads to ${routes.join()}`, async () => {
      const names = new FakeNames()
        .service('_matrix-fed._tcp.srv.test', srv('two.test.', 1002, 20), srv('one.test', 1001, 10))
        .service('_matrix._tcp.srv.test', srv('wrong.test', 1))
        .service('_matrix._tcp.old.test', srv('three.test', 1003))
        .service('_matrix-fed._tcp.a.test', srv('wrong.test', 1));
      const server = await publish(names, 'a.test', document({ 'm.server': delegate }));
      const target = await clientWith(names).discovery.find('a.test');
      expect({ ...target, routes: target.routes.map(({ host, port }) => `${host}:${port}`) }).toEqual({
        ...{ hostHeader, tlsName, routes },
      });
      expect(server.seen).toMatchObject([
        { method: 'GET', url: '/.well-known/matrix/server', sni: 'a.test', headers: { host: 'a.test' } },
      ]);
      expect(server.seen[0]!.headers.authorization).toBeUndefined();
    });
  });

  it('goes by records of the name itself where there is no document', async () => {
    const names = new FakeNames().service('_matrix-fed._tcp.a.test', srv('c.test', 1004));
    const target = await clientWith(names).discovery.find('a.test');
    expect(target).toEqual({ routes: [{ host: 'c.test', port: 1004 }], hostHeader: 'a.test', tlsName: 'a.test' });
  });

  it('ends where a record says that there is nothing', async () => {
    const names = new FakeNames().service('_matrix-fed._tcp.a.test', srv('.', 0));
    await expect(clientWith(names).discovery.find('a.test')).rejects.toThrow('says that it is not reachable');
  });

  it('is chosen by weight among equals', async () => {
    const names = new FakeNames().service('_matrix-fed._tcp.a.test', srv('heavy', 1, 1, 90), srv('light', 2, 1, 10));
    const { discovery } = clientWith(names);
    let heavy = 0;
    for (let i = 0; i < 300; i++) {
      discovery.forget('a.test');
      if ((await discovery.find('a.test')).routes[0]!.host === 'heavy') heavy++;
    }
    expect(heavy).toBeGreaterThan(220);
    expect(heavy).toBeLessThan(300);
  });

  it.each([
    ['no JSON', document('nope')],
    ['no object', document([])],
    ['no name', document({ 'm.server': 7 })],
    ['a wrong name', document({ 'm.server': 'https://b.test/' })],
    ['port 0', document({ 'm.server': 'b.test:0' })],
    ['an endless document', document(`{"m.server":"b.test","x":"${'x'.repeat(60_000)}"}`)],
    ['another status', document({ 'm.server': 'b.test' }, {}, 404)],
    ['a redirect to http', document('', { location: 'http://b.test/' }, 302)],
    ['a redirect in circles', document('', { location: '/.well-known/matrix/server' }, 302)],
    ['a redirect to a wrong address', document('', { location: 'https://[' }, 302)],
  ])('goes on without a document that is %s', async (_, make) => {
    const names = new FakeNames();
    const server = await publish(names, 'a.test', make);
    const { discovery, wellKnown, clock } = clientWith(names);
    expect((await discovery.find('a.test')).routes).toEqual([{ host: 'a.test', port: 8448 }]);
    const requests = server.seen.length;
    expect(requests).toBeLessThanOrEqual(6);
    // Not asked again before about an hour is over.
    await clock.advance(50 * 60_000);
    await wellKnown.delegateOf('a.test');
    expect(server.seen).toHaveLength(requests);
    await clock.advance(17 * 60_000);
    await wellKnown.delegateOf('a.test');
    expect(server.seen.length).toBeGreaterThan(requests);
  });

  it('follows redirects to other hosts', async () => {
    const names = new FakeNames();
    await publish(names, 'b.test', document({ 'm.server': 'c.test:1' }));
    await publish(names, 'a.test', document('', { location: 'https://b.test/.well-known/matrix/server' }, 307));
    expect((await clientWith(names).discovery.find('a.test')).hostHeader).toBe('c.test:1');
  });

  it('does not believe a host with a wrong certificate, nor reach one at a blocked address', async () => {
    const names = new FakeNames();
    const server = await PlayedServer.start(
      ['a.test'],
      (_, response) => json(response, { 'm.server': 'evil.test:1' }),
      {
        certificate: authority.issue(['other.test']),
      },
    );
    started.push(server);
    names.host('a.test:443', server.endpoint);
    expect((await clientWith(names).discovery.find('a.test')).hostHeader).toBe('a.test');

    const good = await publish(names, 'b.test', document({ 'm.server': 'evil.test:1' }));
    const blocking = clientWith(names, { settings: { ip_range_whitelist: [] } });
    expect((await blocking.discovery.find('b.test')).hostHeader).toBe('b.test');
    expect(good.connections).toBe(0);
  });

  describe('a document', () => {
    const countAfter = async (headers: Record<string, string>, ms: number): Promise<number> => {
      const names = new FakeNames();
      const server = await publish(names, 'a.test', document({ 'm.server': 'b.test:1' }, headers));
      const { wellKnown, clock } = clientWith(names);
      await wellKnown.delegateOf('a.test');
      await clock.advance(ms);
      await wellKnown.delegateOf('A.TEST');
      return server.seen.length;
    };
    const minuteMs = 60_000;

    it('holds as long as it says, within bounds', async () => {
      expect(await countAfter({ 'cache-control': 'public, max-age=3600' }, 45 * minuteMs)).toBe(1);
      expect(await countAfter({ 'cache-control': 'max-age=3600' }, 61 * minuteMs)).toBe(2);
      expect(await countAfter({ 'cache-control': 'no-store' }, 3 * minuteMs)).toBe(1);
      expect(await countAfter({ 'cache-control': 'max-age=0' }, 6 * minuteMs)).toBe(2);
      expect(await countAfter({ 'cache-control': 'max-age=99999999' }, 38 * 60 * minuteMs)).toBe(1);
      expect(await countAfter({ 'cache-control': 'max-age=99999999' }, 49 * 60 * minuteMs)).toBe(2);
      expect(await countAfter({}, 17 * 60 * minuteMs)).toBe(1);
      expect(await countAfter({}, 27 * 60 * minuteMs)).toBe(2);
      expect(await countAfter({ expires: new Date(Date.now() + 10 * minuteMs).toUTCString() }, 11 * minuteMs)).toBe(2);
      expect(await countAfter({ expires: '0' }, 4 * minuteMs)).toBe(1);
    });

    it('is fetched again while it still holds, and kept while its host is down', async () => {
      let up = true;
      let closed = 0;
      const names = new FakeNames();
      const server = await publish(names, 'a.test', (host) =>
        PlayedServer.start([host], (_, response) => {
          response.socket?.once('close', () => closed++);
          if (up)
            json(response.setHeader('cache-control', 'max-age=3600') as typeof response, { 'm.server': 'b.test:1' });
          else json(response, {}, 503);
        }),
      );
      const { wellKnown, clock } = clientWith(names);
      expect(await wellKnown.delegateOf('a.test')).toBe('b.test:1');
      up = false;
      await clock.advance(50 * minuteMs);
      expect(await wellKnown.delegateOf('a.test')).toBe('b.test:1');
      // Whoever asks while a request is under way waits for that one: it must be over.
      await eventually(() => closed === 2);
      expect(server.seen).toHaveLength(2);
      await clock.advance(30 * minuteMs);
      expect(await wellKnown.delegateOf('a.test')).toBe('b.test:1');
      expect(server.seen).toHaveLength(3);
      // Two hours after its time it is gone.
      await clock.advance(160 * minuteMs);
      expect(await wellKnown.delegateOf('a.test')).toBeUndefined();
      up = true;
      await clock.advance(61 * minuteMs);
      expect(await wellKnown.delegateOf('a.test')).toBe('b.test:1');
    });

    it('is asked for once, however many want it', async () => {
      const names = new FakeNames();
      const server = await publish(names, 'a.test', document({ 'm.server': 'b.test' }));
      const { discovery, wellKnown } = clientWith(names);
      await Promise.all(
        Array.from({ length: 50 }, () => [discovery.find('a.test'), wellKnown.delegateOf('a.test')]).flat(),
      );
      expect(server.seen).toHaveLength(1);
    });
  });

  it('is not looked for under what is no name', async () => {
    const { discovery } = clientWith(new FakeNames());
    for (const name of ['', 'a b', 'a.test:99999', 'a.test:0', 'https://a.test', '[::1', 'a/b'])
      await expect(discovery.find(name)).rejects.toThrow('This is not the name of a server');
  });
});
