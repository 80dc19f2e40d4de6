import { OutboundError } from '@rookery/http';
import { Metrics } from '@rookery/platform';
import { FakeClock, RecordingLogger } from '@rookery/testing';
import type { AppserviceAnswer, AppserviceRequest } from '../queries/appservice-client.js';
import { Registration } from '../registration/registration.js';
import { type SenderParts, ServiceSender } from './service-sender.js';
import type { Transaction } from './transactions.query.js';

const service = new Registration(
  {
    ...{ id: 'irc', url: 'http://x', asToken: 'a', hsToken: 'h', senderUserId: '@irc:example.org', rateLimited: true },
    ...{
      namespaces: { users: [], aliases: [], rooms: [] },
      protocols: [],
      extensions: false,
      scopes: [],
      proxied: undefined,
      sources: undefined,
    },
    ephemeral: { stable: true, unstable: false },
  },
  'example.org',
);
const ok: AppserviceAnswer = { status: 200, text: '{}', json: {} };

describe('the sender of an application service', () => {
  let clock: FakeClock;
  let logger: RecordingLogger;
  let metrics: Metrics;
  let queue: Transaction[];
  let states: string[];
  let sent: { atMs: number; path: string; body: unknown; signal: AbortSignal | undefined }[];
  let answer: (request: AppserviceRequest) => Promise<AppserviceAnswer>;
  let sender: ServiceSender;
  /** Whether this process may send. */
  let may: boolean;
  /** Whether the process that writes says what is next. */
  let isKnown: boolean;

  const transaction = (txnId: number): Transaction => ({ asId: 'irc', txnId, eventIds: [`$${txnId}`] });
  const paths = (): string[] => sent.map(({ path }) => path);
  const start = (wasDown = false): void => {
    const waiting = {
      next: () => Promise.resolve(isKnown || !queue[0] ? queue[0] : 'later'),
      nextId: () => Promise.resolve(1000 + sent.length),
      taken: (_id: string, txnId: number, cameBack: boolean) => {
        queue = queue.filter((one) => one.txnId !== txnId);
        if (cameBack) states.push('up');
        return Promise.resolve();
      },
      setState: (_id: string, state: string) => {
        states.push(state);
        return Promise.resolve();
      },
    };
    const bodies = {
      write: (_service: unknown, { eventIds, toDevice = [] }: Transaction, edus: readonly unknown[]) =>
        Promise.resolve({
          json: JSON.stringify({ eventIds, edus, ...(toDevice.length > 0 && { toDevice }) }),
          events: eventIds.map((eventId) => ({ event: { eventId, type: 'm.room.message', sender: '@a:b' } })),
          isEmpty: eventIds.length + edus.length + toDevice.length === 0,
        }),
    };
    const client = {
      send: (_service: unknown, request: AppserviceRequest) => {
        const body = JSON.parse(request.body ?? '') as unknown;
        sent.push({ atMs: clock.monotonicMs(), path: request.path.replace('/v1', ''), body, signal: request.signal });
        return answer(request);
      },
    };
    const parts = { waiting, bodies, client, queries: {}, database: {}, clock, logger, metrics, maySend: () => may };
    sender = new ServiceSender(service, parts as unknown as SenderParts);
    sender.start(wasDown);
  };

  beforeEach(() => {
    clock = new FakeClock();
    logger = new RecordingLogger();
    metrics = new Metrics('example.org');
    queue = [];
    states = [];
    sent = [];
    [may, isKnown] = [true, true];
    answer = () => Promise.resolve(ok);
  });
  afterEach(() => sender.stop());

  it('sends what was left over, and what comes, in order', async () => {
    queue = [transaction(1), transaction(2)];
    start();
    await clock.advance(0);
    expect(paths()).toEqual(['/transactions/1', '/transactions/2']);
    queue.push(transaction(3));
    sender.wake();
    await clock.advance(0);
    expect(paths().at(-1)).toBe('/transactions/3');
    expect(states).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('tries the same again after 1, 2, 4… up to 512 seconds, and tells once that it is down and up', async () => {
    queue = [transaction(1), transaction(2)];
    answer = () => Promise.resolve({ ...ok, status: 500 });
    start();
    await clock.advance(3_600_000);
    const gaps = sent.slice(1).map(({ atMs }, index) => (atMs - (sent[index]?.atMs ?? 0)) / 1000);
    expect(gaps.slice(0, 12)).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512]);
    expect(new Set(paths())).toEqual(new Set(['/transactions/1']));
    answer = () => Promise.resolve(ok);
    await clock.advance(512_000);
    expect(paths().at(-1)).toBe('/transactions/2');
    expect(states).toEqual(['down', 'up']);
    const { body } = await metrics.render();
    expect(body).toMatch(/synapse_appservice_api_sent_transactions_total\{service="irc",[^}]*\} 2\n/);
    expect(body).toMatch(/synapse_appservice_api_sent_events_total\{service="irc",[^}]*\} 2\n/);
    expect(body).toMatch(
      new RegExp(`synapse_appservice_api_failed_transactions_total\\{service="irc",[^}]*\\} ${sent.length - 2}\\n`),
    );
  });

  it('begins anew with short pauses after a success', async () => {
    queue = [transaction(1)];
    const answers = [500, 500, 500, 200, 500, 200];
    answer = () => Promise.resolve({ ...ok, status: answers.shift() ?? 200 });
    start();
    await clock.advance(7_000);
    expect(queue).toEqual([]);
    queue.push(transaction(2));
    sender.wake();
    await clock.advance(1_000);
    expect(sent.slice(-2).map(({ atMs }) => atMs)).toEqual([7_000, 8_000]);
  });

  it('counts no answer, redirects and everything else as a failure', async () => {
    for (const fail of [
      () => Promise.reject(new OutboundError('connection', 'refused')),
      () => Promise.reject(new OutboundError('timeout', 'too late')),
      () => Promise.resolve({ ...ok, status: 302 }),
      () => Promise.resolve({ ...ok, status: 404 }),
    ]) {
      queue = [transaction(1)];
      answer = fail;
      start();
      await clock.advance(0);
      expect(queue).toHaveLength(1);
      await sender.stop();
    }
  });

  describe('where a proxy lets through two things at a time', () => {
    type Body = { readonly eventIds: string[]; readonly edus: unknown[]; readonly toDevice?: unknown[] };
    const large: Transaction = { asId: 'irc', txnId: 1, eventIds: ['$1', '$2', '$3'], toDevice: [{ n: 1 }, { n: 2 }] };
    const things = (body: unknown): unknown[] => {
      const { eventIds, edus, toDevice = [] } = body as Body;
      return [...eventIds, ...toDevice, ...edus];
    };
    let refused: string[];
    beforeEach(() => {
      refused = [];
      answer = ({ body = '' }) => {
        const isTooLarge = things(JSON.parse(body)).length > 2 || refused.some((one) => body.includes(one));
        return Promise.resolve(isTooLarge ? { ...ok, status: 413 } : ok);
      };
    });
    /** What the service took: with which id, and what. */
    const took = (): [string, unknown[]][] => {
      const isTooLarge = (body: unknown): boolean =>
        things(body).length > 2 || refused.some((one) => JSON.stringify(body).includes(one));
      return sent.filter(({ body }) => !isTooLarge(body)).map(({ path, body }) => [path, things(body)]);
    };

    it('sends a transaction in pieces, in order and without a pause', async () => {
      queue = [large, transaction(2)];
      start();
      await clock.advance(0);
      expect(took()).toEqual([
        ['/transactions/1-0-2', ['$1', '$2']],
        ['/transactions/1-2-3', ['$3']],
        ['/transactions/1-3-5', [{ n: 1 }, { n: 2 }]],
        ['/transactions/2', ['$2']],
      ]);
      expect([queue, states, clock.pendingTimers]).toEqual([[], [], 0]);
    });

    it('goes on with the piece that failed; a process that begins anew gives the same ids', async () => {
      queue = [large];
      const through = answer;
      let failures = 0;
      answer = (request) =>
        request.path.endsWith('1-2-3') && failures++ === 0 ? Promise.resolve({ ...ok, status: 500 }) : through(request);
      start();
      await clock.advance(0);
      await clock.advance(1_000);
      const taken = took().map(([path]) => path);
      expect(taken).toEqual(['1-0-2', '1-2-3', '1-2-3', '1-3-5'].map((name) => `/transactions/${name}`));
      expect([queue, states]).toEqual([[], ['down', 'up']]);
      await sender.stop();
      sent = [];
      queue = [large];
      start();
      await clock.advance(0);
      expect(took().map(([path]) => path)).toEqual(['1-0-2', '1-2-3', '1-3-5'].map((name) => `/transactions/${name}`));
    });

    it('leaves out what is refused alone, and says so', async () => {
      refused = ['$2'];
      queue = [large, { ...transaction(3), eventIds: ['$2'] }, transaction(4)];
      start();
      await clock.advance(0);
      expect(took().flatMap(([, what]) => what)).toEqual(['$1', '$3', { n: 1 }, { n: 2 }, '$4']);
      expect(queue).toEqual([]);
      const lines = logger.lines.filter(({ level }) => level === 'error');
      expect(lines.map(({ fields }) => fields)).toMatchObject([
        { service: 'irc', transaction: 1, event_id: '$2' },
        { service: 'irc', transaction: 3, event_id: '$2' },
      ]);
    });

    it('sends one event without what came along with it before it gives up', async () => {
      start();
      await clock.advance(0);
      queue = [transaction(1)];
      for (let n = 0; n < 3; n++) sender.offer({ n });
      await clock.advance(0);
      expect(took()).toEqual([['/transactions/1-0-1', ['$1']]]);
      expect(queue).toEqual([]);
    });
  });

  it('does not wait for the end of a pause once the service shows itself', async () => {
    queue = [transaction(1)];
    answer = () => Promise.resolve({ ...ok, status: 500 });
    start();
    await clock.advance(100_000);
    const before = sent.length;
    sender.retry(10_000_000);
    await clock.advance(0);
    expect(sent).toHaveLength(before);
    sender.wake();
    await clock.advance(0);
    expect(sent).toHaveLength(before);
    sender.retry(10_000);
    await clock.advance(0);
    expect(sent).toHaveLength(before + 1);
    sender.retry(10_000);
    await clock.advance(0);
    expect(sent).toHaveLength(before + 1);
    answer = () => Promise.resolve(ok);
    sender.retry();
    await clock.advance(0);
    expect(queue).toEqual([]);
  });

  it('sends EDUs with a transaction or on their own, at most a hundred at a time, and never again', async () => {
    start();
    await clock.advance(0);
    for (let n = 0; n < 150; n++) sender.offer({ n });
    await clock.advance(0);
    expect(sent.map(({ body }) => (body as { edus: unknown[] }).edus.length)).toEqual([100, 50]);
    expect(new Set(paths()).size).toBe(2);
    answer = () => Promise.resolve({ ...ok, status: 500 });
    sender.offer({ n: 150 });
    await clock.advance(0);
    sender.offer({ n: 151 });
    answer = () => Promise.resolve(ok);
    await clock.advance(1_000);
    expect(sent).toHaveLength(3);
    // What fails on its own must not keep later things from being sent.
    queue = [transaction(7)];
    sender.wake();
    await clock.advance(0);
    sender.offer({ n: 152 });
    await clock.advance(0);
    expect(sent.slice(3).map(({ body }) => body)).toEqual([
      { eventIds: ['$7'], edus: [] },
      { eventIds: [], edus: [{ n: 152 }] },
    ]);
  });

  it('repeats what must not be lost, and drops what is no news by then', async () => {
    queue = [transaction(1)];
    answer = () => Promise.resolve({ ...ok, status: 500 });
    start();
    sender.offer({ n: 1 });
    await clock.advance(0);
    answer = () => Promise.resolve(ok);
    await clock.advance(1_000);
    expect(sent.map(({ path, body }) => [path, body])).toEqual([
      ['/transactions/1', { eventIds: ['$1'], edus: [{ n: 1 }] }],
      ['/transactions/1', { eventIds: ['$1'], edus: [] }],
    ]);
  });

  it('drops a transaction of which nothing is left', async () => {
    queue = [{ asId: 'irc', txnId: 1, eventIds: [] }, transaction(2)];
    start();
    await clock.advance(0);
    expect(paths()).toEqual(['/transactions/2']);
    expect(queue).toEqual([]);
  });

  it('goes on after a failure of the database, and does not blame the service', async () => {
    start();
    await clock.advance(0);
    queue = [transaction(1)];
    const broken = new Error('disk full');
    let isBroken = true;
    const all = queue;
    Object.defineProperty(all, 0, { get: () => (isBroken ? fail(broken) : transaction(1)), configurable: true });
    sender.wake();
    await clock.advance(0);
    expect(logger.messages('error')).toEqual(['Sending to an application service failed']);
    expect(states).toEqual([]);
    isBroken = false;
    await clock.advance(1_000);
    expect(paths()).toEqual(['/transactions/1']);
  });

  it('sends nothing while it may not, or nobody says what is next, and blames nobody', async () => {
    queue = [transaction(1)];
    may = false;
    start();
    await clock.advance(5_000);
    expect(paths()).toEqual([]);
    may = true;
    await clock.advance(1_000);
    expect(paths()).toEqual(['/transactions/1']);
    isKnown = false;
    queue.push(transaction(2));
    sender.wake();
    await clock.advance(5_000);
    expect(paths()).toEqual(['/transactions/1']);
    isKnown = true;
    sender.wake();
    await clock.advance(0);
    expect([paths().at(-1), states]).toEqual(['/transactions/2', []]);
    expect(logger.messages('error')).toEqual([]);
  });

  it('ends soon, whatever it is doing: an answer is waited for a moment', async () => {
    start();
    await sender.stop();
    queue = [transaction(1)];
    let reply: (answer: AppserviceAnswer) => void = () => undefined;
    answer = ({ signal }) =>
      new Promise((resolve, reject) => {
        reply = resolve;
        signal?.addEventListener('abort', () => reject(new OutboundError('aborted', 'x')));
      });
    start();
    await clock.advance(0);
    const cut = sender.stop();
    await clock.advance(1_000);
    await cut;
    expect([states, queue.length]).toEqual([[], 1]);
    queue.push(transaction(2));
    start();
    await clock.advance(0);
    const stopped = sender.stop();
    reply(ok);
    await stopped;
    expect(queue.map(({ txnId }) => txnId)).toEqual([2]);
    answer = () => Promise.resolve({ ...ok, status: 500 });
    start();
    await clock.advance(0);
    await sender.stop();
    expect(clock.pendingTimers).toBe(0);
    expect(queue).toHaveLength(1);
  });
});

function fail(error: Error): never {
  throw error;
}
