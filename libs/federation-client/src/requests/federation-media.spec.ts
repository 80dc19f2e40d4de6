import { IpGuard, OutboundHttp } from '@rookery/http';
import { eventually, FakeNames, openTestDatabase, type TestDatabase } from '@rookery/testing';
import type { ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type Answer, json, makeClient, PlayedServer } from '../federation-client.fixture.js';
import { federationClientMigrations } from '../migrations/federation-client-01.migration.js';
import { FederationMedia } from './federation-media.js';
import type { FederationRequestError } from './federation-request-error.js';

const mixed = (response: ServerResponse, ...parts: readonly string[]): void =>
  void response
    .setHeader('content-type', 'multipart/mixed; boundary=gc0p4Jq0M2Yt08jU534c0p')
    .end(`${parts.map((part) => `--gc0p4Jq0M2Yt08jU534c0p\r\n${part}\r\n`).join('')}--gc0p4Jq0M2Yt08jU534c0p--\r\n`);
const description = 'Content-Type: application/json\r\n\r\n{}';

describe('media of other servers', () => {
  let test: TestDatabase;
  const stops: (() => Promise<unknown>)[] = [];
  const outbound = new OutboundHttp({ guard: new IpGuard([]), userAgent: 'Rookery/test' });
  beforeAll(async () => {
    test = await openTestDatabase('sqlite');
    await test.migrate(federationClientMigrations);
  });
  afterAll(async () => {
    await outbound.close();
    await test.close();
  });
  afterEach(async () => {
    for (const stop of stops.splice(0).reverse()) await stop();
    await test.database.write((tx) => tx.run('DELETE FROM destinations'));
  });

  const request = { destination: 'b.test', mediaId: 'a/b', maxBytes: 1_000_000, timeoutMs: 5_000 };
  const mediaOf = async (answer: Answer): Promise<{ media: FederationMedia; server: PlayedServer; load(): number }> => {
    const server = await PlayedServer.start(['b.test'], answer);
    const { client, close } = makeClient({
      database: test.database,
      names: new FakeNames().host('b.test:8448', server.endpoint),
    });
    stops.push(() => server.stop(), close);
    return { media: new FederationMedia(client, outbound), server, load: () => client.load('b.test') };
  };
  const read = async (content: { body: AsyncIterable<unknown> }): Promise<string> => {
    let text = '';
    for await (const chunk of content.body) text += (chunk as Buffer).toString('latin1');
    return text;
  };
  const reason = (attempt: Promise<unknown>): Promise<string> =>
    attempt.then(
      () => 'answered',
      (error: FederationRequestError) => error.reason ?? String(error),
    );

  it('come out of their wrapping', async () => {
    const bytes = '\x00\xffbytes\r\n--gc0p\r\n';
    const { media, server, load } = await mediaOf((_, response) =>
      mixed(
        response,
        description,
        `Content-Type: image/png\r\nContent-Disposition: inline; filename="x.png"\r\n\r\n${bytes.replace('\xff', 'y')}`,
      ),
    );
    const content = await media.download(request);
    expect(content).toMatchObject({ contentType: 'image/png', contentDisposition: 'inline; filename="x.png"' });
    expect(await read(content)).toBe(bytes.replace('\xff', 'y'));
    expect(server.seen[0]).toMatchObject({
      url: '/_matrix/federation/v1/media/download/a%2Fb?timeout_ms=20000',
      headers: { authorization: expect.stringContaining('X-Matrix') as string },
    });
    await eventually(() => load() === 0);
  });

  it('may be thumbnails', async () => {
    const { media, server } = await mediaOf((_, response) => mixed(response, description, '\r\nsmall'));
    const size = { width: 10, height: 20, method: 'crop', animated: true } as const;
    expect(await read(await media.thumbnail({ ...request, uploadWaitMs: 0 }, size))).toBe('small');
    expect(server.seen[0]!.url).toBe(
      '/_matrix/federation/v1/media/thumbnail/a%2Fb?width=10&height=20&method=crop&animated=true&timeout_ms=0',
    );
  });

  it('may lie elsewhere', async () => {
    const elsewhere = createServer((asked, response) =>
      asked.url === '/there' && asked.headers.authorization === undefined
        ? response.setHeader('content-type', 'text/plain').end('from elsewhere')
        : response.writeHead(404).end(),
    );
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve));
    stops.push(() => new Promise((resolve) => elsewhere.close(resolve)));
    const base = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
    const { media } = await mediaOf((_, response) => mixed(response, description, `Location: ${base}/there\r\n\r\n`));
    const content = await media.download(request);
    expect([content.contentType, await read(content)]).toEqual(['text/plain', 'from elsewhere']);
    const lost = await mediaOf((_, response) => mixed(response, description, `Location: ${base}/gone\r\n\r\n`));
    expect(await reason(lost.media.download(request))).toBe('bad_response');
    const wrong = await mediaOf((_, response) => mixed(response, description, `Location: file:///etc/passwd\r\n\r\n`));
    expect(await reason(wrong.media.download(request))).toBe('bad_response');
  });

  it.each<[string, number, object | string]>([
    ['nowadays', 404, { errcode: 'M_UNRECOGNIZED' }],
    ['by the method', 405, { errcode: 'M_UNRECOGNIZED' }],
    ['as older servers do', 400, { errcode: 'M_UNRECOGNIZED' }],
    ['without words of Matrix', 404, 'page not found'],
    ['as no request of theirs', 400, 'bad request'],
  ])('come the old way from servers that know no other, which they say %s', async (_how, status, body) => {
    const { media, server } = await mediaOf((asked, response) => {
      if (asked.url.startsWith('/_matrix/media/v3/download/b.test/a%2Fb?'))
        response.setHeader('content-type', 'image/gif').end('old');
      else if (typeof body === 'string') response.writeHead(status).end(body);
      else json(response, body, status);
    });
    const content = await media.download(request);
    expect([content.contentType, await read(content)]).toEqual(['image/gif', 'old']);
    expect(server.seen[1]!.url).toContain('allow_remote=false');
  });

  it('come the old way themselves, not as where they are', async () => {
    const { media } = await mediaOf(({ url }, response) => {
      if (!url.startsWith('/_matrix/media/')) json(response, { errcode: 'M_UNRECOGNIZED' }, 404);
      else if (url.includes('allow_redirect=true')) response.writeHead(307, { location: 'https://cdn.test/a' }).end();
      else response.end('old');
    });
    expect(await read(await media.download(request))).toBe('old');
    const size = { width: 10, height: 20, method: 'crop' } as const;
    expect(await read(await media.thumbnail(request, size))).toBe('old');
  });

  it('are refused where the server refuses, without another question', async () => {
    const { media, server } = await mediaOf((_, response) => json(response, { errcode: 'M_BAD_JSON' }, 400));
    await expect(media.download(request)).rejects.toMatchObject({ status: 400, errcode: 'M_BAD_JSON' });
    expect(server.seen).toHaveLength(1);
  });

  it('are missing where the server says so, without another question', async () => {
    const { media, server } = await mediaOf((_, response) => json(response, { errcode: 'M_NOT_FOUND' }, 404));
    await expect(media.download(request)).rejects.toMatchObject({ status: 404, errcode: 'M_NOT_FOUND' });
    expect(server.seen).toHaveLength(1);
  });

  it.each<[string, Answer]>([
    ['no multipart', (_, response) => void response.setHeader('content-type', 'image/png').end('x')],
    ['no boundary', (_, response) => void response.setHeader('content-type', 'multipart/mixed').end('x')],
    ['one part only', (_, response) => mixed(response, description)],
    ['a description without end', (_, response) => mixed(response, `\r\n${'x'.repeat(100_000)}`, '\r\nx')],
    ['headers without end', (_, response) => mixed(response, description, `A: ${'x'.repeat(100_000)}`)],
  ])('are refused with %s', async (_, answer) => {
    const { media, load } = await mediaOf(answer);
    expect(await reason(media.download(request))).toBe('bad_response');
    await eventually(() => load() === 0);
  });

  it('may be given up half-way', async () => {
    const { media, load } = await mediaOf((_, response) => {
      response
        .setHeader('content-type', 'multipart/mixed; boundary=b')
        .write(`--b\r\n${description}\r\n--b\r\n\r\nabc`);
    });
    const { body } = await media.download(request);
    expect(load()).toBe(1);
    body.destroy();
    await eventually(() => load() === 0);
  });

  it('are bounded in size and time, and break off visibly', async () => {
    const large = await mediaOf((_, response) => mixed(response, description, `\r\n${'x'.repeat(1_000_001)}`));
    expect(await reason(large.media.download(request).then(read))).toBe('too_large');
    const slow = await mediaOf((_, response) => {
      response
        .setHeader('content-type', 'multipart/mixed; boundary=b')
        .write(`--b\r\n${description}\r\n--b\r\n\r\nabc`);
    });
    expect(await reason(slow.media.download({ ...request, timeoutMs: 200 }).then(read))).toBe('timeout');
    const broken = await mediaOf((_, response) => {
      response
        .setHeader('content-type', 'multipart/mixed; boundary=b')
        .write(`--b\r\n${description}\r\n--b\r\n\r\nabc`);
      setTimeout(() => response.socket?.destroy(), 50);
    });
    expect(await reason(broken.media.download(request).then(read))).toBe('unreachable');
    const short = await mediaOf((_, response) => {
      response.setHeader('content-type', 'multipart/mixed; boundary=b').end(`--b\r\n${description}\r\n--b\r\n\r\nabc`);
    });
    expect(await reason(short.media.download(request).then(read))).toBe('bad_response');
  });
});
