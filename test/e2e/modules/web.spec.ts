import { join } from 'node:path';
import { request as rawRequest } from 'node:http';
import { createTestHomeserver, eventually, type TestHomeserver } from '@rookery/testing';
import { ModulesContainer } from '@nestjs/core';
import { webPathFilter } from '@rookery/module-host';
import { MatrixError, RedirectError } from '@rookery/module-api';
import { endless, web } from './fixtures/web.js';

const module = join(import.meta.dirname, 'fixtures/web.ts');

describe('web resources of modules', () => {
  let server: TestHomeserver;
  beforeAll(async () => {
    server = await createTestHomeserver({ settings: { modules: [{ module }] } });
  });
  afterAll(() => server?.stop());
  beforeEach(() => {
    web.asked = [];
    web.cancelled = 0;
  });

  const get = (path: string, method = 'GET'): ReturnType<TestHomeserver['request']> => server.request(method, path);

  /** The paths of all endpoints of the server. */
  const ownPaths = (): string[] =>
    [...server.server.service(ModulesContainer).values()]
      .flatMap((part) => [...part.controllers.values()])
      .flatMap(({ metatype }) => Object.values(Object.getOwnPropertyDescriptors(metatype?.prototype ?? {})))
      .flatMap(
        ({ value }) => (typeof value === 'function' ? Reflect.getMetadata('path', value as object) : undefined) ?? [],
      )
      .map(String);

  it.each<[string, () => unknown, number, string]>([
    [
      'a Matrix error',
      () => {
        throw new MatrixError(418, 'ORG.TEA', 'short and stout');
      },
      418,
      'ORG.TEA',
    ],
    [
      'a Matrix error without a proper status',
      () => {
        throw {
          $$type: 'MatrixError',
          status: 7,
          errcode: 'M_X',
          message: 'x',
          toBody: () => ({}),
        } as unknown as Error;
      },
      500,
      'M_UNKNOWN',
    ],
    [
      'a Matrix error that cannot be written',
      () => {
        throw new MatrixError(400, 'M_X', 'x', { n: 7n });
      },
      500,
      'M_UNKNOWN',
    ],
    [
      'a redirect that no header can hold',
      () => {
        throw new RedirectError('https://a.example/\n\u{1f600}');
      },
      500,
      'M_UNKNOWN',
    ],
    ['an answer without status', () => Response.error(), 500, 'M_UNKNOWN'],
    [
      'an answer that was read',
      () => {
        const answer = new Response('x');
        void answer.text();
        return answer;
      },
      500,
      'M_UNKNOWN',
    ],
    ['nothing', () => undefined, 500, 'M_UNKNOWN'],
    [
      'an error',
      () => {
        throw new Error('secret');
      },
      500,
      'M_UNKNOWN',
    ],
    [
      'a body that breaks',
      () =>
        new Response(
          new ReadableStream({
            pull() {
              throw new Error('secret');
            },
          }),
        ),
      500,
      'M_UNKNOWN',
    ],
    ['a body without end', () => new Response(endless(new Uint8Array(8_000_000))), 500, 'M_UNKNOWN'],
  ])('answer clearly for %s', async (what, answer, status, errcode) => {
    web.answer = answer;
    const got = await get('/_synapse/client/web/answer');
    expect(got).toMatchObject({ status, body: { errcode } });
    expect(JSON.stringify(got.body)).not.toContain('secret');
    expect(web.cancelled).toBe(what === 'a body without end' ? 1 : 0);
  });

  it('hand over what an answer holds', async () => {
    web.answer = () =>
      new Response(null, {
        status: 204,
        headers: [
          ['set-cookie', 'a=1'],
          ['set-cookie', 'b=2'],
        ],
      });
    const empty = await get('/_synapse/client/web/answer');
    expect([empty.status, empty.body, empty.headers.getSetCookie()]).toEqual([204, '', ['a=1', 'b=2']]);
    web.answer = () => Response.redirect('https://a.example/', 307);
    const moved = await fetch(`${server.baseUrl}/_synapse/client/web/answer`, { redirect: 'manual' });
    expect([moved.status, moved.headers.get('location')]).toEqual([307, 'https://a.example/']);
    // As other implementations of fetch give it.
    const headers = new Map([['content-type', 'text/plain']]);
    web.answer = () => ({ status: 201, headers, body: {}, arrayBuffer: async () => Buffer.from('bytes') });
    expect(await get('/_synapse/client/web/answer')).toMatchObject({ status: 201, body: 'bytes' });
  });

  it('put together what comes in pieces of any size, in order', async () => {
    const sizes = [1, 3, 70_000, 2, 65_536, 65_535, 0, 5];
    let count = 0;
    web.answer = () =>
      new Response(
        new ReadableStream({
          pull(to) {
            if (count === 4_000) return to.close();
            const size = count < 3_000 ? 1 : sizes[count % sizes.length]!;
            return to.enqueue(new Uint8Array(size).fill(count++ % 251));
          },
        }),
      );
    const got = Buffer.from(await (await fetch(`${server.baseUrl}/_synapse/client/web/answer`)).arrayBuffer());
    const expected = Buffer.concat(
      Array.from({ length: 4_000 }, (_, at) => Buffer.alloc(at < 3_000 ? 1 : sizes[at % sizes.length]!, at % 251)),
    );
    expect(got.length).toBe(expected.length);
    expect(got.equals(expected)).toBe(true);
  });

  it('hold no more of pages that a crowd asks for than one at a time, however slow they are', async () => {
    const [crowd, pieces, piece] = [10, 20, 1_048_576];
    let made = 0;
    let mostHeld = 0;
    let whole = 0;
    web.answer = () => {
      let left = pieces;
      return new Response(
        new ReadableStream<Uint8Array<ArrayBuffer>>(
          {
            async pull(to) {
              await new Promise((resolve) => setTimeout(resolve, 1));
              if (left-- === 0) {
                whole++;
                return to.close();
              }
              mostHeld = Math.max(mostHeld, ++made - whole * pieces);
              return to.enqueue(new Uint8Array(piece));
            },
          },
          { highWaterMark: 0 },
        ),
      );
    };
    const answers = await Promise.allSettled(
      Array.from({ length: crowd }, async () => {
        const answer = await fetch(`${server.baseUrl}/_synapse/client/web/answer`);
        return (await answer.arrayBuffer()).byteLength;
      }),
    );
    // Who has too many whole ones to read loses some of them.
    const sizes = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
    expect(new Set(sizes)).toEqual(new Set([pieces * piece]));
    expect([whole, made]).toEqual([crowd, crowd * pieces]);
    // 64 MiB, the oldest page, and what everybody was sent before that was known.
    expect(mostHeld).toBeLessThan(64 + pieces + crowd);
  });

  it('are told when nobody wants their page any more', async () => {
    let made = 0;
    let cancelled = 0;
    web.answer = () =>
      new Response(
        new ReadableStream({
          async pull(to) {
            await new Promise((resolve) => setTimeout(resolve, 1));
            made++;
            to.enqueue(new Uint8Array(10));
          },
          cancel: () => void cancelled++,
        }),
      );
    const client = new AbortController();
    const asked = fetch(`${server.baseUrl}/_synapse/client/web/answer`, { signal: client.signal });
    await eventually(() => made > 5);
    client.abort();
    await expect(asked).rejects.toThrow();
    await eventually(() => cancelled === 1);
  });

  it('take a body with HEAD, and methods that no request of the web may have', async () => {
    web.answer = () => new Response('ok');
    const statuses = await Promise.all(
      ['HEAD', 'TRACE', 'PATCH'].map(
        (method) =>
          new Promise<number | undefined>((resolve, reject) => {
            const request = rawRequest(`${server.baseUrl}/_synapse/client/web/answer`, {
              method,
              headers: { 'content-length': '2' },
            });
            request
              .on('response', (response) => resolve(response.resume().statusCode))
              .on('error', reject)
              .end('{}');
          }),
      ),
    );
    expect(statuses).toEqual([200, 405, 200]);
  });

  it('leave what is theirs to the server and to others', async () => {
    for (const path of [
      '/_synapse/client/web/slash',
      '/_synapse/client/web/slash/',
      '/_synapse/client/acme/settings',
      '/_synapse/client/web/echo/a%2Fb',
    ]) {
      expect([path, (await get(path)).status]).toEqual([path, 200]);
    }
    expect(web.asked.at(-1)?.params).toEqual({ name: 'a/b' });
    // The server's own, which a pattern of the module would fit.
    const asked = web.asked.length;
    const own = await get('/_synapse/client/oidc/callback');
    expect(own.headers.get('content-type')).toContain('text/html');
    expect(web.asked.length).toBe(asked);
    expect((await get('/_synapse/client/nothing')).status).toBe(404);
    expect(ownPaths()).toContain('/_synapse/client/media_upload_limit_exceeded');
    expect(ownPaths().filter(webPathFilter(['/_synapse/*', '/.well-known/*']))).toEqual([]);
  });
});
