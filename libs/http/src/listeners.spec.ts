import { Body, Controller, Get, Module } from '@nestjs/common';
import { Config, Metrics, SilentLogger, SystemClock, SystemIds } from '@rookery/platform';
import { eventually, RecordingLogger } from '@rookery/testing';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HttpApp, httpSettingsOf } from './index.js';
import { type HttpAppOptions } from './http-app.js';
import { Listeners } from './listeners.js';
import { lines, listener, start, errorOf, ProbeModule, probes } from './http.fixture.js';

describe('listeners', () => {
  const open: HttpApp[] = [];
  const begin = async (options: Partial<HttpAppOptions>): Promise<{ app: HttpApp; base: string; port: number }> => {
    const started = await start(options);
    open.push(started.app);
    return started;
  };
  afterEach(() => Promise.all(open.splice(0).map((app) => app.close(1000))));

  it('serve what each of them names', async () => {
    const { app } = await begin({
      metrics: new Metrics('test'),
      listeners: [
        listener,
        { ...listener, resources: [{ names: ['federation', 'metrics'] }] },
        { ...listener, type: 'metrics', resources: [] },
      ],
    });
    const [one, two, three] = app.addresses.map(({ port }) => `http://127.0.0.1:${port}`);
    expect((await fetch(`${two}/_matrix/federation/v1/version`)).status).toBe(200);
    expect((await fetch(`${two}/_matrix/client/v3/maybe`)).status).toBe(404);
    expect((await fetch(`${one}/_matrix/client/v3/maybe`)).status).toBe(200);
    await fetch(`${one}/_matrix/client/v3/fail/x`);
    for (const url of [`${two}/_synapse/metrics`, `${three}/anything`]) {
      const text = await (await fetch(url)).text();
      expect(text).toContain(
        'synapse_http_server_requests_received_total{method="GET",servlet="Probe.maybe",server_name="test"} 1',
      );
      expect(text).toContain('synapse_http_server_responses_total{method="GET",code="500",server_name="test"} 1');
      expect(text).toMatch(
        /synapse_http_server_response_time_seconds_bucket\{method="GET",servlet="Probe\.fail",tag="",code="500",server_name="test",le="\+Inf"\} 1/,
      );
      expect(text).toContain('synapse_server_name_info');
    }
  });

  it('compress where they should', async () => {
    const { base } = await begin({ listeners: [{ ...listener, resources: [{ names: ['client'], compress: true }] }] });
    const big = await fetch(`${base}/_matrix/client/v3/big`, { headers: { 'accept-encoding': 'gzip' } });
    expect(big.headers.get('content-encoding')).toBe('gzip');
    expect(Number(big.headers.get('content-length'))).toBeLessThan(1000);
    expect(((await big.json()) as { text: string }).text).toHaveLength(20_000);
    expect(await errorOf(await fetch(`${base}/_matrix/client/v3/unsendable/header`))).toEqual([500, 'M_UNKNOWN']);
    const plain = await fetch(`${base}/_matrix/client/v3/big`, {
      headers: { 'accept-encoding': 'gzip;q=0, identity' },
    });
    expect(plain.headers.get('content-encoding')).toBeNull();
    const small = await fetch(`${base}/_matrix/client/v3/maybe`);
    expect([small.headers.get('content-encoding'), small.headers.get('vary')]).toEqual([null, 'Accept-Encoding']);
  });

  it.each([true, false])('send the parts of a body as one (compressed: %s)', async (compress) => {
    const { base } = await begin({ listeners: [{ ...listener, resources: [{ names: ['client'], compress }] }] });
    const url = `${base}/_matrix/client/v3/parts`;
    const answer = await fetch(url, { headers: { 'accept-encoding': 'gzip' } });
    expect(answer.headers.get('content-encoding')).toBe(compress ? 'gzip' : null);
    expect(await answer.json()).toEqual({ text: `${'x'.repeat(20_000)}ü` });
    const head = await fetch(url, { method: 'HEAD', headers: { 'accept-encoding': 'identity' } });
    expect([head.headers.get('content-length'), head.headers.get('transfer-encoding'), await head.text()]).toEqual([
      ...['20013', null, ''],
    ]);
  });

  it('compress what is long a part at a time, without putting it together', async () => {
    const { base } = await begin({ listeners: [{ ...listener, resources: [{ names: ['client'], compress: true }] }] });
    // Nothing that can be made shorter.
    probes.long = Array.from({ length: 40 }, (_, i) => randomBytes(100_000 + i));
    const concat = Buffer.concat.bind(Buffer);
    let largest = 0;
    Buffer.concat = (parts, size) => {
      largest = Math.max(largest, size ?? parts.reduce((sum, part) => sum + part.length, 0));
      return concat(parts, size);
    };
    try {
      const answer = await fetch(`${base}/_matrix/client/v3/long-parts`, { headers: { 'accept-encoding': 'gzip' } });
      // Before the client puts together what it got.
      expect(largest).toBeLessThan(1_000_000);
      const body = Buffer.from(await answer.arrayBuffer());
      expect(answer.headers.get('content-encoding')).toBe('gzip');
      expect(Number(answer.headers.get('content-length'))).toBeGreaterThan(4_000_000);
      expect(body.equals(concat(probes.long))).toBe(true);
    } finally {
      Buffer.concat = concat;
      probes.long = [];
    }
  });

  it('read little of a body that nobody has asked for', async () => {
    const asked: IncomingMessage[] = [];
    const listeners = new Listeners(undefined, new SilentLogger());
    await listeners.open(listener, (request) => void asked.push(request));
    const client = connect(listeners.addresses[0]!.port!, '127.0.0.1');
    client.write(`PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n${'x'.repeat(20_000)}`);
    await eventually(() => (asked[0]?.readableLength ?? 0) >= 16_384);
    const { socket } = asked[0]!;
    const before = socket.bytesRead;
    client.write('x'.repeat(1_000_000));
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(socket.bytesRead).toBe(before);
    client.destroy();
    listeners.destroy();
  });

  it('believe a proxy only when told to', async () => {
    const ip = async (base: string, header: string): Promise<unknown> =>
      (
        (await (await fetch(`${base}/_matrix/client/v3/query`, { headers: { 'x-forwarded-for': header } })).json()) as {
          ip: unknown;
        }
      ).ip;
    const { base: plain } = await begin({});
    expect(await ip(plain, '1.2.3.4')).toBe('127.0.0.1');
    const { base } = await begin({ listeners: [{ ...listener, xForwarded: true, requestIdHeader: 'X-Request-Id' }] });
    lines.length = 0;
    const warnings = (): unknown[] => lines.filter(({ level }) => level === 'warn');
    await fetch(`${base}/health`);
    expect(warnings()).toEqual([]);
    expect(await ip(base, '1.2.3.4')).toBe('1.2.3.4');
    expect(await ip(base, '6.6.6.6, 2001:db8::7, 10.0.0.1')).toBe('2001:db8::7');
    expect(await ip(base, '192.168.0.9, 10.0.0.1')).toBe('192.168.0.9');
    // Some proxies name the port as well.
    expect(await ip(base, '1.2.3.4:5678')).toBe('1.2.3.4');
    expect(await ip(base, '[2001:db8::7]:5678')).toBe('2001:db8::7');
    // Those that listen at a socket of IPv6 write addresses of IPv4 like this.
    expect(await ip(base, '::ffff:1.2.3.4')).toBe('1.2.3.4');
    expect(await ip(base, '[::FFFF:1.2.3.4]:5678, ::ffff:10.0.0.1')).toBe('1.2.3.4');
    expect(await ip(base, 'rubbish')).toBe('127.0.0.1');
    // Of each that came without it.
    expect(warnings()).toHaveLength(8);
    const named = await fetch(`${base}/_matrix/client/v3/query`, {
      headers: { 'x-request-id': 'abc-1', 'x-forwarded-proto': 'https' },
    });
    expect(((await named.json()) as { id: string }).id).toBe('abc-1');
    const unnamed = await fetch(`${base}/_matrix/client/v3/query`, { headers: { 'x-request-id': 'a b' } });
    expect(((await unnamed.json()) as { id: string }).id).not.toBe('a b');
  });

  it('are those of the settings', () => {
    expect(httpSettingsOf(Config.fromObject({ server_name: 'x.org' }))).toMatchObject({
      serverName: 'x.org',
      listeners: [{ port: 8008, bindAddresses: ['127.0.0.1'], resources: [{ names: ['client', 'federation'] }] }],
      prefixes: { protocol: '_matrix', service: '_synapse' },
    });
    const { listeners } = httpSettingsOf(
      Config.fromObject({
        listeners: [
          { port: 8448, type: 'http', tls: true, resources: [{ names: ['federation'] }] },
          {
            path: '/run/x.sock',
            type: 'http',
            resources: [{ names: ['client'], compress: true }],
            request_id_header: 'X-Id',
          },
          { port: 9000, type: 'manhole' },
          { port: 9001, type: 'metrics', bind_addresses: ['::1'] },
        ],
        tls_certificate_path: '/c',
        tls_private_key_path: '/k',
        no_tls: true,
      }),
    );
    expect(listeners.map(({ port, path, type, xForwarded }) => [port ?? path, type, xForwarded])).toEqual([
      ['/run/x.sock', 'http', true],
      [9001, 'metrics', false],
    ]);
  });

  it('of a worker are its own, none where it has none: the usual one is that of the main process', () => {
    const worker = {
      ...{ worker_app: 'synapse.app.generic_worker', worker_name: 'w', redis: { enabled: true } },
      ...{ instance_map: { main: { host: 'localhost', port: 9093 } }, database: { name: 'psycopg2' } },
    };
    const of = (more: object) =>
      httpSettingsOf(Config.fromObject({ ...worker, ...more })).listeners.map(({ port }) => port);
    expect(of({})).toEqual([]);
    expect(of({ listeners: [{ port: 8008, type: 'http', resources: [] }] })).toEqual([]);
    expect(of({ worker_listeners: [{ port: 8083, type: 'http', resources: [] }] })).toEqual([8083]);
  });

  it('has one for the port of metrics beside the usual one', () => {
    const { listeners } = httpSettingsOf(Config.fromObject({ metrics_port: 9000 }));
    expect(listeners.map(({ port, type }) => [port, type])).toEqual([
      [8008, 'http'],
      [9000, 'metrics'],
    ]);
  });

  it('warn of each request behind a proxy that does not say how it came', async () => {
    const logger = new RecordingLogger();
    const { app } = await begin({ logger, listeners: [{ ...listener, xForwarded: true }, listener] });
    const [proxied, open] = app.addresses.map(({ port }) => `http://127.0.0.1:${port}`);
    const warnings = () => logger.messages('warn').filter((one) => one.includes('X-Forwarded-Proto')).length;
    const ask = (base: string | undefined, path: string, headers: Record<string, string>) =>
      fetch(`${base}${path}`, { headers });
    const path = '/_matrix/client/v3/maybe';
    await ask(proxied, path, { 'x-forwarded-for': '192.0.2.7' });
    await ask(proxied, path, {});
    expect(warnings()).toBe(2);
    await ask(proxied, path, { 'x-forwarded-proto': 'https' });
    await ask(proxied, '/health', {});
    await ask(open, path, {});
    expect(warnings()).toBe(2);
  });

  it('take other prefixes', async () => {
    const { base } = await begin({ prefixes: { protocol: '_proto', service: '_svc' } });
    expect((await fetch(`${base}/_proto/client/v3/maybe`)).status).toBe(200);
    expect((await fetch(`${base}/_svc/client/form`, { method: 'POST', body: 'a=1' })).status).toBe(200);
    expect((await fetch(`${base}/_matrix/client/v3/maybe`)).status).toBe(404);
    expect((await fetch(`${base}/_synapse/client/form`, { method: 'POST', body: 'a=1' })).status).toBe(404);
  });

  it('speak on Unix sockets, and clear away what a crash left', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'rookery-http-'));
    const path = join(folder, 'main.sock');
    const settings = { type: 'http', path, mode: 0o600, resources: [{ names: ['client'] }] } as const;
    const ask = (): Promise<string> =>
      new Promise((resolve, reject) => {
        httpRequest({ socketPath: path, path: '/health' }, (response) =>
          response.on('data', (chunk: Buffer) => resolve(chunk.toString())),
        )
          .on('error', reject)
          .end();
      });
    const { app } = await begin({ listeners: [settings] });
    expect(await ask()).toBe('OK');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    await expect(begin({ listeners: [settings] })).rejects.toThrow(`Cannot listen on ${path}: it is in use`);
    await app.close();
    const crashing = spawn(
      process.execPath,
      [
        '-e',
        `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`,
      ],
      {
        env: {},
      },
    );
    await once(crashing, 'exit');
    expect(statSync(path).isSocket()).toBe(true);
    await begin({ listeners: [settings] });
    expect(await ask()).toBe('OK');
    rmSync(folder, { recursive: true });
  });

  it('say in one line why they cannot start, and leave nothing open', async () => {
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    const { port } = taken.address() as AddressInfo;
    const app = await HttpApp.create(ProbeModule, {
      serverName: 'test',
      listeners: [listener, { ...listener, port }],
      clock: new SystemClock(),
      ids: new SystemIds(),
      logger: new SilentLogger(),
    });
    await expect(app.listen()).rejects.toThrow(
      `Cannot listen on 127.0.0.1:${port}: it is in use by another program. Stop that one, or give the listener another port`,
    );
    await expect(fetch(`http://127.0.0.1:${app.addresses[0]!.port}/health`)).rejects.toThrow();
    taken.close();
    await expect(begin({ listeners: [{ ...listener, tls: true }] })).rejects.toThrow('tls_certificate_path');
  });

  it('refuse to be built with a route that says nothing of access', async () => {
    @Controller()
    class CarelessController {
      @Get('/careless')
      careless(@Body() body: unknown): unknown {
        return body;
      }
    }
    @Module({ controllers: [CarelessController] })
    class CarelessModule {}
    const options = {
      serverName: 't',
      listeners: [],
      clock: new SystemClock(),
      ids: new SystemIds(),
      logger: new SilentLogger(),
    };
    await expect(HttpApp.create(CarelessModule, options)).rejects.toThrow('CarelessController.careless');
  });

  it('drain: waiting requests end at once, running ones finish, new ones are refused', async () => {
    const { app, base } = await begin({});
    let began = new Promise<void>((resolve) => (probes.waiting = resolve));
    const long = fetch(`${base}/_matrix/client/v3/wait`);
    await began;
    began = new Promise<void>((resolve) => (probes.waiting = resolve));
    const slow = fetch(`${base}/_matrix/client/v3/slow`);
    await began;
    const drained = app.drain(5000);
    expect(((await (await long).json()) as { waitedMs: number }).waitedMs).toBeLessThan(8_000);
    const last = await slow;
    expect([await last.json(), last.headers.get('connection')]).toEqual([{ done: true }, 'close']);
    expect(await drained).toBe(true);
    await expect(fetch(`${base}/health`)).rejects.toThrow();
  });

  it('drain: what takes too long is cut', async () => {
    const { app, base } = await begin({});
    const began = new Promise<void>((resolve) => (probes.waiting = resolve));
    const slow = fetch(`${base}/_matrix/client/v3/slow`).catch(() => 'cut');
    await began;
    expect(await app.drain(50)).toBe(false);
    expect(await slow).toBe('cut');
  });
});
