import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { SilentLogger } from '@rookery/platform';
import { eventually } from '@rookery/testing';
import { auth, errorOf, FakeClock, probes, raw, start } from '../http.fixture.js';
import type { HttpApp } from '../index.js';
import { AccessGuard } from '../access-guard.js';
import { FellowConnections } from './fellow-connection.js';
import { FellowListener } from './fellow-listener.js';

/** No route of the fixture may be answered by any process, so each request goes to the one that writes. */
describe.each(['in clear', 'encrypted'])('A process that passes requests on, %s', (how) => {
  const secret = 'known to both';
  let writer: HttpApp;
  let other: HttpApp;
  let base: string;
  let port: number;
  let isThere = true;
  /** How often it was asked where the one that writes is. */
  let asked = 0;

  beforeAll(async () => {
    const listen = { host: '127.0.0.1', port: 0, tls: how === 'encrypted' };
    ({ app: writer } = await start({ forwarding: { secret, listen } }));
    const address = async () => {
      asked++;
      return isThere ? writer.fellowsAddress : undefined;
    };
    ({ app: other, base, port } = await start({ forwarding: { secret, writer: address } }));
  });
  afterAll(async () => {
    await other.close();
    await writer.close();
  });
  const path = (rest: string): string => `${base}/_matrix/client/v3/${rest}`;
  const json = async (response: Response): Promise<unknown> => response.json();

  it('gives the answer of the other as it is', async () => {
    const [here, there] = await Promise.all(
      [base, `http://127.0.0.1:${writer.addresses[0]!.port}`].map((each) =>
        fetch(`${each}/_matrix/client/v3/account/whoami`, { headers: auth }),
      ),
    );
    expect(await here!.json()).toEqual({ user_id: '@alice:test' });
    const names = (response: Response): string[] => [...response.headers.keys()].toSorted();
    expect(names(here!)).toEqual(names(there!));
    expect(await errorOf(await fetch(path('account/whoami')))).toEqual([401, 'M_MISSING_TOKEN']);
    const page = await fetch(path('page'));
    expect(page.headers.getSetCookie()).toEqual(['a=1', 'b=2']);
    const head = await fetch(path('account/whoami'), { method: 'HEAD', headers: auth });
    expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([200, '25', '']);
    expect(await json(await fetch(path('query?a=%C3%A9&limit=7')))).toMatchObject({ query: { a: 'é' }, limit: 7 });
  });

  it('passes bodies on, whatever their size and however they come', async () => {
    const put = (rest: string, body: string | Buffer, headers: Record<string, string> = {}): Promise<unknown> =>
      fetch(path(rest), { method: 'PUT', headers: { ...auth, ...headers }, body }).then(json);
    expect(await put('open', '{"a":1}')).toMatchObject({ keys: ['a'] });
    expect(await put('open', '{"ü":1}')).toMatchObject({ keys: ['ü'] });
    expect(await put('open', gzipSync('{"packed":1}'), { 'content-encoding': 'gzip' })).toMatchObject({
      keys: ['packed'],
    });
    for (const size of [1, 16_384, 16_385, 5_000_000])
      expect(await put('upload', Buffer.alloc(size, 'x'))).toEqual({ size });
    const chunked = await new Promise<string>((resolve, reject) => {
      const sent = httpRequest({ port, method: 'PUT', path: '/_matrix/client/v3/upload', headers: auth }, (answer) => {
        let text = '';
        answer.on('data', (bytes: Buffer) => (text += bytes.toString()));
        answer.on('end', () => resolve(text));
      });
      sent.once('error', reject);
      sent.write('some ');
      // Another piece when the first is there.
      setImmediate(() => sent.end('more'));
    });
    expect(JSON.parse(chunked)).toEqual({ size: 9 });
    expect(await json(await fetch(path('ignored'), { method: 'POST' }))).toEqual({});
    expect(await json(await fetch(path('optional'), { method: 'POST', body: '' }))).toEqual({});
    expect(await errorOf(await fetch(path('optional'), { method: 'POST', body: 'x'.repeat(1001) }))).toEqual([
      413,
      'M_TOO_LARGE',
    ]);
  });

  it('passes answers back, whatever their size and however they come', async () => {
    const { text } = (await (await fetch(path('large/3000000'))).json()) as { text: string };
    expect(text.length).toBe(3_000_000);
    expect(await (await fetch(path('stream'))).text()).toBe('onetwo');
    expect((await (await fetch(path('parts'))).text()).length).toBe(20_012);
    const sizes = Array.from({ length: 50 }, (_, n) => n);
    const many = await Promise.all(sizes.map((size) => fetch(path(`large/${size}`)).then(json)));
    expect(many).toEqual(sizes.map((size) => ({ text: 'x'.repeat(size) })));
    // Several by one connection, one after the other.
    const twice = 'PUT /_matrix/client/v3/open HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{"a":1}'.repeat(2);
    const answers = await raw(port, twice, 30_000, /"keys"[^]*"keys"[^}]*\}$/);
    expect(answers.match(/HTTP\/1\.1 200/g)?.length).toBe(2);
  });

  it('says of a request what it was: who sent it, its id, and each of several tokens', async () => {
    const answer = await fetch(path('query?a=b'), {
      headers: { 'x-forwarded-for': '192.0.2.7', 'x-request-id': 'own' },
    });
    expect(await answer.json()).toMatchObject({ ip: '127.0.0.1', id: expect.stringMatching(/^[\w]+-[\w]+$/) });
    const twice = `GET /_matrix/client/v3/account/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n`;
    const [here, there] = [
      await raw(port, twice, 30_000, /\}$/),
      await raw(writer.addresses[0]!.port!, twice, 30_000, /\}$/),
    ];
    const whatFor = (text: string): string => text.slice(0, 13) + text.slice(text.indexOf('{'));
    expect(whatFor(here)).toBe(whatFor(there));
  });

  it('does not wait for a body that the other does not want', async () => {
    const head = 'PUT /_matrix/client/v3/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{"a"';
    expect(await raw(port, head, 30_000, /M_MISSING_TOKEN/)).toMatch(/^HTTP\/1\.1 401 /);
  });

  it('tells the other when nobody waits any more', async () => {
    probes.streamed = undefined;
    probes.waitedMs = undefined;
    const waiting = new Promise<void>((resolve) => (probes.waiting = resolve));
    const socket = connect(port, '127.0.0.1', () =>
      socket.write('GET /_matrix/client/v3/wait HTTP/1.1\r\nHost: x\r\n\r\n'),
    );
    await waiting;
    socket.destroy();
    await eventually(() => probes.waitedMs !== undefined);
  });

  it('waits for the one that writes, and asks the next one where the last is given up', async () => {
    isThere = false;
    const before = asked;
    const late = fetch(path('open'), { method: 'PUT', body: '{"late":1}' });
    await eventually(() => asked > before + 1);
    isThere = true;
    expect(await json(await late)).toMatchObject({ keys: ['late'] });
    // What waits there is given up, and read again by the next.
    const begun = new Promise<void>((resolve) => (probes.waiting = resolve));
    const slow = fetch(path('slow'));
    await begun;
    const again = new Promise<void>((resolve) => (probes.waiting = resolve));
    other.leaveWriter();
    await again;
    expect(await json(await slow)).toEqual({ done: true });
  });
});

