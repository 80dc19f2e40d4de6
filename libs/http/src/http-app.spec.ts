import { Body, Controller, Delete, Get, Module, Param, Post, Put } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Config, Metrics, type Requester, SilentLogger, SystemClock, SystemIds, type Timer } from '@rookery/platform';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import {
  Access,
  type AccessOptions,
  client,
  FormBody,
  HttpApp,
  type HttpAppOptions,
  HttpReply,
  httpSettingsOf,
  Inbound,
  type InboundRequest,
  JsonBody,
  type PageContent,
  type PageOptions,
  queryInteger,
  queryString,
  RequestAuthenticator,
  stable,
  Who,
} from './index.js';

class TestAuthenticator extends RequestAuthenticator {
  async authenticate(request: InboundRequest, access: AccessOptions): Promise<Requester | undefined> {
    const token =
      /^Bearer (\S+)$/.exec(String(request.headers['authorization']))?.[1] ?? queryString(request, 'access_token');
    if (token === undefined && access.auth === 'optional') return undefined;
    if (token === undefined) throw new MatrixError(401, 'M_MISSING_TOKEN', 'Missing access token');
    if (token !== 'good') throw new MatrixError(401, 'M_UNKNOWN_TOKEN', 'Unknown access token', { soft_logout: false });
    return {
      userId: '@alice:test',
      isGuest: false,
      isAdmin: false,
      shadowBanned: false,
      suspended: false,
      locked: false,
    };
  }
}

let waiting: (() => void) | undefined;
/** How long the last request to `/wait` waited. */
let waitedMs: number | undefined;

@Controller()
class ProbeController {
  @Get(stable('/account/whoami'))
  @Access({ auth: 'required' })
  whoami(@Who() requester: Requester): object {
    return { user_id: requester.userId };
  }

  @Get(stable('/maybe'))
  @Access({ auth: 'optional' })
  maybe(@Who() requester: Requester | undefined): object {
    return { user_id: requester?.userId ?? null };
  }

  @Post(client(['v3'], '/things/:thing'))
  @Access({ auth: 'required' })
  make(
    @Param('thing') thing: string,
    @JsonBody({
      type: 'object',
      required: ['name'],
      properties: {
        name: { type: 'string', maxLength: 10 },
        kind: { enum: ['a', 'b'] },
        list: { type: 'array', items: { type: 'object', required: ['id'], properties: { id: { type: 'integer' } } } },
      },
    })
    body: { name: string },
  ): object {
    return { thing, name: body.name };
  }

  @Put(client(['v3'], '/open'))
  @Access({ auth: 'none' })
  open(@JsonBody() body: object): object {
    return {
      keys: Object.keys(body),
      prototype: Object.getPrototypeOf(body) === Object.prototype,
      polluted: (body as { polluted?: unknown }).polluted ?? null,
    };
  }

  @Post(client(['v3'], '/optional'))
  @Access({ auth: 'none', bodyLimitBytes: 1000 })
  optional(@JsonBody(undefined, { optional: true }) body: object): object {
    return body;
  }

  @Post(client(['v3'], '/ignored'))
  @Access({ auth: 'none' })
  ignored(): undefined {
    return undefined;
  }

  @Post('/_synapse/client/form')
  @Access({ auth: 'none' })
  form(@FormBody() form: Record<string, string[]>): object {
    return form;
  }

  @Get(client(['v3'], '/fail/:how'))
  @Access({ auth: 'none' })
  fail(@Param('how') how: string): object {
    if (how === 'limit') throw MatrixError.limitExceeded(1234.5);
    if (how === 'foreign')
      throw Object.assign(new Error('from a module'), {
        $$type: 'MatrixError',
        status: 418,
        errcode: 'ORG.TEA',
        extra: { pot: 1 },
      });
    throw new Error('secret detail');
  }

