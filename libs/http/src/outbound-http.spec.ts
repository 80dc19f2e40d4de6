import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { Config } from '@rookery/platform';
import { federationGuardOf, IpGuard, OutboundError, OutboundHttp, outboundOptionsOf } from './index.js';
import { type OutboundOptions } from './outbound-http.js';

const none = new IpGuard([]);
/** The default of `ip_range_blacklist`. */
const localRanges = Config.fromObject({ server_name: 'a.test' }).get('ip_range_blacklist');
const standard = ['127.0.0.0/8', '10.0.0.0/8', '169.254.0.0/16', '::1/128', 'fc00::/7', 'fe80::/10'];

describe('IpGuard', () => {
  it('judges addresses however they are written', () => {
    const guard = new IpGuard(standard, ['10.1.0.0/16']);
    const verdicts = Object.fromEntries(
      [
        '127.0.0.1',
        '127.255.0.9',
        '10.0.0.1',
        '10.1.2.3',
        '8.8.8.8',
        '0.0.0.0',
        '::',
        '::1',
        '[::1]',
        '::ffff:127.0.0.1',
        '::ffff:7f00:1',
        '::ffff:8.8.8.8',
        '::127.0.0.1',
        '64:ff9b::7f00:1',
        '64:ff9b::127.0.0.1',
        '64:ff9b::808:808',
        'fd00::1',
        '2001:4860:4860::8888',
        'localhost',
        '',
        '2130706433',
      ].map((address) => [address, guard.allows(address)]),
    );
    expect(verdicts).toEqual({
      '127.0.0.1': false,
      '127.255.0.9': false,
      '10.0.0.1': false,
      '10.1.2.3': true,
      '8.8.8.8': true,
      '0.0.0.0': false,
      '::': false,
      '::1': false,
      '[::1]': false,
      '::ffff:127.0.0.1': false,
      '::ffff:7f00:1': false,
      '::ffff:8.8.8.8': true,
      '::127.0.0.1': false,
      '64:ff9b::7f00:1': false,
      '64:ff9b::127.0.0.1': false,
      '64:ff9b::808:808': true,
      'fd00::1': false,
      '2001:4860:4860::8888': true,
      localhost: false,
      '': false,
      '2130706433': false,
    });
  });

  it.each([
    ...['2002:7f00:1::', '2002:a9fe:a9fe::', '2002:a00:1:0:1:2:3:4', '64:ff9b:1::7f00:1', '64:ff9b:1:2:3:4:a00:1'],
    ...[
      '::ffff:0:7f00:1',
      '::ffff:0:127.0.0.1',
      '2001:0:7f00:1::',
      '2001:0:808:808::80ff:fffe',
      '2001:0:808:808:0:0:f5ff:fffe',
    ],
    ...['2a01::5efe:7f00:1', '2a01::200:5efe:10.0.0.1', '64:ff9b::7f00:1%eth0', '240.0.0.1', '255.255.255.255'],
  ])('refuses %s, behind which the own network is', (address) => {
    expect(new IpGuard([...localRanges]).allows(address)).toBe(false);
  });

  it.each([
    '2002:808:808::',
    '64:ff9b:1::808:808',
    '::ffff:0:8.8.8.8',
    '2001:0:808:808::f7f7:f7f7',
    '2a01::5efe:808:808',
  ])('allows %s, behind which the world is', (address) => {
    expect(new IpGuard([...localRanges]).allows(address)).toBe(true);
  });

  it('has a list of its own for other servers and identity servers, where the old setting is given', () => {
    const allowed = (settings: object): boolean[] => {
      const config = Config.fromObject({ server_name: 'a.test', ...settings });
      const [general, federation] = [outboundOptionsOf(config, '1').guard, federationGuardOf(config)];
      return ['127.0.0.1', '10.1.1.1', '8.8.8.8'].flatMap((ip) => [general.allows(ip), federation.allows(ip)]);
    };
    expect(allowed({})).toEqual([false, false, false, false, true, true]);
    const federation_ip_range_blacklist = ['10.0.0.0/8'];
    expect(allowed({ federation_ip_range_blacklist })).toEqual([false, true, false, false, true, true]);
    const both = { federation_ip_range_blacklist, ip_range_blacklist: ['8.0.0.0/8'] };
    expect(allowed(both)).toEqual([true, true, true, false, false, false]);
  });

  it('always refuses the unspecified addresses', () => {
    const guard = new IpGuard([], ['0.0.0.0/0', '::/0']);
    expect([guard.allows('0.0.0.0'), guard.allows('::'), guard.allows('127.0.0.1')]).toEqual([false, false, true]);
  });
});

