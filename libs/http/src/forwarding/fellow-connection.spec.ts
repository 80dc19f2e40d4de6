import { eventually } from '@rookery/testing';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { PassThrough } from 'node:stream';
import { FellowConnections, type FellowRequest } from './fellow-connection.js';

interface Heard {
  readonly status: number;
  readonly headers: readonly string[];
  readonly body: string;
}

describe('A connection to a fellow process', () => {
  let server: Server;
  let port: number;
  /** What the other side answers, in such pieces; the connections that it had, and what came in by them. */
  let answers: readonly (string | Buffer)[][];
  const sockets: Socket[] = [];
  let received = '';
  let endsAfter: boolean;
  let connections: FellowConnections;

  beforeEach(async () => {
    answers = [];
    sockets.length = 0;
    received = '';
    endsAfter = false;
    server = createServer((socket) => {
      sockets.push(socket);
      socket.on('error', () => {});
      socket.on('data', (bytes) => {
        received += bytes.toString('latin1');
        const answer = answers[0];
        if (answer === undefined || !/^(?:GET|HEAD)[^]*\r\n\r\n$|END(?:\r\n0\r\n\r\n)?$/.test(received)) return;
        answers = answers.slice(1);
        void (async () => {
          for (const piece of answer) {
            socket.write(piece);
            // The next piece is another event on the other side.
            await new Promise((resolve) => setTimeout(resolve, 1));
          }
          if (endsAfter) socket.end();
        })();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    ({ port } = server.address() as AddressInfo);
    connections = new FellowConnections({});
  });
  afterEach(async () => {
    connections.close();
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });

  const get: FellowRequest = { method: 'GET', path: '/', headers: [] };
  const ask = (request = get, host = '127.0.0.1'): Promise<Heard> => {
    return new Promise((resolve, reject) => {
      const parts: Buffer[] = [];
      let head = { status: 0, headers: [] as readonly string[] };
      connections.ask({ host, port }, request, {
        head: (status, headers) => (head = { status, headers }),
        part: (bytes) => parts.push(bytes) > 0,
        end: () => resolve({ ...head, body: Buffer.concat(parts).toString() }),
        fail: (error, wasReached) => reject(Object.assign(error, { wasReached })),
      });
    });
  };
  const bytewise = (text: string): string[] => [...text];

  it('reads answers of every form, however they are cut', async () => {
    const forms: [string, Heard][] = [
      [
        'HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 5\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive\r\n\r\nhello',
        { status: 200, headers: ['A', 'b', 'Content-Length', '5'], body: 'hello' },
      ],
      [
        'HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n',
        { status: 404, headers: ['Content-Length', '0'], body: '' },
      ],
      ['HTTP/1.1 204 No Content\r\nx: \r\n\r\n', { status: 204, headers: ['x', ''], body: '' }],
      [
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a=1\r\nSet-Cookie: b: 2\r\n\r\n' +
          '3\r\none\r\n1a;x=y\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nTrailer: t\r\n\r\n',
        {
          ...{ status: 200, headers: ['Set-Cookie', 'a=1', 'Set-Cookie', 'b: 2'] },
          body: 'oneabcdefghijklmnopqrstuvwxyz',
        },
      ],
    ];
    for (const [text, heard] of forms) {
      for (const pieces of [[text], bytewise(text), [text.slice(0, -3), text.slice(-3)]]) {
        answers = [pieces];
        received = '';
        expect(await ask()).toEqual(heard);
      }
    }
    // By few connections, each for one after the other.
    expect(sockets.length).toBeLessThan(forms.length);
  });

  it('expects no body of an answer to HEAD', async () => {
    answers = [['HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n'], ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok']];
    const head = await ask({ method: 'HEAD', path: '/', headers: [] });
    expect(head).toEqual({ status: 200, headers: ['Content-Length', '25'], body: '' });
    expect((await ask()).body).toBe('ok');
  });

  it('takes an answer that ends with its connection, and uses that no more', async () => {
    answers = [
      ['HTTP/1.1 200 OK\r\n\r\nthe', ' whole'],
      ['HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok'],
    ];
    endsAfter = true;
    expect((await ask()).body).toBe('the whole');
    endsAfter = false;
    expect((await ask()).body).toBe('ok');
    answers = [['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok']];
    expect((await ask()).body).toBe('ok');
    expect(sockets.length).toBe(3);
  });

  it('says what went wrong, and whether somebody can have seen the request', async () => {
    for (const text of [
      'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe',
      'HTTP/1.1 200 OK\r\nContent-Le',
      'SSH-2.0-OpenSSH_9.6\r\n\r\n',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n',
    ]) {
      answers = [[text]];
      endsAfter = true;
      await expect(ask()).rejects.toMatchObject({ wasReached: true });
    }
    connections.close();
    await new Promise((resolve) => server.close(resolve));
    await expect(ask()).rejects.toMatchObject({ wasReached: false });
    server.listen(port, '127.0.0.1');
  });

  it('does not ask by a connection that was closed meanwhile, or goes elsewhere', async () => {
    const answer = ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'];
    answers = [answer, answer];
    await ask();
    sockets[0]?.end();
    await eventually(() => sockets[0]?.destroyed);
    expect((await ask()).body).toBe('ok');
    await expect(ask(get, '127.0.0.2')).rejects.toMatchObject({ wasReached: false });
    await eventually(() => sockets[1]?.destroyed);
  });

  it('sends streams with their length or piece by piece', async () => {
    const answer = ['HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'];
    for (const headers of [['content-length', '13'], []]) {
      answers = [answer];
      received = '';
      const body = new PassThrough();
      const asked = ask({ method: 'PUT', path: '/', headers, body });
      body.write('some ');
      await eventually(() => received.includes('some '));
      body.end('more END');
      expect((await asked).body).toBe('ok');
      expect(received.slice(received.indexOf('\r\n\r\n') + 4)).toBe(
        headers.length === 0 ? '5\r\nsome \r\n8\r\nmore END\r\n0\r\n\r\n' : 'some more END',
      );
    }
  });

  it('lets go of what is still to be sent once it is answered, and cuts off what never ends', async () => {
    answers = [['HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno']];
    const body = new PassThrough();
    const put = (sent: PassThrough): FellowRequest => ({ method: 'PUT', path: '/', headers: [], body: sent });
    body.write('END');
    const answered = ask(put(body));
    await eventually(() => received.includes('END'));
    if (answers.length > 0) {
      sockets[0]?.write(String(answers[0]?.[0]));
      answers = [];
    }
    expect((await answered).status).toBe(413);
    // Whoever sends it can go on.
    expect([body.readableFlowing, body.destroyed]).toEqual([true, false]);
    await eventually(() => sockets[0]?.destroyed);
    const cut = new PassThrough();
    const asked = ask(put(cut));
    await eventually(() => sockets.length === 2);
    cut.destroy();
    await expect(asked).rejects.toMatchObject({ wasReached: true });
    await eventually(() => sockets[1]?.destroyed);
  });

  it('waits for whoever reads the answer', async () => {
    const size = 50_000_000;
    answers = [[`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`, Buffer.alloc(size)]];
    let [read, isEnded] = [0, false];
    const holds = { now: true };
    const call = connections.ask({ host: '127.0.0.1', port }, get, {
      head: () => undefined,
      part: (bytes) => {
        read += bytes.length;
        return !holds.now;
      },
      end: () => {
        isEnded = true;
      },
      fail: () => undefined,
    });
    await eventually(() => read > 0);
    const first = read;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(read).toBe(first);
    holds.now = false;
    call.resume();
    await eventually(() => isEnded);
    expect(read).toBe(size);
  });
});
