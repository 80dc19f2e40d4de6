import { eventually } from '@rookery/testing';
import { connect, type Socket } from 'node:net';
import { answerTimeoutMs, leastTakenBytes, UnreadAnswers } from './answers.js';
import { turnLimits } from './answer-turns.js';
import { FakeClock, lines, probes, start } from './http.fixture.js';
import { networkOf } from './networks.js';

class Answer {
  takenBytes: number | undefined = 0;
  isCut = false;
  readonly holder: string;
  constructor(userId: string | undefined, ip = '1.2.3.4') {
    this.holder = userId ?? networkOf(ip);
  }
  cut(): void {
    this.isCut = true;
  }
}

describe('answers that are not read', () => {
  const cutOf = (answers: readonly Answer[]): boolean[] => answers.map(({ isCut }) => isCut);

  it('are bounded for each user, and for each address where nobody is logged in', () => {
    const unread = new UnreadAnswers({ ofHolder: 100, altogether: 1_000 });
    const alice = [new Answer('@a:b'), new Answer('@a:b'), new Answer('@a:b')];
    const others = [new Answer('@c:d'), new Answer(undefined), new Answer(undefined, '4.3.2.1')];
    for (const answer of others) unread.add(answer, 90, 0);
    for (const answer of alice) unread.add(answer, 50, 0);
    expect([cutOf(alice), cutOf(others)]).toEqual([
      [true, false, false],
      [false, false, false],
    ]);
    const network = [new Answer(undefined, '2001:db8::1'), new Answer(undefined, '2001:db8::2')];
    for (const answer of network) unread.add(answer, 60, 0);
    expect(cutOf(network)).toEqual([true, false]);
    unread.remove(alice[1]!);
    const next = new Answer('@a:b');
    unread.add(next, 50, 0);
    expect([alice[2]!.isCut, next.isCut]).toEqual([false, false]);
  });

  it('are bounded altogether, the newest always allowed', () => {
    const unread = new UnreadAnswers({ ofHolder: 1_000, altogether: 100 });
    const answers = ['a', 'b', 'c'].map((name) => new Answer(name));
    for (const answer of answers) unread.add(answer, 50, 0);
    expect(cutOf(answers)).toEqual([true, false, false]);
    const huge = new Answer('d');
    unread.add(huge, 5_000, 0);
    expect([cutOf(answers), huge.isCut, unread.size]).toEqual([[true, true, true], false, 1]);
  });

  it('are cut off when nothing is taken for a minute, or next to nothing of what there is', () => {
    const unread = new UnreadAnswers();
    const [slow, still, idle, dripping] = [new Answer('a'), new Answer('b'), new Answer('c'), new Answer('d')];
    idle.takenBytes = undefined;
    for (const answer of [slow, still, idle, dripping]) unread.add(answer, 1, 0);
    const [large, largeDripping] = [new Answer('e'), new Answer('f')];
    for (const answer of [large, largeDripping]) unread.add(answer, 600 * leastTakenBytes, 0);
    for (let nowMs = 0; nowMs <= 3 * answerTimeoutMs; nowMs += 5_000) {
      dripping.takenBytes! += 1;
      large.takenBytes! += leastTakenBytes;
      if (nowMs % 50_000 === 0) for (const answer of [slow, largeDripping]) answer.takenBytes! += leastTakenBytes;
      unread.check(nowMs);
    }
    const all = [slow, still, idle, dripping, large, largeDripping];
    expect(cutOf(all)).toEqual([false, true, false, true, false, true]);
    expect(unread.size).toBe(3);
  });

  it('count with what they hold, however little of it is on its way', async () => {
    const { app, port } = await start();
    const ask = (path: string): Socket => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined).write(`GET /_matrix/client/v3/${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
      return socket;
    };
    const answer = (socket: Socket): Promise<string> =>
      new Promise((resolve) => socket.once('data', (chunk: Buffer) => resolve(chunk.toString())));
    const held = ask(`held/${turnLimits.unreadBytes}`);
    await answer(held);
    probes.made = 0;
    const waiting = ask('made/1');
    const waited = answer(waiting);
    // A later one that needs no turn is answered before it.
    expect(await answer(ask('big'))).toMatch(/^HTTP\/1\.1 200/);
    expect(probes.made).toBe(0);
    held.destroy();
    expect(await waited).toMatch(/^HTTP\/1\.1 200/);
    await app.close(0);
  });

  it('end with their connection, whatever their size; who reads slowly gets them whole', async () => {
    const clock = new FakeClock();
    const { app, port } = await start({ clock });
    const ask = (size: number): Socket => {
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => undefined).pause();
      socket.write(`GET /_matrix/client/v3/large/${size} HTTP/1.1\r\nHost: x\r\n\r\n`);
      return socket;
    };
    lines.length = 0;
    const silent = ask(30_000_000);
    const slow = ask(30_000_000);
    let read = 0;
    let ended = false;
    slow.on('data', (chunk: Buffer) => (read += chunk.length)).on('close', () => (ended = true));
    slow.pause();
    // A megabyte now and then, while time goes by.
    await eventually(async () => {
      await clock.advance(5_000);
      const before = read;
      slow.resume();
      await eventually(() => read - before > 1_000_000 || read > 30_000_000 || ended);
      if (read <= 30_000_000) slow.pause();
      return read > 30_000_000 || ended;
    });
    expect([ended, read > 30_000_000]).toEqual([false, true]);
    await eventually(async () => {
      await clock.advance(5_000);
      return lines.some(({ message }) => message === 'Client went away');
    });
    silent.destroy();
    slow.destroy();
    await app.close(0);
  });

  it('are not made in numbers for one who does not read', async () => {
    const clock = new FakeClock();
    const { app, port } = await start({ clock });
    // More than the system would take off our hands.
    const size = 20_000_000;
    const sockets: Socket[] = [];
    let refused = 0;
    for (let i = 0; i < 300; i++) {
      const socket = connect(port, '127.0.0.1');
      // The head of an answer tells; of what is large the rest stays where it is.
      socket
        .on('error', () => undefined)
        .once('data', (chunk: Buffer) => {
          if (chunk.toString().startsWith('HTTP/1.1 429')) refused++;
          socket.pause();
        });
      socket.write(`GET /_matrix/client/v3/made/${size} HTTP/1.1\r\nHost: x\r\n\r\n`);
      sockets.push(socket);
    }
    Object.assign(probes, { made: 0, making: 0, mostAtOnce: 0 });
    await eventually(() => refused >= 300 - turnLimits.waiting - turnLimits.ofHolder);
    expect(probes.mostAtOnce).toBeLessThanOrEqual(turnLimits.ofHolder);
    expect(probes.made).toBeLessThanOrEqual(turnLimits.ofHolder);
    // Who is answered is let go, and with it goes what nobody has read; then it is another's turn.
    const { made } = probes;
    for (const socket of sockets.slice(0, 50)) socket.destroy();
    await eventually(() => probes.made > made);
    for (const socket of sockets) socket.destroy();
    await app.close(0);
  });
});
