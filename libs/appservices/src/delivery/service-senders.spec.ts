import type { Database } from '@rookery/database';
import { Metrics } from '@rookery/platform';
import { FakeClock, RecordingLogger } from '@rookery/testing';
import type { AppserviceAnswer, AppserviceClient, AppserviceRequest } from '../queries/appservice-client.js';
import type { AppserviceQueries } from '../queries/appservice-queries.js';
import type { AppserviceRegistry } from '../registration/appservice-registry.js';
import { ServiceSenders } from './service-senders.js';
import type { TransactionBodies } from './transaction-bodies.js';
import type { WaitingTransactions } from './waiting-transactions.js';

const ok: AppserviceAnswer = { status: 200, text: '{}', json: {} };

describe('the senders of a process', () => {
  let clock: FakeClock;
  let own: Set<string>;
  /** Ids of the transactions that wait, by service. */
  let queues: Map<string, number[]>;
  let sent: string[];
  let answer: () => Promise<AppserviceAnswer>;
  let senders: ServiceSenders;

  beforeEach(() => {
    clock = new FakeClock();
    own = new Set(['a', 'b']);
    queues = new Map([['a', [1, 2]]]);
    sent = [];
    answer = () => Promise.resolve(ok);
    const waiting = {
      down: () => Promise.resolve(new Set()),
      next: (asId: string) => {
        const [txnId] = queues.get(asId) ?? [];
        return Promise.resolve(txnId === undefined ? undefined : { asId, txnId, eventIds: [] });
      },
      nextId: () => Promise.resolve(1_000),
      taken: (asId: string, txnId: number) => {
        queues.set(
          asId,
          queues.get(asId)!.filter((one) => one !== txnId),
        );
        return Promise.resolve();
      },
    };
    const bodies = {
      write: (_service: unknown, _transaction: unknown, edus: readonly unknown[]) =>
        Promise.resolve({ json: JSON.stringify(edus), events: [], isEmpty: false }),
    };
    const client = {
      send: ({ id }: { id: string }, { path, body }: AppserviceRequest) => {
        sent.push(`${id}${path.slice('/v1/transactions'.length)} ${body}`);
        return answer();
      },
    };
    const services = ['a', 'b', 'c'].map((id) => ({ id, fields: { url: id === 'c' ? undefined : 'http://x' } }));
    const registry = { all: services, byId: (id: string) => services.find((one) => one.id === id) };
    senders = new ServiceSenders(
      waiting as unknown as WaitingTransactions,
      bodies as unknown as TransactionBodies,
      client as unknown as AppserviceClient,
      {} as AppserviceQueries,
      {} as Database,
      ...([clock, new RecordingLogger(), new Metrics('example.org')] as const),
      registry as unknown as AppserviceRegistry,
    );
    senders.lookAfter({ isOurs: (asId) => own.has(asId), maySend: (asId) => own.has(asId) });
  });
  afterEach(() => senders.stop());

  it('take up what was left over, keep what is told before, and send nothing for other processes', async () => {
    own.delete('b');
    for (const asId of ['a', 'b', 'c']) senders.take({ kind: 'edu', asId, edu: { n: 1 } });
    await clock.advance(0);
    expect(sent).toEqual([]);
    await senders.catchUp((asId) => own.has(asId));
    await clock.advance(0);
    expect(sent).toEqual(['a/1 [{"n":1}]', 'a/2 []']);
    expect([senders.has('a'), senders.has('b'), senders.has('c')]).toEqual([true, false, false]);
  });

  it('let go of a service once what is under way was answered and noted', async () => {
    const { promise, resolve } = Promise.withResolvers<AppserviceAnswer>();
    answer = () => promise;
    await senders.catchUp(() => true);
    await clock.advance(0);
    own.delete('a');
    let isOver = false;
    const letting = senders.letGo().then(() => (isOver = true));
    await clock.advance(100);
    expect(isOver).toBe(false);
    resolve(ok);
    await letting;
    expect([sent, queues.get('a'), senders.has('a'), senders.has('b')]).toEqual([['a/1 []'], [2], false, true]);
    senders.take({ kind: 'stored', asId: 'a' });
    await clock.advance(0);
    expect(sent.length).toBe(1);
  });
});
