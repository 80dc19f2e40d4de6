import { processProtocol } from '@rookery/platform';
import { once } from 'node:events';
import { createServer as createHttpServer, request } from 'node:http';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { MatrixError } from '@rookery/matrix-types';
import { eventually } from '@rookery/testing';
import { defineRpc } from '../index.js';
import { HttpRpc, type HttpRpcOptions, type RpcAddress } from './http-rpc.js';

const line = defineRpc<{ port: number }, { why: string }>('line');
const patient = (): AbortSignal => AbortSignal.timeout(60_000);

describe('A connection that a process opens for another', () => {
  const addresses = new Map<string, RpcAddress>();
  const closing: (() => unknown)[] = [];
  /** Sends back what comes, and says how many are there. */
  let echo: Server;
  let port: number;
  const ends = new Set<Socket>();

  const start = async (instance: string, options: Partial<HttpRpcOptions> = {}): Promise<HttpRpc> => {
    const rpc = new HttpRpc({
      ...{ instance, secret: 'shared', addressOf: (name) => addresses.get(name), others: () => [] },
      ...options,
    });
    addresses.set(instance, await rpc.listen('127.0.0.1'));
    closing.push(() => rpc.close());
    return rpc;
  };
  /** A process that opens connections, and one that asks it. */
  const pair = async (options: Partial<HttpRpcOptions> = {}): Promise<{ asks: HttpRpc; opens: HttpRpc }> => {
    const [asks, opens] = [await start('asks'), await start('opens', options)];
    opens.handleOpening(line, async ({ port }) => {
      if (port === 0) return { refusal: { why: 'there is no such port' } };
      const connection = connect(port, '127.0.0.1');
      await once(connection, 'connect');
      return { connection };
    });
    return { asks, opens };
  };
  const opened = async (asks: HttpRpc): Promise<Socket> => {
    const opening = await asks.open(line, { port }, 'opens', patient());
    if ('refusal' in opening) throw new Error(opening.refusal.why);
    closing.push(() => opening.connection.destroy());
    return opening.connection;
  };
  const heard = async (socket: Socket, bytes: number): Promise<Buffer> => {
    const chunks: Buffer[] = [];
    while (Buffer.concat(chunks).length < bytes) chunks.push(((await once(socket, 'data')) as [Buffer])[0]);
    return Buffer.concat(chunks);
  };

  beforeEach(async () => {
    echo = createServer({ allowHalfOpen: true }, (socket) => {
      ends.add(socket.on('error', () => undefined).on('close', () => ends.delete(socket)));
      socket.pipe(socket);
    });
    await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve));
    ({ port } = echo.address() as AddressInfo);
  });
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
    for (const end of ends) end.destroy();
    await new Promise((resolve) => echo.close(resolve));
    addresses.clear();
  });

  it.each([false, true])('carries what is said, both ways and to its end (encrypted: %s)', async (encrypted) => {
    const { asks } = await pair({ encrypted });
    const sockets = await Promise.all(Array.from({ length: 20 }, () => opened(asks)));
    const text = Buffer.alloc(1 << 20, 'all of it ');
    for (const socket of sockets) socket.write(text);
    for (const answer of await Promise.all(sockets.map((socket) => heard(socket, text.length))))
      expect(answer.equals(text)).toBe(true);
    // What was said last arrives before the end does.
    for (const socket of sockets) socket.resume().end('bye');
    await Promise.all(sockets.map((socket) => once(socket, 'close')));
    await eventually(() => ends.size === 0);
  });

  it('is opened by the process itself where it asks itself', async () => {
    const { opens } = await pair();
    const opening = await opens.open(line, { port }, 'opens', patient());
    if ('refusal' in opening) throw new Error('refused');
    opening.connection.write('hello');
    expect((await heard(opening.connection, 5)).toString()).toBe('hello');
    opening.connection.destroy();
  });

  it('is refused with a reason, or fails as its handler did', async () => {
    const { asks, opens } = await pair();
    expect(await asks.open(line, { port: 0 }, 'opens', patient())).toEqual({
      refusal: { why: 'there is no such port' },
    });
    const [full, broken] = [defineRpc<object, object>('full'), defineRpc<object, object>('broken')];
    opens.handleOpening(full, () => Promise.reject(MatrixError.unavailable('not now')));
    opens.handleOpening(broken, () => Promise.reject(new Error('a secret of the house')));
    await expect(asks.open(full, {}, 'opens', patient())).rejects.toThrow('not now');
    await expect(asks.open(broken, {}, 'opens', patient())).rejects.toThrow('the call failed there; see its log');
  });

  it('is refused without the secret, by who opens none, and to who wants something else', async () => {
    const { asks } = await pair();
    const stranger = await start('stranger', { secret: 'guessed' });
    await expect(stranger.open(line, { port }, 'opens', patient())).rejects.toThrow(
      'set the same worker_replication_secret in all',
    );
    await expect(asks.open(line, { port }, 'asks', patient())).rejects.toThrow('nobody opens connections line');
    await expect(asks.open(line, { port }, 'nobody', patient())).rejects.toThrow('it is not there');
    const { port: where } = addresses.get('opens')!;
    const upgrading = (headers: Record<string, string>): Promise<number | undefined> =>
      new Promise((resolve, reject) => {
        const path = `/_rookery/connections/line?${encodeURIComponent(JSON.stringify({ port }))}`;
        const own = {
          connection: 'Upgrade',
          'x-rookery-process': 'shared',
          'x-rookery-protocol': String(processProtocol),
          ...headers,
        };
        const sent = request({ host: '127.0.0.1', port: where, path, headers: own });
        sent.once('response', (response) => resolve(response.resume().statusCode));
        sent.once('upgrade', (response, socket) => resolve((socket.destroy(), response.statusCode)));
        sent.once('error', reject).end();
      });
    expect(await upgrading({ upgrade: 'rookery' })).toBe(101);
    expect(await upgrading({ upgrade: 'websocket' })).toBe(404);
    expect(await upgrading({ upgrade: 'rookery', 'x-rookery-process': 'shareD' })).toBe(403);
    expect(await upgrading({ upgrade: 'rookery', 'x-rookery-protocol': '9' })).toBe(426);
    await eventually(() => ends.size === 0);
  });

  it('ends at both ends when one of them does', async () => {
    const { asks, opens } = await pair();
    const [one, other, third] = [await opened(asks), await opened(asks), await opened(asks)];
    await eventually(() => ends.size === 3);
    one.destroy();
    await eventually(() => ends.size === 2);
    [...ends][0]!.destroy();
    await once(other.resume(), 'close');
    // With the process that opened it, too.
    await opens.close();
    await once(third.resume(), 'close');
    await eventually(() => ends.size === 0);
  });

  it('is not opened any more for somebody who gave up, or went', async () => {
    const { asks, opens } = await pair();
    const slow = defineRpc<object, object>('slow');
    const given: AbortSignal[] = [];
    opens.handleOpening(slow, async (_, signal) => {
      given.push(signal);
      await once(signal, 'abort');
      const connection = connect(port, '127.0.0.1');
      await once(connection, 'connect');
      return { connection };
    });
    const giveUp = new AbortController();
    const asking = asks.open(slow, {}, 'opens', giveUp.signal);
    await eventually(() => given.length === 1);
    giveUp.abort(new Error('nobody wants it'));
    await expect(asking).rejects.toThrow('nobody wants it');
    await eventually(() => given[0]!.aborted);
    // What comes too late is ended.
    await eventually(() => ends.size === 0);
    await expect(asks.open(slow, {}, 'opens', AbortSignal.abort(new Error('before')))).rejects.toThrow('before');
  });

  it('is one of so many at a time', async () => {
    const { asks } = await pair({ connections: { max: 2, idleMs: 600_000 } });
    const [one] = [await opened(asks), await opened(asks)];
    await expect(opened(asks)).rejects.toThrow('too many connections');
    one.destroy();
    await eventually(() => ends.size === 1);
    await opened(asks);
  });

  it('ends when nothing is said by it for long', async () => {
    const { asks } = await pair({ connections: { max: 100, idleMs: 200 } });
    const socket = await opened(asks);
    await once(socket.resume(), 'close');
    await eventually(() => ends.size === 0);
  });

  it('is missed soon where the process hangs, is gone, breaks off or is of a version that opens none', async () => {
    const asks = await start('asks');
    const sockets: Socket[] = [];
    const listening = async (take: (socket: Socket) => void): Promise<RpcAddress> => {
      const server = createServer((socket) => {
        sockets.push(socket);
        take(socket.on('error', () => undefined));
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      closing.push(() => {
        for (const socket of sockets) socket.destroy();
        server.close();
      });
      return { host: '127.0.0.1', port: (server.address() as AddressInfo).port, protocol: processProtocol };
    };
    addresses.set('hangs', await listening(() => undefined));
    addresses.set('breaks', await listening((socket) => socket.once('data', () => socket.destroy())));
    addresses.set('gone', { host: '127.0.0.1', port: 9, protocol: processProtocol });
    const older = createHttpServer((_, response) => response.writeHead(404).end('{"error":"no such call"}'));
    await new Promise<void>((resolve) => older.listen(0, '127.0.0.1', resolve));
    closing.push(() => older.close());
    addresses.set('older', {
      host: '127.0.0.1',
      port: (older.address() as AddressInfo).port,
      protocol: processProtocol,
    });
    const failing = (name: string): Promise<unknown> => asks.open(line, { port }, name, patient());
    await expect(failing('gone')).rejects.toThrow('ECONNREFUSED');
    await expect(failing('breaks')).rejects.toMatchObject({ status: 503 });
    await expect(failing('older')).rejects.toThrow('no such call');
    await expect(failing('hangs')).rejects.toThrow('it does not answer');
  });
});