  @Get(client(['v3'], '/page'))
  @Access({ auth: 'none' })
  page(): HttpReply {
    return HttpReply.html(200, '<p>hello</p>', { 'set-cookie': ['a=1', 'b=2'] });
  }

  @Get(client(['v3'], '/moved'))
  @Access({ auth: 'none' })
  moved(): HttpReply {
    return HttpReply.redirect('https://example.org/');
  }

  @Get(client(['v3'], '/unsendable/:how'))
  @Access({ auth: 'none' })
  unsendable(@Param('how') how: string): unknown {
    if (how === 'cycle') {
      const cycle: Record<string, unknown> = {};
      return Object.assign(cycle, { cycle });
    }
    if (how === 'redirect') return HttpReply.redirect('https://example.org/é\r\nset-cookie: a=b \ud800');
    return new HttpReply(200, { 'x-a': 'b\r\nset-cookie: a=b' }, 'x'.repeat(5000));
  }

  @Get(client(['v3'], '/stream'))
  @Access({ auth: 'none' })
  stream(): HttpReply {
    return new HttpReply(
      200,
      { 'content-type': 'application/octet-stream' },
      Readable.from([Buffer.from('one'), Buffer.from('two')]),
    );
  }

  @Get(client(['v3'], '/big'))
  @Access({ auth: 'none' })
  big(): object {
    return { text: 'x'.repeat(20_000) };
  }

  @Get(client(['v3'], '/query'))
  @Access({ auth: 'none' })
  query(@Inbound() request: InboundRequest): object {
    return {
      query: request.query,
      limit: queryInteger(request, 'limit', { min: 1, max: 100, clamp: true }) ?? null,
      ip: request.ip,
      id: request.requestId,
    };
  }

  @Get(client(['v3'], '/wait'))
  @Access({ auth: 'none' })
  async wait(@Inbound() request: InboundRequest): Promise<object> {
    waiting?.();
    const started = Date.now();
    await new Promise<void>((resolve) => {
      if (request.signal.aborted) resolve();
      request.signal.addEventListener('abort', () => resolve());
      setTimeout(resolve, 20_000).unref();
    });
    waitedMs = Date.now() - started;
    return { waitedMs };
  }

  @Get(client(['v3'], '/slow'))
  @Access({ auth: 'none' })
  async slow(): Promise<object> {
    waiting?.();
    await new Promise((resolve) => setTimeout(resolve, 300));
    return { done: true };
  }

  @Put(client(['v3'], '/upload'))
  @Access({ auth: 'required', streamBody: true })
  async upload(@Inbound() request: InboundRequest): Promise<object> {
    let size = 0;
    for await (const chunk of request.stream) size += (chunk as Buffer).length;
    return { size };
  }

  @Get(client(['v3'], '/rooms/:roomId/state/:type'))
  @Access({ auth: 'none' })
  stateOf(@Param('roomId') roomId: string, @Param('type') type: string): object {
    return { roomId, type };
  }

  @Delete(client(['v3'], '/rooms/:id/state/:type'))
  @Access({ auth: 'none' })
  unstate(): object {
    return {};
  }

  @Get('/_matrix/federation/v1/version')
  @Access({ auth: 'none' })
  version(): object {
    return { server: {} };
  }
}

@Module({ controllers: [ProbeController], providers: [{ provide: RequestAuthenticator, useClass: TestAuthenticator }] })
class ProbeModule {}

