import { processProtocol } from '@rookery/platform';
import { RecordingLogger, eventually } from '@rookery/testing';
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { PassThrough, type Readable } from 'node:stream';
import { FellowConnections, type FellowRequest, type ProcessAddress } from './fellow-connection.js';
import { FellowListener } from './fellow-listener.js';
import { frameKinds, FrameSocket, headFrame, headText } from './frames.js';

interface Heard {
  readonly status: number;
  readonly headers: object;
  readonly body: string;
}

const secret = 'known to both';
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe('A connection to a fellow process', () => {
  let listener: FellowListener;
  let connections: FellowConnections;
  let logger: RecordingLogger;
  /** What the other side does with a request. */
  let answer: (request: IncomingMessage, response: ServerResponse) => void;
  const sockets: Socket[] = [];

  beforeEach(async () => {
    logger = new RecordingLogger();
    const handler: RequestListener = (request, response) => answer(request, response);
    listener = await FellowListener.open({ host: '127.0.0.1', port: 0 }, secret, undefined, handler, logger);
    connections = new FellowConnections(secret, {});
  });
  afterEach(() => {
    connections.close();
    listener.destroy();
    for (const socket of sockets.splice(0)) socket.destroy();
  });

  const get: FellowRequest = { head: { method: 'GET', url: '/', headers: {} } };
  const put = (body: Buffer | Readable): FellowRequest => ({ head: { method: 'PUT', url: '/', headers: {} }, body });
  const ask = (request = get, address: ProcessAddress = listener.address): Promise<Heard> => {
    const asked = new Promise<Heard>((resolve, reject) => {
      const parts: Buffer[] = [];
      let head = { status: 0, headers: {} };
      connections.ask(address, request, {
        head: (status, headers) => (head = { status, headers }),
        part: (bytes, isLast) => {
          parts.push(bytes);
          if (isLast) resolve({ ...head, body: Buffer.concat(parts).toString() });
          return true;
        },
        fail: (error, wasReached) => reject(Object.assign(error, { wasReached })),
      });
    });
    // What is still under way at the end of a test is nobody's business.
    asked.catch(() => undefined);
    return asked;
  };
  const bodyOf = async (request: IncomingMessage): Promise<string> => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    return Buffer.concat(parts).toString();
  };
  /** Somebody who speaks for himself, byte by byte where that is wanted. */
  const stranger = async (): Promise<{ socket: Socket; frames: FrameSocket; heard: number[] }> => {
    const { host, port } = listener.address;
    const socket = connect(port, host);
    sockets.push(socket);
    socket.on('error', () => {});
    await new Promise<void>((resolve) => socket.once('connect', () => resolve()));
    const heard: number[] = [];
    return { socket, frames: new FrameSocket(socket, (kind) => heard.push(kind)), heard };
  };

  /** What goes over the line. */
  const bytesOf = async (say: (frames: FrameSocket) => void): Promise<Buffer> => {
    const written: Buffer[] = [];
    const collector = { on: () => {}, write: (bytes: Buffer) => written.push(bytes), destroyed: false };
    say(new FrameSocket(collector as unknown as Socket, () => {}));
    await eventually(() => written.length > 0);
    return Buffer.concat(written);
  };
  const hello = `${processProtocol} ${secret}`;

  it('carries requests of every form, and answers of every form', async () => {
    answer = (request, response) =>
      void bodyOf(request).then((body) =>
        response
          .writeHead(201, { a: 'b', 'set-cookie': ['a=1', 'b=ü'] })
          .end(`${request.method} ${request.url} ${body}`),
      );
    const headers = { a: 'b', 'set-cookie': ['a=1', 'b=ü'] };
    expect(await ask()).toEqual({ status: 201, headers, body: 'GET / ' });
    expect(await ask(put(Buffer.from('é')))).toEqual({ status: 201, headers, body: 'PUT / é' });
    const stream = new PassThrough();
    const streamed = ask(put(stream));
    stream.write('some ');
    await sleep(5);
    stream.end('more');
    expect((await streamed).body).toBe('PUT / some more');
    const long = 'x'.repeat(3_000_000);
    expect((await ask(put(Buffer.from('x'.repeat(16_384))))).body.length).toBe(16_384 + 6);
    const all = new PassThrough();
    all.end(long);
    expect((await ask(put(all))).body).toBe(`PUT / ${long}`);
    answer = (_request, response) => void response.writeHead(204).end();
    expect(await ask()).toEqual({ status: 204, headers: {}, body: '' });
    answer = (_request, response) => {
      response.writeHead(200);
      response.write('one');
      setTimeout(() => response.end('two'), 2);
    };
    expect((await ask()).body).toBe('onetwo');
  });

  it('keeps apart what goes by it at the same time', async () => {
    answer = (request, response) =>
      void bodyOf(request).then((body) => {
        const wait = body.length % 7;
        setTimeout(() => response.writeHead(200).end(body), wait);
      });
    const bodies = Array.from({ length: 200 }, (_, n) => 'y'.repeat(n * 97));
    const heard = await Promise.all(bodies.map((body) => ask(put(Buffer.from(body)))));
    expect(heard.map(({ body }) => body.length)).toEqual(bodies.map(({ length }) => length));
  });

  it('refuses headers that cannot be sent where the answer is given, and fails for none but that request', async () => {
    let refusal: unknown;
    answer = (request, response) => {
      if (request.url === '/other') return void setTimeout(() => response.writeHead(200).end('other'), 50);
      try {
        response.writeHead(200, { a: 'b\r\nc: d' });
      } catch (error) {
        refusal = error;
        throw error;
      }
    };
    const other = ask({ head: { method: 'GET', url: '/other', headers: {} } });
    await expect(ask()).rejects.toMatchObject({ wasReached: true });
    expect(refusal).toMatchObject({ code: 'ERR_INVALID_CHAR' });
    expect((await other).body).toBe('other');
  });

  it('refuses headers that no frame holds, and sends a body of any size, and fails for none but that request', async () => {
    answer = (request, response) => {
      if (request.url === '/other') return void setTimeout(() => response.writeHead(200).end('other'), 100);
      if (request.method === 'PUT')
        return void bodyOf(request).then((body) => response.writeHead(200).end(String(body.length)));
      const headers = Object.fromEntries(Array.from({ length: 2_000 }, (_, n) => [`x-h${n}`, 'x'.repeat(1_000)]));
      response.writeHead(200, headers).end('never');
    };
    const other = ask({ head: { method: 'GET', url: '/other', headers: {} } });
    await expect(ask()).rejects.toMatchObject({ wasReached: true });
    expect(JSON.stringify(logger.lines)).toContain('could not be begun');
    for (const size of [65_536, 65_537, 1_048_576, 13_107_200])
      expect((await ask(put(Buffer.alloc(size)))).body).toBe(String(size));
    expect((await other).body).toBe('other');
  });

  it('reads frames however they are cut', async () => {
    answer = (request, response) => void bodyOf(request).then((body) => response.writeHead(200).end(body));
    const { socket, heard } = await stranger();
    const sent = await bytesOf((frames) => {
      frames.send(frameKinds.hello, 0, true, Buffer.from(hello));
      frames.send(frameKinds.head, 1, true, headFrame(headText(put(Buffer.from('')).head), Buffer.from('body')));
    });
    for (const byte of sent) {
      socket.write(Buffer.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await eventually(() => heard.length > 0);
    expect(heard).toEqual([frameKinds.head]);
  });

  it('is for processes of the server, and for frames that make sense', async () => {
    answer = () => {
      throw new Error('Nobody may ask');
    };
    const wrong = new FellowConnections('guessed', {});
    const refused = new Promise((resolve) =>
      wrong.ask(listener.address, get, { head: () => {}, part: () => true, fail: resolve }),
    );
    expect(String(await refused)).toContain('closed');
    wrong.close();
    expect(JSON.stringify(logger.lines)).toContain('Somebody who is no process of this server');
    for (const [kind, payload] of [
      [frameKinds.head, headFrame(headText(get.head))],
      [frameKinds.hello, Buffer.from('GET / HTTP/1.1')],
    ] as const) {
      const { socket, frames } = await stranger();
      frames.send(kind, 1, true, payload);
      await eventually(() => socket.destroyed);
    }
    const { socket } = await stranger();
    // Whoever speaks HTTP begins with a frame of more than a thousand million bytes.
    socket.write('GET / HTTP/1.1\r\n\r\n');
    await eventually(() => socket.destroyed);
  });

  it('says it where a version is too far away, and understands the one before', async () => {
    answer = (_request, response) => void response.writeHead(200).end();
    const before = await stranger();
    before.frames.send(frameKinds.hello, 0, true, Buffer.from(`${processProtocol - 1} ${secret}`));
    before.frames.send(frameKinds.head, 1, true, headFrame(headText(get.head)));
    await eventually(() => before.heard.length > 0);
    const after = await stranger();
    after.frames.send(frameKinds.hello, 0, true, Buffer.from(`${processProtocol + 1} ${secret}`));
    await eventually(() => after.socket.destroyed);
    expect(JSON.stringify(logger.lines)).toContain(
      `speaks version ${processProtocol} between processes, the caller version ${processProtocol + 1}`,
    );
    // What both know is spoken with others.
    for (const [protocol, spoken] of [
      [processProtocol - 1, processProtocol - 1],
      [processProtocol + 1, processProtocol],
    ] as const) {
      const begun = new Promise<Buffer>((resolve) => {
        const other = createServer((socket) => socket.once('data', resolve)).listen(0, '127.0.0.1', () => {
          const { port } = other.address() as AddressInfo;
          ask(get, { host: '127.0.0.1', port, protocol }).catch(() => other.close());
        });
      });
      expect((await begun).toString('latin1')).toContain(`${spoken} ${secret}`);
    }
  });

  // Where this changes, processes that understand what is written here cannot be spoken with: raise processProtocol.
  it('goes by frames of this form in version 5', async () => {
    const said = await bytesOf((frames) => {
      frames.send(frameKinds.hello, 0, true, Buffer.from(hello));
      frames.send(frameKinds.head, 1, false, headFrame(headText({ method: 'PUT', url: '/', headers: { a: 'b' } })));
      frames.send(frameKinds.part, 1, true, Buffer.from('body'));
      frames.send(frameKinds.head, 2, true, headFrame(headText([200, { a: 'b' }]), Buffer.from('body')));
      frames.send(frameKinds.cancel, 3);
      frames.send(frameKinds.farewell, 0);
    });
    expect([processProtocol, said.toString('latin1')]).toEqual([
      5,
      [
        '\0\0\0\x0f\0\0\0\0\0\x015 known to both',
        '\0\0\0\x32\0\0\0\x01\x01\0\0\0\0\x2e{"method":"PUT","url":"/","headers":{"a":"b"}}',
        '\0\0\0\x04\0\0\0\x01\x02\x01body',
        '\0\0\0\x17\0\0\0\x02\x01\x01\0\0\0\x0f[200,{"a":"b"}]body',
        '\0\0\0\0\0\0\0\x03\x03\0',
        '\0\0\0\0\0\0\0\0\x05\0',
      ].join(''),
    ]);
  });

  it('says what went wrong, and whether somebody can have seen the request', async () => {
    for (const give of [
      (response: ServerResponse) => void response.destroy(),
      (response: ServerResponse) => {
        response.writeHead(200).write('not all');
        response.destroy(new Error('It broke'));
      },
    ]) {
      answer = (_request, response) => give(response);
      await expect(ask()).rejects.toMatchObject({ wasReached: true });
    }
    answer = () => connections.close();
    await expect(ask()).rejects.toMatchObject({ wasReached: true });
    const { address } = listener;
    listener.destroy();
    // A program that is being started has the closed listener for a moment, and connections come to it until then.
    await eventually(async () => {
      const unread = new PassThrough();
      unread.write('kept');
      const failure = await ask(put(unread), address).then(
        () => undefined,
        (error: { readonly wasReached: boolean }) => error,
      );
      if (failure?.wasReached !== false) return false;
      // The next process is to have all of it.
      expect(String(unread.read())).toBe('kept');
      return true;
    });
  });

  it('is not used any more once the other side says so, but for what is under way', async () => {
    const open: ServerResponse[] = [];
    answer = (_request, response) => void open.push(response);
    const late = ask();
    await eventually(() => open.length > 0);
    listener.stopAccepting();
    await eventually(async () => {
      const refused = ask().catch((error: { wasReached: boolean }) => error);
      return Promise.race([refused.then((error) => 'wasReached' in error && !error.wasReached), sleep(20)]);
    });
    for (const response of open) response.writeHead(200).end('late');
    expect((await late).body).toBe('late');
  });

  it('lets go of what is still to be sent once it is answered, and cuts off what never ends', async () => {
    answer = (_request, response) => void response.writeHead(413).end('no');
    const body = new PassThrough();
    body.write('END');
    expect((await ask(put(body))).status).toBe(413);
    // Whoever sends it can go on.
    expect([body.readableFlowing, body.destroyed]).toEqual([true, false]);
    let closed = false;
    let begun = false;
    answer = (_request, response) => {
      begun = true;
      response.once('close', () => (closed = true));
    };
    const cut = new PassThrough();
    const asked = ask(put(cut));
    await eventually(() => begun);
    cut.destroy();
    await expect(asked).rejects.toMatchObject({ wasReached: true });
    await eventually(() => closed);
  });

  it('tells the other side when nobody waits any more', async () => {
    let [begun, closed] = [false, false];
    answer = (_request, response) => {
      begun = true;
      response.once('close', () => (closed = true));
    };
    const call = connections.ask(listener.address, get, { head: () => {}, part: () => true, fail: () => {} });
    await eventually(() => begun);
    call.abort();
    await eventually(() => closed);
  });

  it('waits for whoever reads, on both ways, and holds up nobody else meanwhile', async () => {
    const size = 20_000_000;
    let written = 0;
    answer = (request, response) => {
      if (request.url !== '/long') return void response.writeHead(200).end('short');
      response.writeHead(200);
      const piece = Buffer.alloc(100_000);
      const goOn = (): void => {
        while (written < size) {
          written += piece.length;
          if (!response.write(piece)) return void response.once('drain', goOn);
        }
        response.end();
      };
      goOn();
    };
    let [read, isEnded, holds] = [0, false, true];
    const long = { head: { method: 'GET', url: '/long', headers: {} } };
    const call = connections.ask(listener.address, long, {
      head: () => undefined,
      part: (bytes, isLast) => {
        read += bytes.length;
        isEnded = isLast;
        return !holds;
      },
      fail: () => undefined,
    });
    await eventually(() => read > 0);
    expect((await ask()).body).toBe('short');
    await sleep(50);
    expect(written).toBeLessThan(1_000_000);
    holds = false;
    call.resume();
    await eventually(() => isEnded);
    expect(read).toBe(size);

    let upload: IncomingMessage | undefined;
    answer = (request, response) => {
      upload = request;
      request.once('end', () => response.writeHead(200).end());
    };
    let sent = 0;
    const body = new PassThrough();
    const goOn = (): void => {
      while (sent < size) {
        sent += 100_000;
        if (!body.write(Buffer.alloc(100_000))) return void body.once('drain', goOn);
      }
      body.end();
    };
    goOn();
    const asked = ask(put(body));
    await eventually(() => upload);
    await sleep(50);
    expect(sent).toBeLessThan(1_000_000);
    let got = 0;
    upload!.on('data', (bytes: Buffer) => (got += bytes.length));
    expect((await asked).status).toBe(200);
    expect(got).toBe(size);
  });

  it('has no more of a long piece under way than the other side has room for, and sends short ones together', async () => {
    const size = 20_000_000;
    let length = (): number => 0;
    const open = async (): Promise<{
      read: () => number;
      parts: () => number;
      goOn: () => void;
      ended: () => boolean;
    }> => {
      let [read, parts, isEnded, holds] = [0, 0, false, true];
      const call = connections.ask(listener.address, get, {
        head: () => undefined,
        part: (bytes, isLast) => {
          read += bytes.length;
          parts++;
          isEnded = isLast;
          return !holds;
        },
        fail: () => undefined,
      });
      await eventually(() => read > 0);
      await sleep(50);
      const goOn = (): void => {
        holds = false;
        call.resume();
      };
      return { read: () => read, parts: () => parts, goOn, ended: () => isEnded };
    };
    answer = (_request, response) => {
      response.writeHead(200).write(Buffer.alloc(size));
      response.end();
      length = () => response.writableLength;
    };
    const long = await open();
    expect(long.read()).toBeLessThan(500_000);
    expect(length()).toBe(size);
    long.goOn();
    await eventually(() => long.ended());
    expect(long.read()).toBe(size);

    answer = (_request, response) => {
      response.writeHead(200).cork();
      for (let n = 0; n < 50_000; n++) response.write('x');
      response.end();
    };
    const short = await open();
    short.goOn();
    await eventually(() => short.ended());
    expect(short.read()).toBe(50_000);
    expect(short.parts()).toBeLessThan(10);
  });

  it('gives up an upload that falls silent', async () => {
    let isCut = false;
    answer = (request) => {
      request.socket.setTimeout(30);
      request.once('close', () => (isCut = true));
    };
    const body = new PassThrough();
    body.write('some');
    await expect(ask(put(body))).rejects.toMatchObject({ wasReached: true });
    await eventually(() => isCut);
  });
});