it('answers those who wait for the one that writes when it stops itself, and is not held up by them', async () => {
  let asked = 0;
  const nowhere = async (): Promise<undefined> => void asked++;
  const { app, base } = await start({ forwarding: { secret: 'known to both', writer: nowhere } });
  const waiting = fetch(`${base}/_matrix/client/v3/account/whoami`, { headers: auth });
  await eventually(() => asked > 0);
  const began = performance.now();
  expect(await app.drain(60_000)).toBe(true);
  // It would have waited for fifteen seconds.
  expect(performance.now() - began).toBeLessThan(10_000);
  const answer = await waiting;
  expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '2']);
  await app.close();
});

it('has read a short body that came with its head before it passes that on, and gives a short answer in one piece', async () => {
  const writer = await FellowListener.open(
    { host: '127.0.0.1', port: 0 },
    'known to both',
    undefined,
    (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 8 }).end('{"é":1}');
    },
    new SilentLogger(),
  );
  const address = async () => writer.address;
  const { app, port: own } = await start({ forwarding: { secret: 'known to both', writer: address } });
  const asked = jest.spyOn(FellowConnections.prototype, 'ask');
  const judged = jest.spyOn(AccessGuard.prototype, 'canActivate');
  try {
    const put = 'PUT /_matrix/client/v3/open HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{"a":1}';
    // By one connection, too: the second is there before the first is answered.
    for (const [text, times] of [
      [put, 1],
      [put.repeat(2), 2],
    ] as const) {
      asked.mockClear();
      const answers = await raw(own, text, 30_000, new RegExp(`(?:\r\n\r\n\\{"é":1\\}[^]*){${times}}`));
      expect(answers.match(/content-length: 8/g)?.length).toBe(times);
      expect(asked.mock.calls.map(([, { body }]) => Buffer.isBuffer(body) && body.toString())).toEqual(
        Array<string>(times).fill('{"a":1}'),
      );
    }
    // From the second one on they are given away before that.
    expect(judged).toHaveBeenCalledTimes(1);
  } finally {
    asked.mockRestore();
    judged.mockRestore();
    await app.close();
    writer.destroy();
  }
});

it('cuts off who does not read what the other process has given away, and waits for each reader once', async () => {
  let [written, isGiven] = [0, false];
  const writer = await FellowListener.open(
    { host: '127.0.0.1', port: 0 },
    'known to both',
    undefined,
    (_request, response) => {
      const { socket } = response as unknown as { readonly socket: { readonly bytesWritten: number } };
      const write = (size: number): void => {
        written += size;
        response.write(Buffer.alloc(size));
      };
      let [singles, waited] = [50, 0];
      const goOn = (): void => {
        if (singles === 50 && written - socket.bytesWritten < 150_000) {
          waited = 0;
          write(16_384);
        } else if (waited < 200) waited++;
        // The system holds no more for the client, and the other process has room left.
        else if (singles-- > 0) write(1);
        else {
          isGiven = true;
          return void response.end();
        }
        setTimeout(goOn, 1);
      };
      response.writeHead(200);
      goOn();
    },
    new SilentLogger(),
  );
  const clock = new FakeClock();
  const address = async () => writer.address;
  const { app, port: own } = await start({ clock, forwarding: { secret: 'known to both', writer: address } });
  const warnings: Error[] = [];
  const warned = (warning: Error): void => void warnings.push(warning);
  process.on('warning', warned);
  const client = connect(own, '127.0.0.1');
  try {
    client.on('error', () => undefined).pause();
    client.write('GET /_matrix/client/v3/query HTTP/1.1\r\nHost: x\r\n\r\n');
    await eventually(() => isGiven);
    for (let n = 0; n < 14; n++) await clock.advance(5_000);
    let [read, isCut] = [0, false];
    client
      .on('data', (bytes: Buffer) => (read += bytes.length))
      .on('close', () => (isCut = true))
      .resume();
    await eventually(() => isCut);
    expect(read).toBeLessThan(written);
    expect(warnings).toEqual([]);
  } finally {
    process.off('warning', warned);
    client.destroy();
    await app.close(0);
    writer.destroy();
  }
});
