import { type FederationClient, FederationRequestError } from '@rookery/federation-client';
import { SilentLogger } from '@rookery/platform';
import { FakeClock, SeededIds } from '@rookery/testing';
import { Destination, type DestinationParts } from './destination.js';
import type { EduStore, OutgoingEdu, StoredEdus } from './outgoing-edu.js';
import { WrittenTransactions } from './written-transactions.js';
import { SendingTurns, type TurnTaker } from './turns.js';

interface Says {
  readonly pdus: unknown;
}

interface Tried {
  readonly id: string;
  readonly text: string;
}

/**
 * A destination whose server answers as it is told: `undefined` is a success, a promise one that comes later, an object what it says of
 * events, `silence` no answer.
 */
function make(...answers: (FederationRequestError | 'silence' | Promise<Says | void> | Says | undefined)[]): {
  readonly destination: Destination;
  readonly clock: FakeClock;
  readonly tried: Tried[];
  /** For each turn that it asked for, whether that was one of the slow. */
  readonly slow: boolean[];
  /** Puts events in the database. @param reached answers up to where the server has them, each time that is read */
  store(events: readonly ReturnType<typeof event>[], reached?: () => number): void;
  /** Adds a store of EDUs, which go out as they are. */
  eduStore(name: EduStore['name'], edus: OutgoingEdu[], perStep?: number): EduStore;
  /** What is noted of the server, and not written. */
  noted: number;
} {
  const clock = new FakeClock();
  const tried: Tried[] = [];
  const slow: boolean[] = [];
  const turns = new SendingTurns(clock);
  const client = {
    request: ({ path, canonicalContent, signal }: { path: string; canonicalContent: Buffer; signal: AbortSignal }) => {
      tried.push({ id: path.split('/').at(-1)!, text: canonicalContent.toString() });
      const failure = answers.shift();
      if (failure === 'silence')
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(unwanted())));
      if (failure instanceof FederationRequestError) return Promise.reject(failure);
      return Promise.resolve(failure).then((says) => ({ body: Buffer.from(JSON.stringify(says ?? {})) }));
    },
  } as unknown as FederationClient;
  const settings: Record<string, unknown> = {
    'federation.max_long_retries': 10,
    'federation.max_long_retry_delay': 60_000,
  };
  let transactions = 0;
  let stored: readonly ReturnType<typeof event>[] = [];
  let reachedBy = (): number => 0;
  const made = { noted: 0 };
  const stores: EduStore[] = [];
  const parts = {
    ...{ clock, client, ids: new SeededIds(), logger: new SilentLogger() },
    config: { serverName: 'home.test', get: (name: string) => settings[name] },
    metrics: { sent: () => undefined },
    destinations: { state: async () => ({ retryAtTs: 0 }) },
    texts: { of: async (ids: string[]) => new Map(ids.map((id) => [id, `{"id":"${id}"}`])) },
    bodies: new WrittenTransactions('home.test'),
    turns: { ask: (taker: TurnTaker) => (slow.push(taker.isSlow), turns.ask(taker)) },
    backlogs: {
      reachedBy: async () => reachedBy(),
      of: async (_: string, after: number) => stored.filter(({ streamOrdering }) => streamOrdering > after),
      // Each event rests upon the one before it.
      before: async (_: string, eventIds: string[]) =>
        stored.filter((_event, i) => eventIds.includes(stored[i + 1]?.eventId ?? '')),
    },
    successes: { note: (_: string, ordering: number) => (made.noted = ordering), unwritten: () => made.noted },
    stores,
    stopping: new AbortController().signal,
    nextTransactionId: () => `t${++transactions}`,
    maySend: () => true,
    onIdle: () => undefined,
  } as unknown as DestinationParts;
  const store = (events: typeof stored, reached = reachedBy): void => {
    stored = events;
    reachedBy = reached;
  };
  const eduStore = (name: EduStore['name'], edus: OutgoingEdu[], perStep = 1): EduStore => {
    const next = async (_: string, limit: number): Promise<StoredEdus> => {
      const count = Math.ceil(limit / perStep) * perStep;
      return {
        ...{ edus: edus.slice(0, count), isAll: edus.length <= count },
        delivered: async () => void edus.splice(0, count),
      };
    };
    stores.push({ name, destinations: async () => [], next });
    return stores.at(-1)!;
  };
  return Object.assign(made, { destination: new Destination('far.test', parts), clock, tried, slow, store, eduStore });
}

