import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { arrivalsPerTurn } from './arrivals.js';
import { RequestContext, RequestContexts } from './request-context.js';

const pieceBytes = 16_384;
const nextTurn = (): Promise<unknown> => new Promise((resolve) => setImmediate(resolve));

/** A body of which as many pieces lie there as are asked for, up to its end. */
class SentBody extends Readable {
  readonly headers = { 'content-length': '1' };
  readonly method = 'PUT';
  readonly socket = { remoteAddress: '127.0.0.1' };
  taken = 0;

  constructor(private readonly pieces: number) {
    super({ highWaterMark: pieceBytes });
  }
  override _read(): void {
    // As what has come on a connection: behind what goes on now.
    process.nextTick(() => {
      if (this.taken === this.pieces) this.push(null);
      else if (this.taken++ < this.pieces) this.push(Buffer.alloc(pieceBytes));
    });
  }
}

describe('bodies that a crowd sends at once', () => {
  const crowd = 3 * arrivalsPerTurn;
  const pieces = 4;

  const contextOf = (body: SentBody, store: RequestContexts): RequestContext =>
    new RequestContext(
      ...(['id', '/', body as unknown as IncomingMessage, {} as ServerResponse] as const),
      ...([{ xForwarded: false, compress: false }, 0, store] as const),
    );

  /** How many pieces each turn takes out of the connections, until nothing is left. */
  async function takenInTurns(bodies: readonly SentBody[]): Promise<number[]> {
    const counts: number[] = [];
    const all = (): number => bodies.reduce((sum, body) => sum + body.taken, 0);
    for (let before = 0; before < crowd * pieces; before = all()) {
      await nextTurn();
      counts.push(all() - before);
      if (counts.length > 1_000) break;
    }
    return counts;
  }

  it.each([
    ['are read', async (context: RequestContext): Promise<void> => await context.readBody(crowd * pieces * pieceBytes)],
    [
      'are let go by where they were refused',
      async (context: RequestContext): Promise<void> => await Promise.resolve(context.discardBody()),
    ],
  ])('%s so many pieces in a turn of the event loop, after the first of each', async (_, begin) => {
    const store = new RequestContexts(() => 0);
    const bodies = Array.from({ length: crowd }, () => new SentBody(pieces));
    const done = bodies.map((body) => begin(contextOf(body, store)));
    const [first, ...others] = await takenInTurns(bodies);
    expect(first).toBeLessThanOrEqual(crowd + arrivalsPerTurn);
    expect(Math.max(...others)).toBeLessThanOrEqual(2 * arrivalsPerTurn);
    await Promise.all(done);
    expect(bodies.reduce((sum, body) => sum + body.taken, 0)).toBe(crowd * pieces);
  });

  it('are whole in the end', async () => {
    const store = new RequestContexts(() => 0);
    const bodies = Array.from({ length: crowd }, (_, i) => new SentBody(i % 5));
    const contexts = bodies.map((body) => contextOf(body, store));
    await Promise.all(contexts.map(async (context) => await context.readBody(pieces * pieceBytes)));
    expect(contexts.map(({ rawBody }) => rawBody?.length ?? 0)).toEqual(contexts.map((_, i) => (i % 5) * pieceBytes));
  });
});

describe('clients that go at once', () => {
  it('have their requests given up so many in a turn of the event loop', async () => {
    const store = new RequestContexts(() => 0);
    const raw = (): IncomingMessage => ({ headers: {}, socket: { remoteAddress: '127.0.0.1' } }) as IncomingMessage;
    const contexts = Array.from(
      { length: 3 * arrivalsPerTurn },
      () =>
        new RequestContext(
          ...(['id', '/', raw(), { closed: false, writableFinished: false } as ServerResponse] as const),
          ...([{ xForwarded: false, compress: false }, 0, store] as const),
        ),
    );
    const signals = contexts.map((context) => context.signal);
    for (const context of contexts) void context.gather(70_000);
    for (const context of contexts) context.finished();
    const givenUp = (): number => signals.filter(({ aborted }) => aborted).length;
    const inTurns = [givenUp()];
    while (givenUp() < contexts.length && inTurns.length < 10) {
      await nextTurn();
      inTurns.push(givenUp());
    }
    expect(inTurns).toEqual([1, 2, 3].map((turn) => turn * arrivalsPerTurn));
    expect([store.waiting.size, store.unfinished.altogether]).toEqual([0, 0]);
    expect(signals[0]!.reason).toMatchObject({ name: 'AbortError' });
  });

  it('wait for nothing where their answer is out', () => {
    const store = new RequestContexts(() => 0);
    const response = { closed: false, writableFinished: true } as ServerResponse;
    const raw = { headers: {}, socket: { remoteAddress: '127.0.0.1' } } as IncomingMessage;
    const traits = { xForwarded: false, compress: false };
    const context = new RequestContext('id', '/', raw, response, traits, 0, store);
    void context.gather(70_000);
    expect(store.unfinished.altogether).toBe(70_000);
    context.finished();
    expect(store.unfinished.altogether).toBe(0);
  });
});
