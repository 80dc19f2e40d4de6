import type { IncomingMessage, ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { arrivalsPerTurn } from './arrivals.js';
import type { HeldBytes } from './held-bytes.js';
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

describe('bytes of bodies that clients have begun to send', () => {
  const mebibyte = Buffer.alloc(1_048_576);

  /** A body of so many mebibytes, of which more is still to come. */
  class BegunBody extends Readable {
    readonly headers = { 'content-length': '1000000000' };
    readonly method = 'PUT';
    readonly socket: { readonly remoteAddress: string };

    constructor(
      remoteAddress: string,
      private left: number,
    ) {
      super({ highWaterMark: mebibyte.length });
      this.socket = { remoteAddress };
    }
    override _read(): void {
      process.nextTick(() => {
        if (this.left-- > 0) this.push(mebibyte);
      });
    }
  }

  interface Sending {
    readonly body: BegunBody;
    readonly context: RequestContext;
    /** Why it is read no further; `undefined` until then. */
    failed: unknown;
  }

  const held = ({ altogether, limits }: HeldBytes): [number, number] => [altogether, limits.altogether];

  /** Sends mebibytes, and lets all be read that can be. */
  async function send(store: RequestContexts, address: string, mebibytes: number, known?: string): Promise<Sending> {
    const body = new BegunBody(address, mebibytes);
    const context = new RequestContext(
      ...(['id', '/', body as unknown as IncomingMessage, { writableFinished: true } as ServerResponse] as const),
      ...([{ xForwarded: false, compress: false }, 0, store] as const),
    );
    if (known !== undefined) context.vouchFor(known);
    const sending: Sending = { body, context, failed: undefined };
    void context.readBody(Infinity)?.catch((error: unknown) => (sending.failed = error));
    for (let i = 0; i < mebibytes + 10; i++) await nextTurn();
    return sending;
  }

  const refused = { status: 429, errcode: 'M_LIMIT_EXCEEDED', extra: { retry_after_ms: 2_000 } };

  it.each([
    ['nobody knows', 32, 128, (store: RequestContexts) => store.strangerBodies, () => undefined],
    ['are known', 64, 256, (store: RequestContexts) => store.knownBodies, (address: string) => `@${address}:test`],
  ])('are bounded for each of those whom %s, and for all of them', async (_, ofOne, ofAll, bytes, knownAs) => {
    const store = new RequestContexts(() => 0);
    const by = (address: string, mebibytes: number): Promise<Sending> =>
      send(store, address, mebibytes, knownAs(address));
    const first = await by('192.0.2.1', ofOne);
    expect([first.failed, bytes(store).altogether]).toEqual([undefined, ofOne * mebibyte.length]);
    expect((await by('192.0.2.1', 1)).failed).toMatchObject(refused);
    // What was refused is not held.
    expect(bytes(store).altogether).toBe(ofOne * mebibyte.length);
    const others = [await by('192.0.2.2', ofOne), await by('192.0.2.3', ofOne), await by('192.0.2.4', ofOne)];
    expect(others.map(({ failed }) => failed)).toEqual([undefined, undefined, undefined]);
    expect(held(bytes(store))).toEqual([ofAll * mebibyte.length, ofAll * mebibyte.length]);
    expect((await by('192.0.2.5', 1)).failed).toMatchObject(refused);
    // A client that goes makes room.
    first.body.destroy();
    await nextTurn();
    const next = await by('192.0.2.5', 1);
    expect(next.failed).toBeUndefined();
    for (const { context } of [...others, next]) context.finished();
    expect([store.strangerBodies.altogether, store.knownBodies.altogether]).toEqual([0, 0]);
  });

  it('count for whom somebody vouches for, and no longer for the address', async () => {
    const store = new RequestContexts(() => 0);
    const sent = await send(store, '192.0.2.1', 32);
    expect((await send(store, '192.0.2.1', 1)).failed).toMatchObject(refused);
    sent.context.vouchFor('@alice:test');
    expect([store.strangerBodies.altogether, store.knownBodies.of('@alice:test')]).toEqual([0, 32 * mebibyte.length]);
    const next = await send(store, '192.0.2.1', 1);
    expect(next.failed).toBeUndefined();
    next.context.finished();
    sent.context.finished();
    expect([store.strangerBodies.altogether, store.knownBodies.altogether]).toEqual([0, 0]);
  });
});