const failed = (details: { status: number; retryAfterMs?: number }): FederationRequestError =>
  new FederationRequestError('far.test', 'status', 'no', details);
const lost = (): FederationRequestError => new FederationRequestError('far.test', 'unreachable', 'gone');
const timedOut = (): FederationRequestError => new FederationRequestError('far.test', 'timeout', 'silent');
const unwanted = (): FederationRequestError => new FederationRequestError('far.test', 'aborted', 'given up');
const event = (n: number): { eventId: string; roomId: string; streamOrdering: number } => ({
  eventId: `$${n}`,
  roomId: '!r',
  streamOrdering: n,
});
const pdusOf = ({ text }: Tried): unknown => (JSON.parse(text) as { pdus: { id: string }[] }).pdus.map(({ id }) => id);

describe('Destination', () => {
  it.each([
    ['no answer comes', lost()],
    ['it answers with a failure of its own', failed({ status: 502 })],
    ['it wants to be asked later', failed({ status: 429, retryAfterMs: 5_000 })],
  ])('repeats a transaction as it was when %s, whatever came meanwhile', async (_, failure) => {
    const { destination, clock, tried } = make(failure, failure);
    destination.addEvents([event(1)]);
    destination.addTyping({ roomId: '!r', userId: '@a:home.test', typing: true });
    await clock.advance(0);
    expect(tried).toHaveLength(1);
    destination.addEvents([event(2)]);
    destination.addTyping({ roomId: '!r', userId: '@a:home.test', typing: false });
    await clock.advance(300_000);
    expect(tried.map(({ id }) => id)).toEqual(['t1', 't1', 't1', 't2']);
    expect(new Set(tried.slice(0, 3).map(({ text }) => text)).size).toBe(1);
    expect(tried.slice(2).map(pdusOf)).toEqual([['$1'], ['$2']]);
    // What changed meanwhile is told too.
    expect(tried[3]!.text).toContain('"typing":false');
    expect(destination.isIdle).toBe(true);
  });

  it.each([429, 502, 503])(
    'waits for an hour at most, however long a server wants to be left alone (%i)',
    async (status) => {
      const { destination, clock, tried } = make(
        failed({ status, retryAfterMs: 1_800_000 }),
        failed({ status, retryAfterMs: 1e12 }),
      );
      destination.addEvents([event(1)]);
      await clock.advance(0);
      expect(tried).toHaveLength(1);
      await clock.advance(1_790_000);
      expect(tried).toHaveLength(1);
      await clock.advance(10_000);
      expect(tried).toHaveLength(2);
      await clock.advance(3_600_000);
      expect(tried).toHaveLength(3);
      expect(destination.isIdle).toBe(true);
    },
  );

  it('notes what a server took that answers a moment after nothing is to be sent any more', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const made = make(promise);
    made.destination.addEvents([event(1)]);
    await made.clock.advance(0);
    made.destination.addEvents([event(2)]);
    const ended = made.destination.end();
    await made.clock.advance(900);
    resolve();
    await ended;
    expect([made.noted, made.tried.length]).toEqual([1, 1]);
  });

  it('does not wait for longer than a moment for the answer then', async () => {
    const made = make('silence');
    made.destination.addEvents([event(1)]);
    await made.clock.advance(0);
    let isOver = false;
    const ended = made.destination.end().then(() => (isOver = true));
    await made.clock.advance(900);
    expect(isOver).toBe(false);
    await made.clock.advance(200);
    await ended;
    expect([made.noted, made.tried.length]).toEqual([0, 1]);
  });

  it('does not wait any longer for a server that shows life, and does not hurry', async () => {
    const { destination, clock, tried } = make(lost(), lost(), lost());
    destination.addEvents([event(1)]);
    await clock.advance(0);
    destination.showedLife();
    await clock.advance(0);
    expect(tried).toHaveLength(1);
    await clock.advance(1_300);
    expect(tried).toHaveLength(2);
    // It would be tried again after four seconds.
    await clock.advance(1_000);
    destination.showedLife();
    destination.showedLife();
    await clock.advance(0);
    expect(tried).toHaveLength(3);
    await clock.advance(2_000);
    expect(tried).toHaveLength(3);
    destination.showedLife();
    await clock.advance(0);
    expect(tried.map(({ id }) => id)).toEqual(['t1', 't1', 't1', 't1']);
    expect(destination.isIdle).toBe(true);
    destination.showedLife();
    expect(destination.isIdle).toBe(true);
  });

  it('has a server wait with those that do not answer until it is heard of', async () => {
    const { destination, clock, slow } = make(lost(), lost(), lost(), lost());
    destination.addEvents([event(1)]);
    await clock.advance(1_300);
    expect(slow).toEqual([false, true]);
    destination.recovered();
    await clock.advance(1_300);
    expect(slow).toEqual([false, true, false, true]);
    await clock.advance(1_300);
    destination.showedLife();
    await clock.advance(0);
    expect(slow.slice(4)).toEqual([false]);
    expect(destination.isIdle).toBe(true);
  });

  it('asks a server that speaks but owes an answer once more, and then waits for it', async () => {
    const { destination, clock, tried, slow } = make('silence', 'silence');
    destination.addEvents([event(1)]);
    await clock.advance(900);
    // That it may have said before it was asked.
    destination.showedLife();
    await clock.advance(20_000);
    expect(tried).toHaveLength(1);
    destination.showedLife();
    destination.showedLife();
    await clock.advance(0);
    expect(tried.map(({ id }) => id)).toEqual(['t1', 't1']);
    expect(tried[1]!.text).toBe(tried[0]!.text);
    expect(slow).toEqual([false, false]);
    await clock.advance(20_000);
    destination.showedLife();
    await clock.advance(20_000);
    expect(tried).toHaveLength(2);
    // It was away, as somebody else noticed, and is there again.
    destination.recovered();
    await clock.advance(0);
    expect(tried.map(({ id }) => id)).toEqual(['t1', 't1', 't1']);
    expect(destination.isIdle).toBe(true);
  });

  it('does not wait for the answer of a server that speaks, though it owed one before until its time was over', async () => {
    const { destination, clock, tried } = make(timedOut(), 'silence');
    destination.addEvents([event(1)]);
    await clock.advance(1_300);
    expect(tried).toHaveLength(2);
    await clock.advance(2_000);
    destination.showedLife();
    await clock.advance(3_000);
    expect(tried.map(({ id }) => id)).toEqual(['t1', 't1', 't1']);
    expect(destination.isIdle).toBe(true);
  });

  it('gives a server that was heard of at once five seconds to answer', async () => {
    const { destination, clock, tried } = make('silence');
    destination.addEvents([event(1)]);
    await clock.advance(2_000);
    destination.showedLife();
    await clock.advance(2_900);
    expect(tried).toHaveLength(1);
    await clock.advance(100);
    expect(tried).toHaveLength(2);
    expect(destination.isIdle).toBe(true);
  });

  it('asks a server that refused everything again when it shows life, less and less often', async () => {
    const refusals = Array.from({ length: 8 }, () => failed({ status: 403 }));
    const { destination, clock, tried, eduStore } = make(...refusals);
    destination.addStored(eduStore('to_device', [{ type: 'm.test', text: '{}' }]));
    await clock.advance(0);
    const triesAfter = async (ms: number): Promise<number> => {
      await clock.advance(ms);
      destination.showedLife();
      await clock.advance(0);
      return tried.length;
    };
    expect([await triesAfter(1_900), await triesAfter(200)]).toEqual([1, 2]);
    expect([await triesAfter(3_900), await triesAfter(200)]).toEqual([2, 3]);
    expect([await triesAfter(7_900), await triesAfter(200)]).toEqual([3, 4]);
    for (let i = 4; i < 8; i++) await triesAfter(60_000);
    expect([tried.length, await triesAfter(59_900), await triesAfter(200)]).toEqual([8, 8, 9]);
    expect(destination.isIdle).toBe(true);
  });

  it('waits with what is in no hurry for something else to go along with', async () => {
    const { destination, clock, tried, eduStore } = make();
    const edus = [{ type: 'm.test', text: '{}' }];
    destination.enclose(eduStore('to_device', edus));
    await clock.advance(60_000);
    expect([tried.length, destination.isIdle]).toEqual([0, false]);
    destination.addEvents([event(1)]);
    await clock.advance(0);
    expect(tried.map(pdusOf)).toEqual([['$1']]);
    expect([edus.length, destination.isIdle]).toEqual([0, true]);
  });

  it('tells what a server refused under new ids, bit by bit', async () => {
    const refusal = failed({ status: 413 });
    const { destination, clock, tried } = make(refusal, refusal);
    destination.addEvents([event(1), event(2)]);
    await clock.advance(300_000);
    expect(tried.map(({ id }) => id)).toEqual(['t1', 't2', 't3']);
    expect(tried.map(pdusOf)).toEqual([['$1', '$2'], ['$1'], ['$2']]);
    expect(destination.isIdle).toBe(true);
  });

  describe('of a server that says that it has not what events rest upon', () => {
    const lacks = (...ids: string[]): Says => ({
      pdus: Object.fromEntries(ids.map((id) => [id, { error: 'Could not find prev_events of this event' }])),
    });

    it('sends them once more behind that, before what came meanwhile, and never again', async () => {
      const { promise, resolve } = Promise.withResolvers<void>();
      const { destination, clock, tried, store } = make(
        undefined,
        promise.then(() => lacks('$2')),
        lacks('$1', '$2'),
      );
      store([event(1), event(2), event(3)]);
      destination.addEvents([event(1)]);
      await clock.advance(0);
      destination.addEvents([event(2)]);
      await clock.advance(0);
      destination.addEvents([event(3)]);
      resolve();
      await clock.advance(300_000);
      expect(tried.map(pdusOf)).toEqual([['$1'], ['$2'], ['$1', '$2', '$3']]);
      expect(destination.isIdle).toBe(true);
    });

    it.each<[string, Says]>([
      ['there is nothing to send before it', lacks('$1')],
      ['it says something else', { pdus: { $2: { error: 'You may not send this' } } }],
      ['it says so of an event that it was not sent', lacks('$9')],
      ['its words are none', { pdus: { $2: { error: ['prev_events'] } } }],
    ])('sends nothing once more where %s', async (_, says) => {
      const { destination, clock, tried, store } = make(says);
      store([event(1), event(2), event(3)]);
      destination.addEvents([event(1), event(2)]);
      await clock.advance(300_000);
      expect(tried.map(pdusOf)).toEqual([['$1', '$2']]);
      expect(destination.isIdle).toBe(true);
    });
  });

  it.each([413, 400])(
    'leaves out two EDUs of one step that a server refuses with %i, after a moment',
    async (status) => {
      const error = new FederationRequestError('far.test', 'status', 'no', { status, errcode: 'M_TOO_LARGE' });
      const { destination, clock, tried, eduStore } = make(...Array.from({ length: 50 }, () => error));
      const edus = ['"a"', '"b"'].map((text) => ({ type: 'm.test', text }));
      destination.addStored(eduStore('device_lists', edus, 2));
      await clock.advance(900);
      expect(tried).toHaveLength(1);
      await clock.advance(200);
      expect([tried.length, edus.length, destination.isIdle]).toEqual([2, 0, true]);
    },
  );

  it('forgets messages that have no form in which they could be sent, and goes on with those behind them', async () => {
    const { destination, clock, tried, eduStore } = make();
    const sound = { type: 'm.test', text: '"sound"' };
    const messages: (OutgoingEdu | undefined)[] = [...Array.from({ length: 50 }, () => undefined), sound, undefined];
    const next = async (_: string, limit: number): Promise<StoredEdus> => ({
      edus: messages.slice(0, limit).flatMap((one) => one ?? []),
      isAll: messages.length <= limit,
      delivered: async () => void messages.splice(0, limit),
    });
    destination.addStored(Object.assign(eduStore('to_device', []), { next }));
    await clock.advance(0);
    expect(tried.map(({ text }) => (JSON.parse(text) as { edus: unknown }).edus)).toEqual([['sound']]);
    expect([messages.length, destination.isIdle]).toEqual([0, true]);
  });

  it('sends events, and what lies in other stores, while one cannot be read', async () => {
    const { destination, clock, tried, eduStore } = make();
    let isReadable = false;
    const lists = eduStore('device_lists', [{ type: 'm.test', text: '"list"' }]);
    const { next } = lists;
    const unreadable = (...asked: Parameters<typeof next>): Promise<StoredEdus> =>
      isReadable ? next(...asked) : Promise.reject(new TypeError('no such thing'));
    destination.addStored(Object.assign(lists, { next: unreadable }));
    destination.addStored(eduStore('to_device', [{ type: 'm.test', text: '"message"' }]));
    destination.addEvents([event(1)]);
    await clock.advance(0);
    expect(tried.map(pdusOf)).toEqual([['$1']]);
    expect(tried[0]!.text).toContain('"message"');
    destination.addEvents([event(2)]);
    await clock.advance(10_000);
    expect(tried.map(pdusOf)).toEqual([['$1'], ['$2']]);
    isReadable = true;
    await clock.advance(10_000);
    expect(tried).toHaveLength(3);
    expect(tried[2]!.text).toContain('"list"');
    expect(destination.isIdle).toBe(true);
  });

  it('goes on with messages after they could not be read once', async () => {
    const { destination, clock, tried, eduStore } = make();
    const store = eduStore('to_device', [{ type: 'm.test', text: '"message"' }]);
    const { next } = store;
    const broken = (): Promise<StoredEdus> => {
      Object.assign(store, { next });
      return Promise.reject(new Error('The database is away'));
    };
    destination.addStored(Object.assign(store, { next: broken }));
    await clock.advance(0);
    expect([tried.length, destination.isIdle]).toEqual([0, false]);
    await clock.advance(5_000);
    expect(tried.map(({ text }) => (JSON.parse(text) as { edus: unknown }).edus)).toEqual([['message']]);
    expect(destination.isIdle).toBe(true);
  });

  it('tells changes of devices before messages to them, whichever came first', async () => {
    const { destination, clock, tried, eduStore } = make();
    const lists = eduStore('device_lists', [{ type: 'm.test', text: '"list"' }]);
    destination.addStored(eduStore('to_device', [{ type: 'm.test', text: '"message"' }]));
    destination.addStored(lists);
    await clock.advance(0);
    expect(tried.map(({ text }) => (JSON.parse(text) as { edus: unknown }).edus)).toEqual([['list', 'message']]);
    expect(destination.isIdle).toBe(true);
  });

  it('keeps no more than a thousand events in memory while no answer comes', async () => {
    const { destination, clock } = make('silence');
    for (let n = 1; n <= 1_000; n++) destination.addEvents([event(n)]);
    await clock.advance(0);
    expect(destination.waitingEvents).toBe(1_000);
    destination.addEvents([event(1_001)]);
    expect(destination.waitingEvents).toBe(0);
    destination.stop();
  });

  it('takes what is noted while it is looked up how far a server has got for what it has', async () => {
    const made = make();
    made.noted = 5;
    // What was read is older than what is written while it is read.
    made.store([event(4), event(6)], () => ((made.noted = 0), 3));
    made.destination.catchUp();
    await made.clock.advance(0);
    expect(made.tried.map(pdusOf)).toEqual([['$6']]);
    expect(made.destination.isIdle).toBe(true);
  });

  it('keeps no events in memory for a server that is left alone, which has them from the database later', async () => {
    const { destination, clock, tried, store } = make(failed({ status: 403 }));
    destination.addTyping({ roomId: '!r', userId: '@a:home.test', typing: true });
    await clock.advance(0);
    expect(tried).toHaveLength(1);
    const events = [event(1), event(2), event(3)];
    store(events);
    destination.addEvents(events.slice(0, 2));
    destination.addEvents(events.slice(2));
    expect(destination.waitingEvents).toBe(0);
    await clock.advance(3_600_000);
    expect(tried.slice(1).map(pdusOf)).toEqual([['$1', '$2', '$3']]);
    expect(destination.isIdle).toBe(true);
  });
});