describe('OutboundHttp', () => {
  let server: Server;
  let base: string;
  let port: number;
  let seen: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[] = [];
  const clients: OutboundHttp[] = [];
  const client = (options: Partial<OutboundOptions> = {}): OutboundHttp => {
    const made = new OutboundHttp({ guard: none, userAgent: 'Rookery/test', ...options });
    clients.push(made);
    return made;
  };
  const reasonOf = (attempt: Promise<unknown>): Promise<string> =>
    attempt.then(
      () => 'answered',
      (error: unknown) => (error instanceof OutboundError ? error.reason : `not ours: ${String(error)}`),
    );

  function answer(request: IncomingMessage, response: ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url!, 'http://x');
    if (pathname === '/json') response.setHeader('content-type', 'application/json').end('{"ok":true}');
    else if (pathname === '/status') response.writeHead(503).end('{"no":1}');
    else if (pathname === '/redirect')
      response.writeHead(Number(searchParams.get('status') ?? 302), { location: searchParams.get('to')! }).end();
    else if (pathname === '/loop') response.writeHead(302, { location: '/loop' }).end();
    else if (pathname === '/bomb')
      response.setHeader('content-encoding', 'gzip').end(gzipSync(Buffer.alloc(5_000_000)));
    else if (pathname === '/gzip') response.setHeader('content-encoding', 'gzip').end(gzipSync('{"packed":true}'));
    else if (pathname === '/corrupt') response.setHeader('content-encoding', 'gzip').end('not gzip');
    else if (pathname === '/endless') {
      const timer = setInterval(() => response.write(Buffer.alloc(10_000)), 1);
      response.on('close', () => clearInterval(timer));
    } else if (pathname === '/drip') {
      const timer = setInterval(() => response.write('x'), 20);
      response.on('close', () => clearInterval(timer));
    } else if (pathname === '/cut') {
      response.writeHead(200, { 'content-length': '100' }).write('x');
      setTimeout(() => response.socket?.destroy(), 10);
    } else if (pathname === '/silent') return;
    else response.end('text');
  }

  beforeAll(async () => {
    server = createServer((request, response) => {
      let body = '';
      request.on('data', (chunk: Buffer) => (body += chunk.toString()));
      request.on('end', () => {
        seen.push({ method: request.method!, url: request.url!, headers: request.headers, body });
        answer(request, response);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    port = (server.address() as AddressInfo).port;
    base = `http://127.0.0.1:${port}`;
  });
  beforeEach(() => (seen = []));
  afterAll(async () => {
    await Promise.all(clients.map((one) => one.close()));
    server.closeAllConnections();
    server.close();
  });

  it('JSON is sent, and the answer parsed', async () => {
    expect(
      await client().json({
        method: 'POST',
        url: `${base}/json`,
        json: { a: 1 },
        headers: { Authorization: 'Bearer x' },
      }),
    ).toEqual({ ok: true });
    expect(seen[0]).toMatchObject({
      method: 'POST',
      body: '{"a":1}',
      headers: { 'content-type': 'application/json', authorization: 'Bearer x', 'user-agent': 'Rookery/test' },
    });
    expect(await client().json({ url: `${base}/gzip` })).toEqual({ packed: true });
    await expect(client().json({ url: `${base}/status` })).rejects.toMatchObject({ reason: 'bad_status', status: 503 });
    expect(await reasonOf(client().json({ url: `${base}/text` }))).toBe('bad_json');
    expect((await client().request({ url: `${base}/status` })).status).toBe(503);
  });

  it('never reaches blocked addresses, by literal, by name or by redirect', async () => {
    const guarded = client({ guard: new IpGuard(standard) });
    for (const host of [
      '127.0.0.1',
      'localhost',
      '2130706433',
      '0x7f.1',
      '0177.0.0.1',
      '[::1]',
      '[::ffff:127.0.0.1]',
      '0.0.0.0',
      '127.1',
    ]) {
      expect([host, await reasonOf(guarded.request({ url: `http://${host}:${port}/json` }))]).toEqual([
        host,
        'blocked',
      ]);
    }
    expect(seen).toEqual([]);
    const half = client({ guard: new IpGuard(['127.0.0.2/32', '::1/128']) });
    expect(
      await reasonOf(
        half.request({ url: `${base}/redirect?to=${encodeURIComponent(`http://127.0.0.2:${port}/json`)}` }),
      ),
    ).toBe('blocked');
    expect(seen).toHaveLength(1);
  });

  it('makes http and https requests only', async () => {
    for (const url of ['ftp://example.org/', 'file:///etc/passwd', 'not a url', 'data:text/plain,x']) {
      expect([url, await reasonOf(client().request({ url }))]).toEqual([url, 'bad_url']);
    }
    expect(await reasonOf(client().request({ url: `${base}/redirect?to=file:///etc/passwd` }))).toBe('bad_url');
  });

  it('follows redirects, not without end, and keeps secrets from other origins', async () => {
    const result = await client().request({ url: `${base}/redirect?to=/json`, headers: { authorization: 'x' } });
    expect([result.status, result.url.pathname]).toEqual([200, '/json']);
    expect(seen[1]!.headers.authorization).toBe('x');
    expect(await reasonOf(client().request({ url: `${base}/loop` }))).toBe('too_many_redirects');
    expect(seen).toHaveLength(2 + 6);
    seen = [];
    await client().request({
      url: `${base}/redirect?to=http://localhost:${port}/json`,
      headers: { authorization: 'x', cookie: 'y', accept: 'z' },
    });
    expect(seen[1]!.headers).toMatchObject({ accept: 'z' });
    expect(seen[1]!.headers.authorization ?? seen[1]!.headers.cookie).toBeUndefined();
  });

  it('repeats a POST only where the redirect says so', async () => {
    const post = (status: number, maxRedirects: number): Promise<unknown> =>
      client().request({ method: 'POST', url: `${base}/redirect?status=${status}&to=/json`, body: 'b', maxRedirects });
    await post(307, 1);
    await post(302, 1);
    await post(303, 1);
    expect(seen.filter(({ url }) => url === '/json').map(({ method, body }) => method + body)).toEqual([
      'POSTb',
      'GET',
      'GET',
    ]);
    expect(await post(302, 0)).toMatchObject({ status: 302 });
  });

  it('bounds size, also behind compression', async () => {
    expect(await reasonOf(client().request({ url: `${base}/endless`, maxBytes: 100_000 }))).toBe('too_large');
    expect(await reasonOf(client().request({ url: `${base}/bomb`, maxBytes: 100_000 }))).toBe('too_large');
    expect(await reasonOf(client().request({ url: `${base}/json`, maxBytes: 5 }))).toBe('too_large');
    expect((await client().request({ url: `${base}/json`, maxBytes: 11 })).body.length).toBe(11);
  });

  it('bounds time, from connecting to the last byte', async () => {
    for (const path of ['/silent', '/drip'])
      expect([path, await reasonOf(client().request({ url: base + path, timeoutMs: 150 }))]).toEqual([path, 'timeout']);
    const giveUp = new AbortController();
    setTimeout(() => giveUp.abort(), 50);
    expect(await reasonOf(client().request({ url: `${base}/drip`, signal: giveUp.signal }))).toBe('aborted');
  });

  it('reports connections that fail or break', async () => {
    expect(await reasonOf(client().request({ url: 'http://127.0.0.1:1/' }))).toBe('connection');
    expect(await reasonOf(client().request({ url: `${base}/cut` }))).toBe('connection');
    expect(await reasonOf(client().request({ url: `${base}/corrupt` }))).toBe('connection');
    expect(await reasonOf(client().request({ url: 'http://nowhere.invalid/' }))).toBe('connection');
  });

  it('frees the connection of an answer nobody reads', async () => {
    const { body } = await client().stream({ url: `${base}/endless` });
    body.destroy();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(body.destroyed).toBe(true);
  });

  it('goes through the proxy, except where it should not', async () => {
    const proxied: string[] = [];
    const proxy = createServer((request, response) => {
      proxied.push(`${request.method} ${request.url}`);
      response.end('{"by":"proxy"}');
    });
    proxy.on('connect', (request, socket: Socket) => {
      proxied.push(`CONNECT ${request.url}`);
      const target = connect(port, '127.0.0.1', () => {
        socket.write('HTTP/1.1 200 OK\r\n\r\n');
        target.pipe(socket).pipe(target);
      });
      target.on('error', () => socket.destroy());
      socket.on('error', () => target.destroy());
    });
    await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    const address = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const through = client({
      guard: new IpGuard(['10.0.0.0/8']),
      httpProxy: address,
      noProxyHosts: ['.internal', '127.0.0.0/8', 'localhost'],
    });
    await through.request({ url: 'http://somewhere.invalid/json' });
    expect(proxied).toHaveLength(1);
    expect(await through.json({ url: `${base}/json` })).toEqual({ ok: true });
    expect(await through.json({ url: `http://localhost:${port}/json` })).toEqual({ ok: true });
    expect(proxied).toHaveLength(1);
    expect(await reasonOf(through.request({ url: 'http://10.0.0.1/' }))).toBe('blocked');
    expect(proxied).toHaveLength(1);
    proxy.closeAllConnections();
    proxy.close();
  });
});
