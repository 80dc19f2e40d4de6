import { type Database, databaseMigrations } from '@rookery/database';
import { ownTurn } from '@rookery/platform';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { appservicesMigrations } from '../migrations/index.js';
import { transactionBytes, TransactionStore } from './transaction-store.js';
import type { Transaction } from './transactions.query.js';
import { type Senders, sendersOf } from './transactions.fixture.js';
import type { WaitingTransactions } from './waiting-transactions.js';

const nothing = (): Promise<void> => Promise.resolve();
const ids = (from: number, count: number): string[] => Array.from({ length: count }, (_, n) => `$${from + n}`);

eachDatabase('transactions of application services', (open) => {
  let test: TestDatabase;
  let database: Database;
  let store: TransactionStore;
  let senders: Senders;

  beforeEach(async () => {
    test = await open();
    ({ database } = test);
    await test.migrate([...databaseMigrations, ...appservicesMigrations]);
    store = new TransactionStore(database);
    await store.open();
    senders = sendersOf(database, store);
  });
  afterEach(() => test.close());

  const nextOf = async (from: WaitingTransactions, asId: string): Promise<Transaction | undefined> => {
    const next = await from.next(asId);
    if (next === 'later') throw new Error('the process that writes does not answer');
    return next;
  };
  /** Takes everything that waits for a service, as if it took it. */
  const drain = async (asId: string, from = senders.here): Promise<(readonly string[])[]> => {
    const all: (readonly string[])[] = [];
    for (let one = await nextOf(from, asId); one; one = await nextOf(from, asId)) {
      all.push(one.eventIds);
      await from.taken(asId, one.txnId, false);
    }
    return all;
  };

  it('are given out in order, each until it is taken', async () => {
    await store.add([{ asId: 'a', eventIds: ['$1'] }], nothing);
    const first = await store.next('a');
    await store.add([{ asId: 'a', eventIds: ['$2'] }], nothing);
    expect(first).toMatchObject({ asId: 'a', eventIds: ['$1'] });
    expect(await store.next('a')).toEqual(first);
    await senders.here.taken('a', first!.txnId, false);
    const second = await store.next('a');
    expect(second?.eventIds).toEqual(['$2']);
    expect(second!.txnId).toBeGreaterThan(first!.txnId);
    expect(await store.next('b')).toBeUndefined();
  });

  it('grow while nobody sends them, up to a hundred events', async () => {
    for (let n = 0; n < 250; n += 50) await store.add([{ asId: 'a', eventIds: ids(n, 50) }], nothing);
    expect((await drain('a')).map((one) => one.length)).toEqual([100, 100, 50]);
    await store.add([{ asId: 'a', eventIds: ids(0, 150) }], nothing);
    await store.add([{ asId: 'a', eventIds: ids(150, 70) }], nothing);
    const drained = await drain('a');
    expect(drained.map((one) => one.length)).toEqual([100, 100, 20]);
    expect(drained.flat()).toEqual(ids(0, 220));
  });

  it('grow while nobody sends them, up to what is large', async () => {
    const half = transactionBytes / 2;
    const parcels = ids(0, 5).map((eventId) => ({ asId: 'a', eventIds: [eventId], sizeBytes: half }));
    for (const parcel of parcels) await store.add([parcel], nothing);
    expect(await drain('a')).toEqual([['$0', '$1'], ['$2', '$3'], ['$4']]);
    // One that is larger than that goes alone.
    await store.add([{ asId: 'a', eventIds: ['$5'], sizeBytes: 1 }], nothing);
    await store.add([{ asId: 'a', eventIds: ['$6'], sizeBytes: transactionBytes + 1 }], nothing);
    await store.add([{ asId: 'a', eventIds: ['$7'], sizeBytes: 1 }], nothing);
    expect(await drain('a')).toEqual([['$5'], ['$6'], ['$7']]);
    await store.add([{ asId: 'a', toDevice: [{ n: 1 }], sizeBytes: half + 1 }], nothing);
    await store.add([{ asId: 'a', eventIds: ['$8'], sizeBytes: half }], nothing);
    expect(await drain('a')).toEqual([[], ['$8']]);
  });

  it.each(['here', 'elsewhere'] as const)(
    'stay as they are from the moment in which they are sent (%s)',
    async (where) => {
      const from = senders[where];
      await store.add([{ asId: 'a', eventIds: ['$1'] }], nothing);
      const sent = await nextOf(from, 'a');
      expect(sent?.eventIds).toEqual(['$1']);
      await store.add([{ asId: 'a', eventIds: ['$2'], toDevice: [{ n: 1 }] }], nothing);
      await store.add([{ asId: 'a', eventIds: ['$3'] }], nothing);
      expect(await nextOf(from, 'a')).toEqual(sent);
      expect(await drain('a', from)).toEqual([['$1'], ['$2', '$3']]);
      expect(await from.next('a')).toBeUndefined();
    },
  );

  it('are the same for whoever sends next, with another process that writes', async () => {
    await store.add([{ asId: 'a', eventIds: ['$1'] }], nothing);
    const sent = await nextOf(senders.elsewhere, 'a');
    const successor = new TransactionStore(database);
    await successor.open();
    const others = sendersOf(database, successor);
    await successor.add([{ asId: 'a', eventIds: ['$2'] }], nothing);
    for (const from of [others.elsewhere, others.here]) expect(await nextOf(from, 'a')).toEqual(sent);
    await senders.elsewhere.taken('a', sent!.txnId, false);
    expect(await drain('a', others.elsewhere)).toEqual([['$2']]);
  });

  it('are not told of while nobody writes', async () => {
    await store.add([{ asId: 'a', eventIds: ['$1'] }], nothing);
    const { elsewhere } = sendersOf(database, new TransactionStore(database));
    expect(await elsewhere.next('a')).toBe('later');
    expect(await elsewhere.next('b')).toBeUndefined();
  });

  it.each(['here', 'elsewhere'] as const)('lose nothing when adding and sending meet (%s)', async (where) => {
    const from = senders[where];
    const received: string[] = [];
    let isOver = false;
    const sending = (async () => {
      while (!isOver || (await from.next('a'))) {
        for (const events of await drain('a', from)) received.push(...events);
        await ownTurn();
      }
    })();
    for (let n = 0; n < 200; n++)
      await store.add(
        [
          { asId: 'a', eventIds: [`$${n}`] },
          { asId: 'b', eventIds: [`$${n}`] },
        ],
        nothing,
      );
    isOver = true;
    await sending;
    expect(received).toEqual(ids(0, 200));
    expect((await drain('b')).flat()).toEqual(ids(0, 200));
  });

  it('carry what else must not be lost', async () => {
    await store.add(
      [
        { asId: 'a', eventIds: ['$1'] },
        { asId: 'a', toDevice: [{ n: 1 }], changed: ['@x:y'] },
      ],
      nothing,
    );
    await store.add([{ asId: 'a', eventIds: ['$2'] }], nothing);
    const first = await store.next('a');
    expect(first).toMatchObject({ eventIds: ['$1'] });
    await senders.here.taken('a', first!.txnId, false);
    expect(await store.next('a')).toMatchObject({ eventIds: ['$2'], toDevice: [{ n: 1 }], changed: ['@x:y'] });
  });

  it('take several parcels for one service at once', async () => {
    await store.add([{ asId: 'a', eventIds: ['$0'] }], nothing);
    const parcels = [
      { asId: 'a', eventIds: ids(1, 60) },
      { asId: 'a', eventIds: ids(61, 60) },
      { asId: 'a', eventIds: ['$121'] },
    ];
    await store.add(parcels, nothing);
    expect((await drain('a')).flat()).toEqual(ids(0, 122));
  });

  it('are stored together with the position, or not at all', async () => {
    const failure = new Error('no');
    await store.add([{ asId: 'a', eventIds: ['$1'] }], nothing);
    await expect(store.add([{ asId: 'a', eventIds: ['$2'] }], () => Promise.reject(failure))).rejects.toBe(failure);
    await store.add([{ asId: 'a', eventIds: ['$3'] }], nothing);
    expect((await drain('a')).flat()).toEqual(['$1', '$3']);
  });

  it('outlive a restart, with ids that go on', async () => {
    await store.add([{ asId: 'a', eventIds: ['$1'] }], nothing);
    const before = await store.next('a');
    const again = new TransactionStore(database);
    await again.open();
    await again.add([{ asId: 'a', eventIds: ['$2'] }], nothing);
    expect(await again.next('a')).toEqual(before);
    expect(await drain('a', sendersOf(database, again).here)).toEqual([['$1'], ['$2']]);
  });

  it('are not begun with a sequence that stands before one of them; the hint mends that', async () => {
    await database.write(async (tx) => {
      await tx.run("INSERT INTO application_services_txns (as_id, txn_id, event_ids) VALUES ('a', 90000, '[]')");
    });
    const failure = await new TransactionStore(database).open().then(
      () => undefined,
      (error: unknown) => error as Error & { hint: string },
    );
    expect(failure?.name).toBe('DatabaseError');
    expect(failure?.message).toMatch(/application_services_txn_id_seq stands at \d+, .* transaction 90000/);
    expect(failure?.hint).toContain('Stop every process of the server, set the sequence to 90000');
    const statements = failure!.hint.split('\n').slice(1);
    await database.write(async (tx) => {
      for (const statement of statements) await tx.query(statement.trim().replace(/;$/, ''));
    });
    const mended = new TransactionStore(database);
    await mended.open();
    expect(await mended.nextId()).toBeGreaterThan(90_000);
  });

  it('remember which services are down', async () => {
    await senders.here.setState('a', 'down');
    await senders.here.setState('b', 'down');
    await senders.here.setState('b', 'up');
    expect(await senders.here.down()).toEqual(new Set(['a']));
    await store.add([{ asId: 'a', eventIds: ['$1'] }], nothing);
    await senders.here.taken('a', (await store.next('a'))!.txnId, true);
    expect(await senders.here.down()).toEqual(new Set());
  });
});
