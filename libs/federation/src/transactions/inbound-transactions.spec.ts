import type { Database, Tx } from '@rookery/database';
import { BackgroundTasks, type Config, Lifecycle, Metrics, SilentLogger } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import type { InboundEdus } from '../edus/inbound-edus.js';
import { InboundTransactions } from './inbound-transactions.js';
import type { PduIntake } from './pdu-intake.js';
import type { StagedEvents } from './staged-events.js';
import { TransactionAnswers } from './transaction-answers.js';

const answersOf = (database: Database, clock: FakeClock): TransactionAnswers =>
  new TransactionAnswers(database, clock, new Lifecycle(clock, new SilentLogger()), new BackgroundTasks(clock));

const calm = { stage: async () => undefined, floodedOf: () => [], arrived: async () => undefined };

describe('InboundTransactions', () => {
  it('has what must arrive sent again, though not for ever', async () => {
    let answered = 0;
    const database = {
      get: async () => undefined,
      write: async () => void answered++,
    } as unknown as Database;
    const intake = { check: async () => ({ results: new Map(), wanted: [] }) } as unknown as PduIntake;
    const staged = calm as unknown as StagedEvents;
    let haveArrived = false;
    const edus = { deliver: async () => ({ haveArrived, haveStored: haveArrived }) } as unknown as InboundEdus;
    const config = { get: () => [] } as unknown as Config;
    const clock = new FakeClock();
    const transactions = new InboundTransactions(
      ...([answersOf(database, clock), intake, staged, edus, clock, config, new Metrics('home.test')] as const),
    );
    const send = (txnId: string): Promise<unknown> =>
      transactions.receive('far.test', txnId, { edus: [{ edu_type: 'm.a', content: {} }] });
    for (let n = 0; n < 5; n++) await expect(send('t1')).rejects.toMatchObject({ status: 500, errcode: 'M_UNKNOWN' });
    expect(answered).toBe(0);
    await expect(send('t1')).resolves.toEqual({ pdus: {} });
    await expect(send('t2')).rejects.toMatchObject({ status: 500 });
    haveArrived = true;
    await expect(send('t2')).resolves.toEqual({ pdus: {} });
    expect(answered).toBe(2);
  });

  it('keeps the answers of transactions that something came of, and no others', async () => {
    const kept: string[] = [];
    const database = {
      get: async () => undefined,
      write: async (work: (tx: Tx) => Promise<void>) =>
        work({ run: async (_, params) => kept.push(String(params?.[1])) } as Tx),
    } as unknown as Database;
    let came = { haveTaken: false, haveStored: false };
    const intake = {
      check: async () => ({ results: new Map([['$e', { error: 'no' }]]), wanted: [], haveTaken: came.haveTaken }),
    } as unknown as PduIntake;
    const stage = async (_: string, __: unknown, also?: (tx: Tx) => Promise<void>) =>
      also && database.write((tx) => also(tx));
    const edus = {
      deliver: async () => ({ haveArrived: true, haveStored: came.haveStored }),
    } as unknown as InboundEdus;
    const config = { get: () => [] } as unknown as Config;
    const clock = new FakeClock();
    const transactions = new InboundTransactions(
      ...([answersOf(database, clock), intake, { ...calm, stage } as unknown as StagedEvents, edus, clock] as const),
      ...([config, new Metrics('home.test')] as const),
    );
    const send = async (txnId: string): Promise<void> => {
      const edu = { edu_type: 'm.a', content: {} };
      for (const [id, part] of [['pdus', {}] as const, ['edus', { edus: [edu] }] as const])
        expect(await transactions.receive('far.test', `${txnId} ${id}`, { pdus: [{}], ...part })).toEqual({
          pdus: { $e: { error: 'no' } },
        });
    };
    await send('nothing');
    expect(kept).toEqual([]);
    came = { haveTaken: true, haveStored: false };
    await send('taken');
    came = { haveTaken: false, haveStored: true };
    await send('stored');
    expect(kept).toEqual(['taken pdus', 'taken edus', 'stored edus']);
  });

  it('holds five transactions of a server at most, and tells it to wait with others', async () => {
    let goOn = (): void => undefined;
    const held = new Promise<void>((resolve) => (goOn = resolve));
    const intake = {
      check: async () => {
        await held;
        return { results: new Map(), wanted: [] };
      },
    } as unknown as PduIntake;
    const database = { get: async () => undefined } as unknown as Database;
    const staged = calm as unknown as StagedEvents;
    const config = { get: () => [] } as unknown as Config;
    const clock = new FakeClock();
    const transactions = new InboundTransactions(
      ...([answersOf(database, clock), intake, staged, {} as InboundEdus, clock, config] as const),
      new Metrics('home.test'),
    );
    const taken = Array.from({ length: 5 }, (_, i) => transactions.receive('far.test', `t${i}`, {}));
    await expect(transactions.receive('far.test', 't5', {})).rejects.toMatchObject({
      ...{ status: 429, errcode: 'M_LIMIT_EXCEEDED' },
    });
    // The same one again is no further one, and other servers have room of their own.
    taken.push(transactions.receive('far.test', 't4', {}), transactions.receive('else.test', 't5', {}));
    goOn();
    expect(await Promise.all(taken)).toEqual(taken.map(() => ({ pdus: {} })));
    await expect(transactions.receive('far.test', 't5', {})).resolves.toEqual({ pdus: {} });
  });

  it('has a hundred servers wait because of flooded rooms at most', async () => {
    let goOn = (): void => undefined;
    const held = new Promise<void>((resolve) => (goOn = resolve));
    let waiting = 0;
    const staged = {
      ...calm,
      floodedOf: () => ['!flood'],
      arrived: () => {
        waiting++;
        return held;
      },
    } as unknown as StagedEvents;
    const intake = { check: async () => ({ results: new Map(), wanted: [] }) } as unknown as PduIntake;
    const database = { get: async () => undefined } as unknown as Database;
    const config = { get: () => [] } as unknown as Config;
    const clock = new FakeClock();
    const transactions = new InboundTransactions(
      ...([answersOf(database, clock), intake, staged, {} as InboundEdus, clock, config] as const),
      new Metrics('home.test'),
    );
    const taken = Array.from({ length: 100 }, (_, n) => transactions.receive(`${n}.test`, 't', {}));
    await clock.advance(0);
    expect(waiting).toBe(100);
    await expect(transactions.receive('far.test', 't', {})).resolves.toEqual({ pdus: {} });
    goOn();
    await Promise.all(taken);
    await transactions.receive('far.test', 't2', {});
    expect(waiting).toBe(101);
  });
});
