import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { gzipSync } from 'node:zlib';
import { MatrixError } from '@rookery/matrix-types';
import { eventually } from '@rookery/testing';
import { compileSchema, HttpApp, HttpReply, json, type PageOptions, WebMounts } from './index.js';
import { type PageContent } from './reply.js';
import { FakeClock, lines, listener, start, raw, auth, errorOf, probes } from './http.fixture.js';

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

  it('reads no body for an address that has nothing left of the limit of a route', async () => {
    const post = (body: string, headers = {}): Promise<Response> =>
      send('POST', '/_matrix/client/v3/limited', body, headers);
    expect(await errorOf(await post('no JSON'))).toEqual([400, 'M_NOT_JSON']);
    probes.limited = true;
    try {
      const refused = await post('no JSON');
      expect([refused.headers.get('retry-after'), ...(await errorOf(refused))]).toEqual(['2', 429, 'M_LIMIT_EXCEEDED']);
      // Nothing but its head has come: nobody waits for the rest.
      const head = 'POST /_matrix/client/v3/limited HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{"a"';
      expect(await raw(port, head, 30_000, /M_LIMIT_EXCEEDED/)).toMatch(/^HTTP\/1\.1 429 /);
      expect(await (await post('{"a":1}', { authorization: 'Bearer appservice' })).json()).toEqual({ a: 1 });
    } finally {
      probes.limited = false;
    }
    expect(await (await post('{"a":1}')).json()).toEqual({ a: 1 });
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
    // Too large for a number: such must not reach code that counts with it.
    expect(await errorOf(await post('{"name":"n","list":[{"id":1e400}]}'))).toEqual([400, 'M_BAD_JSON']);
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
    expect(await errorOf(await put(`{"a":${'['.repeat(60_000)}`))).toEqual([400, 'M_BAD_JSON']);
  });

  it('a body that is too large is refused, no body is an empty one', async () => {
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
    expect(await errorOf(await send('PUT', '/_matrix/client/v3/open', ' '.repeat(65_537)))).toEqual([
      413,
      'M_TOO_LARGE',
    ]);
    expect(await errorOf(await send('PUT', '/_matrix/client/v3/open', ' '.repeat(65_536)))).toEqual([
      400,
      'M_NOT_JSON',
    ]);
  });

  it('takes larger bodies of those it knows', async () => {
    const post = (size: number): Promise<Response> =>
      send('POST', '/_matrix/client/v3/things/x', `{"name":"n","more":"${'x'.repeat(size - 22)}"}`);
    expect((await post(262_144)).status).toBe(200);
    expect(await errorOf(await post(262_145))).toEqual([413, 'M_TOO_LARGE']);
  });

  it('takes null for an optional key that is not there', async () => {
    const post = (body: string): Promise<Response> => send('POST', '/_matrix/client/v3/things/x', body);
    expect((await post('{"name":"n","kind":null,"list":null,"other":null}')).status).toBe(200);
    expect((await post('{"name":"n","list":[{"id":1,"note":null}]}')).status).toBe(200);
    expect(await errorOf(await post('{"name":null}'))).toEqual([400, 'M_BAD_JSON']);
    expect(await errorOf(await post('{"name":"n","list":[{"id":null}]}'))).toEqual([400, 'M_BAD_JSON']);
    expect(await (await send('POST', '/_matrix/client/v3/optional', 'null')).json()).toEqual({});
    const seen: unknown = { a: null, b: null, c: [{ a: null, b: 1 }], d: { x: { a: null } }, e: null };
    const text = json.optional('A text.', json.string());
    const inner = json.object({ a: text, b: json.optional('A number.', json.integer()) });
    compileSchema(
      json.object({
        a: text,
        b: json.required('A text or null.', json.nullable(json.string())),
        c: json.required('A list.', json.array(inner)),
        d: json.required('More.', json.record(json.object({ a: json.optional('An x.', json.enum('x')) }))),
      }),
    )(seen);
    expect(seen).toEqual({ b: null, c: [{ b: 1 }], d: { x: {} }, e: null });
  });

  it('serves under the prefixes of before the first release what has no route there', async () => {
    for (const path of ['unstable/account/whoami', 'api/v1/account/whoami', 'unstable/account/whoami/']) {
      expect([path, (await get(`/_matrix/client/${path}?access_token=good`)).status]).toEqual([path, 200]);
    }
    for (const path of ['unstable/nothing', 'api/v1/nothing', 'unstable/admin/whois', 'api/v2/account/whoami'])
      expect([path, ...(await errorOf(await get(`/_matrix/client/${path}`)))]).toEqual([path, 404, 'M_UNRECOGNIZED']);
  });

  it('refuses requests that others might read differently', async () => {
    const line = 'GET /health HTTP/1.1\r\n';
    const end = 'Connection: close\r\n\r\n';
    expect(await raw(port, `${line}Host: a\r\nHost: b\r\n${end}`)).toMatch(/^HTTP\/1\.1 400 /);
    expect(await raw(port, `${line}HOST: a\r\n${end}`)).toMatch(/^HTTP\/1\.1 200 /);
    expect(await raw(port, 'GET /health\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 /);
    expect(await raw(port, `${line}Host: a\r\n${end}`.replaceAll('\r', ''))).toMatch(/^HTTP\/1\.1 400 [^]*CR and LF/);
  });

  it('reads long bodies in slices', async () => {
    const text = `{"list":[${'{"a":"é"},'.repeat(80_000)}1],"last":2}`;
    expect(await (await send('PUT', '/_matrix/client/v3/long', text)).json()).toEqual({ items: 80_001, last: 2 });
    expect(await errorOf(await send('PUT', '/_matrix/client/v3/long', `${text}x`))).toEqual([400, 'M_NOT_JSON']);
    expect(await errorOf(await send('PUT', '/_matrix/client/v3/long', `[${'[],'.repeat(500_000)}1]`))).toEqual([
      413,
      'M_TOO_LARGE',
    ]);
  });

  it('unpacks bodies, no further than their limit', async () => {
    const packed = (text: string, coding = 'gzip'): Promise<Response> =>
      fetch(`${base}/_matrix/client/v3/open`, {
        method: 'PUT',
        headers: { 'content-encoding': coding },
        body: new Uint8Array(gzipSync(text)),
      });
    expect(await (await packed('{"a":1}')).json()).toMatchObject({ keys: ['a'] });
    expect(await (await packed('{"b":1}', 'GZIP')).json()).toMatchObject({ keys: ['b'] });
    expect(await errorOf(await packed(' '.repeat(60_000_000)))).toEqual([413, 'M_TOO_LARGE']);
    expect(await errorOf(await packed('{}', 'br'))).toEqual([415, 'M_UNKNOWN']);
    expect(await errorOf(await send('PUT', '/_matrix/client/v3/open', '{}', { 'content-encoding': 'gzip' }))).toEqual([
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

  it('a form is read with repeated fields in order', async () => {
    const form = await send('POST', '/_synapse/client/form', 'a=1&b=x%20y&a=2&__proto__=3', {
      'content-type': 'application/x-www-form-urlencoded',
    });
    expect(await form.text()).toBe('{"a":["1","2"],"b":["x y"],"c":[]}');
    expect(await errorOf(await send('POST', '/_synapse/client/form', 'a=1&'.repeat(101), {}))).toEqual([
      400,
      'M_INVALID_PARAM',
    ]);
  });

  it('sends the CORS headers on everything, and answers preflights', async () => {
    const expected = [
      '*',
      'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
      'X-Requested-With, Content-Type, Authorization, Date, If-Match, If-None-Match',
      'Retry-After, ETag, Date',
    ];
    const cors = ({ headers }: Response): (string | null)[] =>
      ['allow-origin', 'allow-methods', 'allow-headers', 'expose-headers'].map((name) =>
        headers.get(`access-control-${name}`),
      );
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
    // What it would have been made of is let go of: a file, or a connection.
    expect(await errorOf(await get('/_matrix/client/v3/unsendable/stream'))).toEqual([500, 'M_UNKNOWN']);
    expect(probes.streamed?.body.destroyed).toBe(true);
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
    expect((await ask('limit=')).limit).toBeNull();
    for (const bad of [
      'limit=x',
      'limit=1e3',
      'limit=-1',
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
    const line = 'GET /health HTTP/1.1\r\nHost: x\r\n';
    const answers = await raw(port, `${`${line}\r\n`.repeat(2)}${line}Connection: close\r\n\r\n`);
    expect(answers.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(3);
  });

  it('logs one line for each request, without the query', async () => {
    lines.length = 0;
    await (await get('/_matrix/client/v3/account/whoami?access_token=good')).text();
    const path = '/_matrix/client/v3/account/whoami';
    const told = (): typeof lines => lines.filter(({ fields }) => fields['path'] === path);
    await eventually(() => told().length > 0);
    expect(told()).toHaveLength(1);
    expect(told()[0]!.fields).toMatchObject({
      method: 'GET',
      path,
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
    const began = new Promise<void>((resolve) => (probes.waiting = resolve));
    const controller = new AbortController();
    const request = get('/_matrix/client/v3/wait', { signal: controller.signal }).catch(() => undefined);
    await began;
    lines.length = 0;
    probes.waitedMs = undefined;
    controller.abort();
    await request;
    await eventually(() => probes.waitedMs !== undefined && lines.length > 0);
    expect(probes.waitedMs).toBeLessThan(8_000);
    expect(lines.map(({ message }) => message)).toEqual(['Client went away']);
  });

  it('serves web resources of modules', async () => {
    app.nest.get(WebMounts).add('/_synapse/client/mod', async (request) => {
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
    expect(() => app.nest.get(WebMounts).add('/_synapse/client/mod/', () => new Response())).toThrow('already');
  });

  it('asks modules one by one, and waits for none of them', async () => {
    const news = Promise.withResolvers<void>();
    let [begun, inTurn, mostInTurn] = [0, 0, 0];
    app.nest.get(WebMounts).add('/_synapse/client/news', async () => {
      begun++;
      mostInTurn = Math.max(mostInTurn, ++inTurn);
      setImmediate(() => (inTurn = 0));
      await news.promise;
      return new Response('news');
    });
    const request = (more = ''): string => `GET /_synapse/client/news HTTP/1.1\r\nHost: x\r\n${more}\r\n`;
    // All of them come in one turn of the event loop, and all are asked though none is answered.
    const answers = raw(port, request().repeat(199) + request('Connection: close\r\n'));
    await eventually(() => begun === 200);
    // The first begins when they come, the next at the end of that turn.
    expect(mostInTurn).toBeLessThanOrEqual(2);
    news.resolve();
    expect((await answers).match(/HTTP\/1\.1 200 /g)).toHaveLength(200);
  });
});

describe('an answer that waits until other processes can know what this one has said', () => {
  it.each(['that is so', 'that cannot be'])('is let go of when nobody wants it any more, and %s', async (what) => {
    const telling = Promise.withResolvers<void>();
    const { app, port } = await start({ forwarding: { secret: 's', told: () => telling.promise } });
    probes.streamed = undefined;
    const socket = connect(port, '127.0.0.1', () =>
      socket.write('GET /_matrix/client/v3/stream HTTP/1.1\r\nHost: x\r\n\r\n'),
    );
    const { body, signal } = await eventually(() => probes.streamed);
    socket.destroy();
    await eventually(() => signal.aborted);
    expect(body.destroyed).toBe(false);
    if (what === 'that is so') telling.resolve();
    else telling.reject(new Error('cut off'));
    await eventually(() => body.destroyed);
    await app.close();
  });
});

describe('a server that lacks its database', () => {
  it('says so, in its health check and where a request needed it', async () => {
    let there = false;
    const { app, base } = await start({
      healthy: async () => there,
      explain: (error) =>
        (error as Error).message === 'secret detail' ? new MatrixError(503, 'M_UNKNOWN', 'Away') : undefined,
    });
    expect((await fetch(`${base}/health`)).status).toBe(503);
    there = true;
    expect((await fetch(`${base}/health`)).status).toBe(200);
    expect(await errorOf(await fetch(`${base}/_matrix/client/v3/fail/x`))).toEqual([503, 'M_UNKNOWN']);
    await app.close();
  });
});

describe('bodies that do not arrive', () => {
  it('are given up after two minutes, or when the client goes away', async () => {
    const clock = new FakeClock();
    const { app, port } = await start({ clock });
    const head = 'PUT /_matrix/client/v3/open HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"a"';
    let answered = false;
    const answer = raw(port, head, 10_000, /M_UNKNOWN/).finally(() => (answered = true));
    // Its time begins when the server has its first bytes.
    await eventually(async () => answered || (await clock.advance(126_000), false));
    expect(await answer).toMatch(/^HTTP\/1\.1 408 [\s\S]*M_UNKNOWN/);
    lines.length = 0;
    await raw(port, head, 50);
    await eventually(() => lines.length > 0);
    expect(lines.map(({ level, message }) => [level, message])).toEqual([['info', 'Client went away']]);
    await app.close(0);
  });
});

describe('bodies on their way', () => {
  it('are refused to an address that has its part of them, and to nobody else, until it gives them up', async () => {
    const { app, port } = await start({ listeners: [{ ...listener, xForwarded: true }] });
    const head = (address: string, length: number): string =>
      `PUT /_matrix/client/v3/long HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Forwarded-For: ${address}\r\n` +
      `Content-Length: ${length}\r\n\r\n`;
    const one = '203.0.113.1';
    const sockets: Socket[] = [];
    const refusals: string[] = [];
    // Sixteen of these are within 32 MiB, and seventeen are not.
    const most = 'x'.repeat(1_990_000);
    for (let i = 0; i < 20; i++) {
      const socket = connect(port, '127.0.0.1', () => socket.write(head(one, 2_000_000) + most));
      sockets.push(socket.on('error', () => undefined).once('data', (data) => refusals.push(data.toString())));
    }
    await eventually(() => refusals.length === 4);
    for (const refusal of refusals) {
      expect(refusal).toMatch(/^HTTP\/1\.1 429 /);
      expect(refusal).toMatch(/\r\nretry-after: 2\r\n/i);
    }
    const body = JSON.stringify({ list: [most], last: 1 });
    const put = (address: string): Promise<string> => raw(port, head(address, body.length) + body, 60_000);
    expect(await put(one)).toMatch(/^HTTP\/1\.1 429 /);
    expect(await put('203.0.113.2')).toMatch(/^HTTP\/1\.1 200 /);
    for (const socket of sockets) socket.destroy();
    await eventually(async () => (await put(one)).startsWith('HTTP/1.1 200 '));
    await app.close(0);
  });
});
