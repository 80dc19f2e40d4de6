import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Readable } from 'node:stream';
import { MatrixError } from '@rookery/matrix-types';
import { SilentLogger } from '@rookery/platform';
import { type InboundRequest, RequestProxy } from './index.js';

const path = '/_matrix/client/v1/org.calls/rtc/x';
const alice = { header: 'x-matrix-user-identifier', name: '@alice:test' } as const;

describe('requests that are passed on', () => {
  let program: Server;
  let answer: (response: ServerResponse) => void;
  const targets: (string | undefined)[] = [];
  const proxy = new RequestProxy(new SilentLogger());
  const { timeout } = AbortSignal;

  beforeAll(async () => {
    program = createServer(({ url }, response) => {
      targets.push(url);
      answer(response);
    }).listen(0, '127.0.0.1');
    await once(program, 'listening');
  });
  beforeEach(() => {
    targets.length = 0;
    answer = (response) => void response.end();
  });
  afterEach(() => void (AbortSignal.timeout = timeout));
  afterAll(async () => {
    await proxy.onModuleDestroy();
    program.closeAllConnections();
    program.close();
  });

  /** The answer to a request with this query. */
  async function pass(query = ''): Promise<{ readonly status: number; readonly body: Readable }> {
    const { signal } = new AbortController();
    const request = { method: 'GET', url: path + query, headers: {}, signal, requestId: 'one' };
    const url = `http://127.0.0.1:${(program.address() as AddressInfo).port}`;
    const { status, body } = await proxy.pass(
      request as unknown as InboundRequest,
      { prefix: 'org.calls/rtc', url },
      alice,
    );
    return { status, body: body as Readable };
  }

  it('keep a query that is written wrongly, without the token', async () => {
    (await pass('?%zz=%&access_token=secret&access%5Ftoken=secret&=&%')).body.resume();
    expect(targets).toEqual([`${path}?%zz=%&=&%`]);
  });

  it('are given up after a minute, whether the answer has begun or not', async () => {
    const over = new AbortController();
    const limits: number[] = [];
    AbortSignal.timeout = (ms) => {
      limits.push(ms);
      return over.signal;
    };
    answer = (response) => void response.writeHead(200).write('first');
    const begun = await pass();
    answer = () => over.abort(new DOMException('late', 'TimeoutError'));
    await expect(pass()).rejects.toMatchObject(
      MatrixError.gatewayTimeout('The application service did not answer in time'),
    );
    await expect(begun.body.toArray()).rejects.toThrow('60000 ms');
    expect(limits).toEqual([60_000, 60_000]);
  });

  it.each([
    [104_857_600, undefined],
    [104_857_601, 'larger than 104857600 bytes'],
  ])('may be answered with %i bytes: %s is wrong', async (size, wrong) => {
    answer = (response) => {
      const part = Buffer.alloc(1_048_576);
      let left = size;
      const more = (): void => {
        while (left > 0) {
          const length = Math.min(left, part.length);
          left -= length;
          if (!response.write(part.subarray(0, length))) return void response.once('drain', more);
        }
        response.end();
      };
      more();
    };
    const { body } = await pass();
    let got = 0;
    body.on('data', (chunk: Buffer) => (got += chunk.length));
    const ended = once(body, 'end');
    if (wrong !== undefined) await expect(ended).rejects.toThrow(wrong);
    else await ended;
    expect(got).toBeLessThanOrEqual(104_857_600);
    if (wrong === undefined) expect(got).toBe(size);
  });
});
