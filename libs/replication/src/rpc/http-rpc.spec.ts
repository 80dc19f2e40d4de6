import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { MatrixError } from '@rookery/matrix-types';
import { type Logger, processProtocol } from '@rookery/platform';
import { eventually, openTestDatabase, RecordingLogger } from '@rookery/testing';
import { defineRpc } from '../index.js';
import { HttpRpc, type RpcAddress } from './http-rpc.js';

const double = defineRpc<{ n: number }, { n: number } | undefined>('double');

describe('Calls between processes', () => {
  const addresses = new Map<string, RpcAddress>();
  const open: HttpRpc[] = [];
  const start = async (
    instance: string,
    {
      secret = 'shared',
      timeoutMs = 20_000,
      encrypted = false,
      logger,
    }: { secret?: string; timeoutMs?: number; encrypted?: boolean; logger?: Logger } = {},
  ): Promise<HttpRpc> => {
    const rpc = new HttpRpc({
      ...{ instance, secret, timeoutMs, encrypted, logger, addressOf: (name) => addresses.get(name) },
      others: () => [...addresses.keys()].filter((name) => name !== instance),
    });
    addresses.set(instance, await rpc.listen('127.0.0.1'));
    open.push(rpc);
    return rpc;
  };
  afterEach(async () => {
    for (const rpc of open.splice(0)) await rpc.close();
    addresses.clear();
  });

  it('are answered by the process that is asked', async () => {
    const [a, b, c] = [await start('a'), await start('b'), await start('c')];
    a.handle(double, async ({ n }) => ({ n: n * 2 }));
    b.handle(double, async ({ n }) => ({ n: n * 20 }));
    c.handle(double, () => Promise.resolve(undefined));
    expect(await a.call(double, { n: 1 })).toEqual({ n: 2 });
    expect(await a.call(double, { n: 1 }, 'b')).toEqual({ n: 20 });
    expect(await a.call(double, { n: 1 }, 'c')).toBeUndefined();
    const many = await Promise.all(Array.from({ length: 300 }, (_, n) => a.call(double, { n }, 'b')));
    expect(many.at(-1)).toEqual({ n: 299 * 20 });
    expect(new Map(await a.callOthers(double, { n: 1 }))).toEqual(
      new Map<string, unknown>([
        ['b', { n: 20 }],
        ['c', undefined],
      ]),
    );
  });

  it('are told to who watches, by what they came to', async () => {
    const [a, b] = [await start('a'), await start('b')];
    b.handle(double, ({ n }) => (n > 0 ? Promise.resolve({ n }) : Promise.reject(MatrixError.forbidden('No'))));
    a.handle(double, async () => undefined);
    const seen: unknown[] = [];
    a.watch((method) => {
      seen.push(method);
      return (status) => void seen.push(status);
    });
    // What does not leave the process is no call.
    await a.call(double, { n: 1 });
    await a.call(double, { n: 1 }, 'b');
    await expect(a.call(double, { n: 0 }, 'b')).rejects.toMatchObject({ status: 403 });
    await expect(a.call(double, { n: 1 }, 'nobody')).rejects.toMatchObject({ status: 503 });
    expect(seen).toEqual(['double', 200, 'double', 403, 'double', 503]);
  });

  it('are given up where who is asked is lost and says nothing, and no others', async () => {
    const [a, b, c] = [await start('a'), await start('b'), await start('c')];
    const begun: string[] = [];
    const answers = new Map<string, () => void>();
    for (const [name, rpc] of [
      ['b', b],
      ['c', c],
    ] as const)
      rpc.handle(double, () => {
        begun.push(name);
        return new Promise((resolve) => answers.set(name, () => resolve({ n: 1 })));
      });
    const ended: string[] = [];
    const toB = a.call(double, { n: 1 }, 'b').finally(() => ended.push('b'));
    const toC = a.call(double, { n: 1 }, 'c').finally(() => ended.push('c'));
    toB.catch(() => undefined);
    await eventually(() => begun.length === 2);
    a.hangUp(() => true);
    addresses.delete('b');
    a.hangUp(() => false);
    await new Promise((done) => setTimeout(done, 20));
    expect(ended).toEqual([]);
    a.hangUp((instance) => instance === 'b');
    await expect(toB).rejects.toMatchObject({ status: 503, message: expect.stringContaining('not there any more') });
    expect(ended).toEqual(['b']);
    answers.get('c')?.();
    expect(await toC).toEqual({ n: 1 });
  });

  it('are put off where the database is away from who is asked, which is no mistake of its', async () => {
    const { database, close } = await openTestDatabase('sqlite');
    await close();
    const [logger, a] = [new RecordingLogger(), await start('a')];
    const b = await start('b', { logger });
    b.handle(double, () => database.write(() => Promise.resolve({ n: 1 })));
    await expect(a.call(double, { n: 1 }, 'b')).rejects.toMatchObject({ status: 503, errcode: 'M_UNKNOWN' });
    expect(logger.lines.map(({ level }) => level)).toEqual(['warn']);
  });

  it('are encrypted where a process wants that, and then go to and come from those alone who share its secret', async () => {
    const [a, b, stranger] = [
      await start('a'),
      await start('b', { encrypted: true }),
      await start('c', { secret: '?' }),
    ];
    a.handle(double, async ({ n }) => ({ n: n * 2 }));
    b.handle(double, async ({ n }) => ({ n: n * 20 }));
    expect(addresses.get('a')?.tls).toBeUndefined();
    const address = addresses.get('b')!;
    expect(address.tls).toBe(true);
    expect(await Promise.all([1, 2, 3].map((n) => a.call(double, { n }, 'b')))).toEqual(
      [20, 40, 60].map((n) => ({ n })),
    );
    expect(await b.call(double, { n: 1 }, 'a')).toEqual({ n: 2 });
    await expect(stranger.call(double, { n: 1 }, 'b')).rejects.toMatchObject({ status: 503 });
    // In clear nobody is heard.
    addresses.set('b', { ...address, tls: false });
    await expect(a.call(double, { n: 1 }, 'b')).rejects.toMatchObject({ status: 503 });
  });

  it('reject as the handler did', async () => {
    const [a, b] = [await start('a'), await start('b')];
    b.handle(double, () => Promise.reject(new MatrixError(429, 'M_LIMIT_EXCEEDED', 'Slower', { retry_after_ms: 7 })));
    await expect(a.call(double, { n: 1 }, 'b')).rejects.toMatchObject({
      ...{ status: 429, errcode: 'M_LIMIT_EXCEEDED', message: 'Slower', extra: { retry_after_ms: 7 } },
    });
    const c = await start('c');
    c.handle(double, () => Promise.reject(new Error('a secret of the house')));
    await expect(a.call(double, { n: 1 }, 'c')).rejects.toThrow(/\(c\) could not be asked: the call failed there/);
    await expect(a.call(double, { n: 1 }, 'd')).rejects.toThrow('it is not there');
    addresses.set('gone', { host: '127.0.0.1', port: 9 });
    await expect(a.call(double, { n: 1 }, 'gone')).rejects.toMatchObject({ status: 503 });
    await expect(a.call(defineRpc<object, void>('unknown'), {}, 'b')).rejects.toThrow(
      'nobody answers the call unknown',
    );
    // Who does not answer keeps nobody from hearing of the others.
    expect([...(await a.callOthers(double, { n: 1 })).keys()]).toEqual([]);
  });

  it('end when nobody answers in time', async () => {
    const [a, b] = [await start('a', { secret: 'shared', timeoutMs: 50 }), await start('b')];
    b.handle(double, () => new Promise(() => {}));
    await expect(a.call(double, { n: 1 }, 'b')).rejects.toMatchObject({ status: 503 });
  });

  it('are made in the words of the older one, and not to one that is too far away', async () => {
    const [a, b] = [await start('a'), await start('b')];
    b.handle(double, async (given) => given);
    const address = addresses.get('b')!;
    for (const [protocol, isAnswered] of [
      [processProtocol - 1, true],
      [processProtocol, true],
      [processProtocol + 1, true],
      [processProtocol + 2, false],
    ] as const) {
      addresses.set('b', { ...address, protocol });
      const answer = a.call(double, { n: protocol }, 'b');
      if (isAnswered) expect(await answer).toEqual({ n: protocol });
      else
        await expect(answer).rejects.toThrow(
          `it speaks version ${protocol} between processes, the caller version ${processProtocol}`,
        );
    }
  });

  it('are refused without the secret, from a version too far away, and when they are too large', async () => {
    const [a, b, stranger] = [await start('a'), await start('b'), await start('s', { secret: 'guessed' })];
    b.handle(double, async (given) => given);
    await expect(stranger.call(double, { n: 1 }, 'b')).rejects.toThrow('set the same worker_replication_secret in all');
    const { host, port } = addresses.get('b')!;
    const raw = (headers: Record<string, string>): Promise<[number | undefined, string]> =>
      new Promise((resolve, reject) => {
        const sent = request({ host, port, method: 'POST', path: '/_rookery/rpc/double', headers }, (res) => {
          let text = '';
          res.on('data', (chunk: Buffer) => (text += chunk.toString()));
          res.on('end', () => resolve([res.statusCode, text]));
        });
        sent.once('error', reject);
        sent.end('{}');
      });
    expect((await raw({}))[0]).toBe(403);
    const next = await raw({ 'x-rookery-process': 'shared', 'x-rookery-protocol': String(processProtocol + 2) });
    expect(next[0]).toBe(426);
    expect(next[1]).toContain(
      `it speaks version ${processProtocol} between processes, the caller version ${processProtocol + 2}`,
    );
    // The version before lives beside this one during an upgrade.
    const before = await raw({ 'x-rookery-process': 'shared', 'x-rookery-protocol': String(processProtocol - 1) });
    expect(before[0]).toBe(200);
    await expect(a.call(double, { n: 1, text: 'x'.repeat(17 << 20) } as { n: number }, 'b')).rejects.toMatchObject({
      ...{ status: 413, errcode: 'M_TOO_LARGE' },
    });
  });

  it('fail where something else answers than a process of the server', async () => {
    const a = await start('a');
    const other = createServer((_, res) => res.end('<html>'));
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as AddressInfo;
    addresses.set('b', { host: '127.0.0.1', port, protocol: processProtocol });
    try {
      await expect(a.call(double, { n: 1 }, 'b')).rejects.toMatchObject({
        status: 503,
        message: expect.stringContaining('JSON'),
      });
    } finally {
      other.close();
    }
  });
});