/** Stands still until told. */
class FakeClock extends SystemClock {
  #ms = 0;
  readonly #ticks: (() => void)[] = [];
  override monotonicMs(): number {
    return this.#ms;
  }
  override every(_periodMs: number, fn: () => void): Timer {
    this.#ticks.push(fn);
    return { cancel: () => undefined };
  }
  async advance(byMs: number): Promise<void> {
    this.#ms += byMs;
    for (const tick of this.#ticks) tick();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const lines: { level: string; message: string; fields: Record<string, unknown> }[] = [];
class RecordingLogger extends SilentLogger {
  override isEnabled(): boolean {
    return true;
  }
  override info(message?: string, fields?: object): void {
    lines.push({ level: 'info', message: message!, fields: { ...fields } });
  }
  override warn(message?: string, fields?: object): void {
    lines.push({ level: 'warn', message: message!, fields: { ...fields } });
  }
  override error(message?: string, fields?: object): void {
    lines.push({ level: 'error', message: message!, fields: { ...fields } });
  }
}

const listener = { port: 0, bindAddresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] } as const;

async function start(options: Partial<HttpAppOptions> = {}): Promise<{ app: HttpApp; base: string; port: number }> {
  const app = await HttpApp.create(ProbeModule, {
    serverName: 'test',
    listeners: [listener],
    clock: new SystemClock(),
    ids: new SystemIds(),
    logger: new RecordingLogger(),
    ...options,
  });
  const [address] = await app.listen();
  return { app, port: address!.port!, base: `${address!.tls ? 'https' : 'http'}://127.0.0.1:${address!.port}` };
}

/** Sends bytes as they are; resolves with everything the server says until it closes, or `untilMs` is over. */
function raw(port: number, text: string | Buffer, untilMs = 1000): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    const end = (): void => {
      socket.destroy();
      resolve(answer);
    };
    const timer = setTimeout(end, untilMs);
    socket.on('data', (chunk) => (answer += chunk.toString()));
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(timer);
      end();
    });
  });
}

const auth = { authorization: 'Bearer good' };
const errorOf = async (response: Response): Promise<[number, unknown]> => [
  response.status,
  ((await response.json()) as { errcode: unknown }).errcode,
];

