import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { pour, pouredPerTurnBytes, sliceBytes } from './pour.js';

/** An answer to a client that takes everything at once. */
function answerTo(take: (bytes: number) => void): ServerResponse {
  const socket = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      take(chunk.length);
      done();
    },
  });
  const response = new ServerResponse(new IncomingMessage(new Socket()));
  response.assignSocket(socket as Socket);
  // As the server of the runtime does.
  socket.on('drain', () => response.emit('drain'));
  return response;
}

describe('a long answer', () => {
  it.each([
    ['text', 'x'.repeat(5_000_000)],
    ['parts', Array.from({ length: 50 }, () => new Uint8Array(100_000))],
  ])('goes out in several turns of the event loop, however fast it is read (%s)', async (_, body) => {
    let turn = 0;
    const taken: number[] = [];
    const response = answerTo((bytes) => (taken[turn] = (taken[turn] ?? 0) + bytes));
    let isOver = false;
    response.once('finish', () => (isOver = true));
    response.writeHead(200, { 'content-length': 5_000_000 });
    pour(response, body);
    for (; !isOver && turn < 1_000; turn++) await new Promise((resolve) => setImmediate(resolve));
    const all = taken.reduce((sum, bytes) => sum + (bytes ?? 0), 0);
    expect(all).toBeGreaterThan(5_000_000);
    // Beside the body there are the headers.
    expect(all).toBeLessThan(5_001_000);
    expect(Math.max(...taken.map((bytes) => bytes ?? 0))).toBeLessThan(pouredPerTurnBytes + 2 * sliceBytes);
  });

  it('is not written any further for a client that has gone', async () => {
    let taken = 0;
    const response = answerTo((bytes) => (taken += bytes));
    response.on('error', () => undefined);
    response.writeHead(200);
    pour(response, 'x'.repeat(5_000_000));
    response.destroy();
    for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(taken).toBeLessThan(pouredPerTurnBytes + 2 * sliceBytes);
  });
});