describe('HTTP front', () => {
  let app: HttpApp;
  let base: string;
  let port: number;
  beforeAll(async () => {
    ({ app, base, port } = await start());
  });
  afterAll(() => app.close());
  const get = (path: string, init?: RequestInit): Promise<Response> => fetch(base + path, init);
  const send = (
    method: string,
    path: string,
    body: string | Buffer | undefined,
    headers: Record<string, string> = auth,
  ): Promise<Response> => fetch(base + path, { method, headers, ...(body === undefined ? {} : { body }) });

  it('answers plain objects with 200 and JSON, POST included', async () => {
    const response = await send('POST', '/_matrix/client/v3/things/x%2Fy', '{"name":"n"}');
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('application/json');
    expect(await response.json()).toEqual({ thing: 'x/y', name: 'n' });
    expect(await (await send('POST', '/_matrix/client/v3/ignored', 'not json')).json()).toEqual({});
  });

  it('serves every version of a path, with or without a slash at the end, and HEAD', async () => {
    for (const path of [
      '/_matrix/client/r0/account/whoami',
      '/_matrix/client/v3/account/whoami',
      '/_matrix/client/v3/account/whoami/',
    ]) {
      expect(await (await get(path, { headers: auth })).json()).toEqual({ user_id: '@alice:test' });
    }
    const head = await get('/_matrix/client/v3/account/whoami', { method: 'HEAD', headers: auth });
    expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([200, '25', '']);
  });

  it('takes the token from the header or the query', async () => {
    expect((await get('/_matrix/client/v3/account/whoami?access_token=good')).status).toBe(200);
    expect(await errorOf(await get('/_matrix/client/v3/account/whoami'))).toEqual([401, 'M_MISSING_TOKEN']);
    const wrong = await get('/_matrix/client/v3/account/whoami', { headers: { authorization: 'Bearer bad' } });
    expect([wrong.status, await wrong.json()]).toEqual([
      401,
      { errcode: 'M_UNKNOWN_TOKEN', error: 'Unknown access token', soft_logout: false },
    ]);
    expect(await errorOf(await get('/_matrix/client/v3/account/whoami?access_token=a&access_token=b'))).toEqual([
      400,
      'M_INVALID_PARAM',
    ]);
    expect(await (await get('/_matrix/client/v3/maybe')).json()).toEqual({ user_id: null });
    expect(await (await get('/_matrix/client/v3/maybe', { headers: auth })).json()).toEqual({ user_id: '@alice:test' });
  });

  it('tells unknown paths from unknown methods', async () => {
    expect(await errorOf(await get('/_matrix/client/v3/nothing'))).toEqual([404, 'M_UNRECOGNIZED']);
    expect(await errorOf(await get('/nowhere'))).toEqual([404, 'M_UNRECOGNIZED']);
    const wrong = await send('PATCH', '/_matrix/client/v3/rooms/!a%3Ab/state/t', '{}');
    expect(wrong.headers.get('allow')).toBe('GET, HEAD, DELETE, OPTIONS');
    expect(await errorOf(wrong)).toEqual([405, 'M_UNRECOGNIZED']);
    expect(await errorOf(await send('DELETE', '/_matrix/client/v3/account/whoami', undefined))).toEqual([
      405,
      'M_UNRECOGNIZED',
    ]);
  });

  it('checks bodies, naming what is wrong', async () => {
    const post = (body: string): Promise<Response> => send('POST', '/_matrix/client/v3/things/x', body);
    expect(await errorOf(await post('{'))).toEqual([400, 'M_NOT_JSON']);
    expect(await errorOf(await send('POST', '/_matrix/client/v3/things/x', undefined))).toEqual([400, 'M_NOT_JSON']);
    expect(await errorOf(await post('[]'))).toEqual([400, 'M_BAD_JSON']);
    expect(await errorOf(await post('null'))).toEqual([400, 'M_BAD_JSON']);
    expect(await (await post('{}')).json()).toEqual({ errcode: 'M_MISSING_PARAM', error: "Missing parameter 'name'" });
    expect(await (await post('{"name":1}')).json()).toEqual({ errcode: 'M_BAD_JSON', error: "'name' must be string" });
    expect(await (await post('{"name":"n","list":[{"id":1},{}]}')).json()).toEqual({
      errcode: 'M_BAD_JSON',
      error: "Missing key 'list.1.id'",
    });
    expect(await errorOf(await post('{"name":"n","kind":"c"}'))).toEqual([400, 'M_INVALID_PARAM']);
    expect(await errorOf(await post('{"name":"far too long"}'))).toEqual([400, 'M_INVALID_PARAM']);
    const latin = await fetch(`${base}/_matrix/client/v3/things/x`, {
      method: 'POST',
      headers: auth,
      body: Buffer.from('{"name":"\xe9"}', 'latin1'),
    });
    expect(await errorOf(latin)).toEqual([400, 'M_NOT_JSON']);
  });

  it('does not care about the content type of JSON', async () => {
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'nonsense',
      'application/json;',
      'multipart/form-data',
    ]) {
      const response = await send('PUT', '/_matrix/client/v3/open', '{"a":1}', { 'content-type': type });
      expect([type, await response.json()]).toEqual([type, { keys: ['a'], prototype: true, polluted: null }]);
    }
    const bare = await raw(
      port,
      'PUT /_matrix/client/v3/open HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 7\r\n\r\n{"a":1}',
    );
    expect(bare).toContain('"keys":["a"]');
  });

  it('survives hostile JSON', async () => {
    const put = (body: string): Promise<Response> => send('PUT', '/_matrix/client/v3/open', body);
    expect(await (await put('{"__proto__":{"polluted":1},"a":1,"a":2}')).json()).toEqual({
      keys: ['__proto__', 'a'],
      prototype: true,
      polluted: null,
    });
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    expect((await put(`${'{"a":'.repeat(127)}1${'}'.repeat(127)}`)).status).toBe(200);
    expect(
      (await put(`{"a":${'['.repeat(126)}1${']'.repeat(126)},"b":"${'['.repeat(500)}\\"${'{'.repeat(500)}"}`)).status,
    ).toBe(200);
    expect(await errorOf(await put(`${'{"a":'.repeat(129)}1${'}'.repeat(129)}`))).toEqual([400, 'M_BAD_JSON']);
    expect(await errorOf(await put(`{"a":${'['.repeat(5_000_000)}`))).toEqual([400, 'M_BAD_JSON']);
  });

  it('bounds bodies', async () => {
    const post = (body: string): Promise<Response> => send('POST', '/_matrix/client/v3/optional', body);
    expect(await (await send('POST', '/_matrix/client/v3/optional', undefined)).json()).toEqual({});
    expect((await post(JSON.stringify({ a: 'x'.repeat(992) }))).status).toBe(200);
    expect(await errorOf(await post(JSON.stringify({ a: 'x'.repeat(993) })))).toEqual([413, 'M_TOO_LARGE']);
    // Without a length, and far more than the limit: the client still reads the answer.
    const stream = Readable.toWeb(
      Readable.from(Array.from({ length: 50 }, () => Buffer.alloc(100_000, 0x20))),
    ) as ReadableStream;
    const chunked = await fetch(`${base}/_matrix/client/v3/optional`, {
      method: 'POST',
      body: stream,
      duplex: 'half',
    } as RequestInit);
    expect(await errorOf(chunked)).toEqual([413, 'M_TOO_LARGE']);
    expect(await errorOf(await send('PUT', '/_matrix/client/v3/open', ' '.repeat(13_107_201)))).toEqual([
      413,
      'M_TOO_LARGE',
    ]);
    expect(await errorOf(await send('PUT', '/_matrix/client/v3/open', ' '.repeat(13_107_200)))).toEqual([
      400,
      'M_NOT_JSON',
    ]);
  });

  it('reads no body of a client it does not know, and keeps the connection usable', async () => {
    const agent = new HttpAgent({ keepAlive: true, maxSockets: 1 });
    const ask = (token: string, body: string): Promise<[number, string]> =>
      new Promise((resolve, reject) => {
        const request = httpRequest(
          `${base}/_matrix/client/v3/things/x`,
          { method: 'POST', agent, headers: { authorization: `Bearer ${token}`, 'content-length': body.length } },
          (response) => {
            let text = '';
            response
              .on('data', (chunk: Buffer) => (text += chunk.toString()))
              .on('end', () => resolve([response.statusCode!, text]));
          },
        );
        request.on('error', reject).end(body);
      });
    const big = JSON.stringify({ name: 'n', more: 'x'.repeat(3_000_000) });
    expect((await ask('bad', big))[0]).toBe(401);
    expect(await ask('good', '{"name":"n"}')).toEqual([200, '{"thing":"x","name":"n"}']);
    agent.destroy();
  });

  it('streams uploads and answers', async () => {
    const response = await send('PUT', '/_matrix/client/v3/upload', Buffer.alloc(20_000_000));
    expect(await response.json()).toEqual({ size: 20_000_000 });
    expect(await (await get('/_matrix/client/v3/stream')).text()).toBe('onetwo');
  });

  it('reads forms', async () => {
    const form = await send('POST', '/_synapse/client/form', 'a=1&b=x%20y&a=2&__proto__=3', {
      'content-type': 'application/x-www-form-urlencoded',
    });
    expect(await form.text()).toBe('{"a":["1","2"],"b":["x y"],"__proto__":["3"]}');
    expect(await errorOf(await send('POST', '/_synapse/client/form', 'a=1&'.repeat(101), {}))).toEqual([
      400,
      'M_INVALID_PARAM',
    ]);
  });

  it('sends the CORS headers on everything, and answers preflights', async () => {
    const expected = ['*', 'GET, POST, PUT, DELETE, OPTIONS', 'X-Requested-With, Content-Type, Authorization'];
    const cors = ({ headers }: Response): (string | null)[] =>
      ['origin', 'methods', 'headers'].map((name) => headers.get(`access-control-allow-${name}`));
    for (const path of [
      '/_matrix/client/v3/account/whoami',
      '/_matrix/client/v3/page',
      '/_matrix/client/v3/fail/x',
      '/_matrix/client/v3/stream',
      '/nowhere',
      '/health',
      '/%zz',
    ]) {
      expect([path, cors(await get(path))]).toEqual([path, expected]);
    }
    expect(cors(await send('POST', '/_matrix/client/v3/optional', ' '.repeat(1001)))).toEqual(expected);
    const preflight = await get('/_matrix/client/v3/rooms/!a:b/send/m.room.message/1', { method: 'OPTIONS' });
    expect([preflight.status, await preflight.text(), cors(preflight)]).toEqual([204, '', expected]);
  });

  it('turns errors into Matrix errors and keeps details to itself', async () => {
    const limited = await get('/_matrix/client/v3/fail/limit');
    expect(limited.headers.get('retry-after')).toBe('2');
    expect([limited.status, await limited.json()]).toEqual([
      429,
      { errcode: 'M_LIMIT_EXCEEDED', error: 'Too many requests', retry_after_ms: 1235 },
    ]);
    const foreign = await get('/_matrix/client/v3/fail/foreign');
    expect([foreign.status, await foreign.json()]).toEqual([
      418,
      { errcode: 'ORG.TEA', error: 'from a module', pot: 1 },
    ]);
    lines.length = 0;
    const failed = await get('/_matrix/client/v3/fail/x');
    expect([failed.status, await failed.json()]).toEqual([
      500,
      { errcode: 'M_UNKNOWN', error: 'Internal server error' },
    ]);
    const logged = lines.find(({ level }) => level === 'error');
    expect((logged?.fields['err'] as Error).message).toBe('secret detail');
  });

  it('fails cleanly when an answer cannot be sent, and lets nobody write headers', async () => {
    expect(await errorOf(await get('/_matrix/client/v3/unsendable/cycle'))).toEqual([500, 'M_UNKNOWN']);
    expect(await errorOf(await get('/_matrix/client/v3/unsendable/header'))).toEqual([500, 'M_UNKNOWN']);
    const redirect = await get('/_matrix/client/v3/unsendable/redirect', { redirect: 'manual' });
    expect([redirect.headers.get('location'), redirect.headers.get('set-cookie')]).toEqual([
      'https://example.org/%C3%A9%0D%0Aset-cookie:%20a=b%20%EF%BF%BD',
      null,
    ]);
  });

  it('sends pages, cookies and redirects', async () => {
    const page = await get('/_matrix/client/v3/page');
    expect(page.headers.getSetCookie()).toEqual(['a=1', 'b=2']);
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(await page.text()).toBe('<p>hello</p>');
    const policy = (content: PageContent, options?: PageOptions): string =>
      String(HttpReply.page(200, content, options).headers['content-security-policy']);
    expect(policy({ html: '' })).toContain("form-action 'self'");
    expect(policy({ html: '' })).not.toContain('script-src');
    expect(policy({ html: '', nonce: 'abc' })).toContain("script-src 'nonce-abc'");
    expect(policy({ html: '' }, { formsLeadAway: true })).not.toContain('form-action');
    expect(policy({ html: '', custom: true })).toBe("frame-ancestors 'self'; base-uri 'none'");
    const moved = await get('/_matrix/client/v3/moved', { redirect: 'manual' });
    expect([moved.status, moved.headers.get('location')]).toEqual([302, 'https://example.org/']);
  });

  it('understands query strings, and bounds them', async () => {
    const ask = async (query: string): Promise<{ query: object; limit: number }> =>
      (await (await get(`/_matrix/client/v3/query?${query}`)).json()) as { query: object; limit: number };
    expect((await ask('via=a&via=b&x=%C3%A9+1&e=')).query).toEqual({ via: ['a', 'b'], x: 'é 1', e: '' });
    expect([(await ask('limit=5')).limit, (await ask('limit=0')).limit, (await ask('limit=1000')).limit]).toEqual([
      5, 1, 100,
    ]);
    for (const bad of [
      'limit=x',
      'limit=1e3',
      'limit=',
      'limit=1&limit=2',
      'limit=99999999999999999999',
      `${'a=1&'.repeat(100)}b=1`,
      'a=%ff',
      'a=%zz',
      'a=%00',
    ]) {
      expect([bad, ...(await errorOf(await get(`/_matrix/client/v3/query?${bad}`)))]).toEqual([
        bad,
        400,
        'M_INVALID_PARAM',
      ]);
    }
  });

  it('bounds and checks the URL', async () => {
    expect(await errorOf(await get(`/_matrix/client/v3/query?a=${'x'.repeat(17_000)}`))).toEqual([414, 'M_TOO_LARGE']);
    for (const bad of [
      '/%zz',
      '/_matrix/client/v3/rooms/%ff/state/t',
      '/_matrix/client/v3/rooms/%/state/t',
      '/_matrix/client/v3/rooms/a%00b/state/t',
    ]) {
      expect([bad, ...(await errorOf(await get(bad)))]).toEqual([bad, 400, 'M_INVALID_PARAM']);
    }
    const long = `!${'é'.repeat(250)}:example.org`;
    expect(await (await get(`/_matrix/client/v3/rooms/${encodeURIComponent(long)}/state/t`)).json()).toEqual({
      roomId: long,
      type: 't',
    });
    expect((await get(`/_matrix/client/v3/rooms/${'x'.repeat(3000)}/state/t`)).status).toBe(400);
    const absolute = await raw(
      port,
      'GET http://example.org/health HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n',
    );
    expect(absolute).toMatch(/^HTTP\/1\.1 200 [\s\S]*OK$/);
  });

  it('answers what is not HTTP, and headers without end', async () => {
    expect(await raw(port, 'hello\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 [\s\S]*"M_UNKNOWN"/);
    expect(await raw(port, `GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`)).toMatch(
      /^HTTP\/1\.1 431 [\s\S]*"M_TOO_LARGE"/,
    );
  });

  it('stays on one connection', async () => {
    const line = 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n';
    const answers = await raw(port, line.repeat(3), 300);
    expect(answers.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(3);
  });

  it('logs one line for each request, without the query', async () => {
    lines.length = 0;
    await (await get('/_matrix/client/v3/account/whoami?access_token=good')).text();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(lines).toHaveLength(1);
    expect(lines[0]!.fields).toMatchObject({
      method: 'GET',
      path: '/_matrix/client/v3/account/whoami',
      route: 'Probe.whoami',
      status: 200,
      user: '@alice:test',
    });
    expect(JSON.stringify(lines)).not.toContain('good');
  });

  it('has a health check', async () => {
    const health = await get('/health');
    expect([health.status, health.headers.get('content-type'), await health.text()]).toEqual([
      200,
      'text/plain; charset=utf-8',
      'OK',
    ]);
  });

  it('does not serve resources that the listener does not name', async () => {
    expect(await errorOf(await get('/_matrix/federation/v1/version'))).toEqual([404, 'M_UNRECOGNIZED']);
    expect(await errorOf(await get('/_synapse/metrics'))).toEqual([404, 'M_UNRECOGNIZED']);
  });

  it('aborts the signal of a client that goes away', async () => {
    const began = new Promise<void>((resolve) => (waiting = resolve));
    const controller = new AbortController();
    const request = get('/_matrix/client/v3/wait', { signal: controller.signal }).catch(() => undefined);
    await began;
    lines.length = 0;
    waitedMs = undefined;
    controller.abort();
    await request;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(waitedMs).toBeLessThan(2000);
    expect(lines.map(({ message }) => message)).toEqual(['Client went away']);
  });

  it('serves web resources of modules', async () => {
    app.mount('/_synapse/client/mod', async (request) => {
      if (request.url.endsWith('/boom')) throw new Error('secret detail');
      const headers = new Headers({ 'content-type': 'text/plain' });
      headers.append('set-cookie', 'a=1');
      headers.append('set-cookie', 'b=2');
      return new Response(`${request.method} ${new URL(request.url).pathname} ${await request.text()}`, {
        status: 201,
        headers,
      });
    });
    const response = await send('POST', '/_synapse/client/mod/deep?x=1', 'body');
    expect([response.status, await response.text(), response.headers.getSetCookie()]).toEqual([
      201,
      'POST /_synapse/client/mod/deep body',
      ['a=1', 'b=2'],
    ]);
    expect(response.headers.get('access-control-allow-origin')).toBe('*');
    expect(await errorOf(await get('/_synapse/client/mod/boom'))).toEqual([500, 'M_UNKNOWN']);
    expect(await errorOf(await get('/_synapse/client/model'))).toEqual([404, 'M_UNRECOGNIZED']);
    expect(() => app.mount('/_synapse/client/mod/', () => new Response())).toThrow('already');
  });
});

describe('bodies that do not arrive', () => {
  it('are given up after two minutes, or when the client goes away', async () => {
    const clock = new FakeClock();
    const { app, port } = await start({ clock });
    const head = 'PUT /_matrix/client/v3/open HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"a"';
    const answer = raw(port, head, 500);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await clock.advance(119_000);
    await clock.advance(7_000);
    expect(await answer).toMatch(/^HTTP\/1\.1 408 [\s\S]*M_UNKNOWN/);
    lines.length = 0;
    await raw(port, head, 50);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(lines.map(({ level, message }) => [level, message])).toEqual([['info', 'Client went away']]);
    await app.close(0);
  });
});

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
    expect(await ip(base, '1.2.3.4')).toBe('1.2.3.4');
    expect(await ip(base, '6.6.6.6, 2001:db8::7, 10.0.0.1')).toBe('2001:db8::7');
    expect(await ip(base, '192.168.0.9, 10.0.0.1')).toBe('192.168.0.9');
    expect(await ip(base, 'rubbish')).toBe('127.0.0.1');

    lines.length = 0;
    const named = await fetch(`${base}/_matrix/client/v3/query`, {
      headers: { 'x-request-id': 'abc-1', 'x-forwarded-proto': 'https' },
    });
    expect(((await named.json()) as { id: string }).id).toBe('abc-1');
    expect(lines.filter(({ level }) => level === 'warn')).toEqual([]);
    const unnamed = await fetch(`${base}/_matrix/client/v3/query`, { headers: { 'x-request-id': 'a b' } });
    expect(((await unnamed.json()) as { id: string }).id).not.toBe('a b');
    expect(lines.filter(({ level }) => level === 'warn')).toHaveLength(1);
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
    await expect(app.listen()).rejects.toThrow(`Cannot listen on 127.0.0.1:${port}: it is in use by another program`);
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
    let began = new Promise<void>((resolve) => (waiting = resolve));
    const long = fetch(`${base}/_matrix/client/v3/wait`);
    await began;
    began = new Promise<void>((resolve) => (waiting = resolve));
    const slow = fetch(`${base}/_matrix/client/v3/slow`);
    await began;
    const drained = app.drain(5000);
    expect(((await (await long).json()) as { waitedMs: number }).waitedMs).toBeLessThan(2000);
    const last = await slow;
    expect([await last.json(), last.headers.get('connection')]).toEqual([{ done: true }, 'close']);
    expect(await drained).toBe(true);
    await expect(fetch(`${base}/health`)).rejects.toThrow();
  });

  it('drain: what takes too long is cut', async () => {
    const { app, base } = await begin({});
    const began = new Promise<void>((resolve) => (waiting = resolve));
    const slow = fetch(`${base}/_matrix/client/v3/slow`).catch(() => 'cut');
    await began;
    expect(await app.drain(50)).toBe(false);
    expect(await slow).toBe('cut');
  });
});
