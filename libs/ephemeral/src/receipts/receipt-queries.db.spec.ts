import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { scansOf } from '@rookery/testing/internal';
import { fixtureMigrations } from '../ephemeral.fixture.js';
import { newestReceipts, publicReceipts, receiptsOf, receiptsOfEvents } from './receipt.query.js';

const [here, there] = ['!here:a', '!there:a'];
const me = '@u0:a';

eachDatabase('queries for receipts', (open) => {
  let test: TestDatabase;

  beforeAll(async () => {
    test = await open();
    await test.migrate(fixtureMigrations);
    // In turns in both rooms; every tenth is a private one.
    const columns = ['stream_id', 'room_id', 'receipt_type', 'user_id', 'event_id', 'data', 'event_stream_ordering'];
    await test.database.write((tx) =>
      tx.insertMany(
        'receipts_linearized',
        columns,
        Array.from({ length: 200 }, (_, n) => [
          ...[n + 1, n % 2 ? there : here, n % 10 === 8 ? 'm.read.private' : 'm.read'],
          ...[`@u${Math.floor(n / 2)}:a`, `$e${n}`, '{"ts":1}', n],
        ]),
      ),
    );
  });
  afterAll(() => test.close());

  const positions = (list: readonly { readonly position: number }[]): number[] => list.map(({ position }) => position);

  it('take the newest of each room, and all of one user', async () => {
    const { database } = test;
    expect(positions(await newestReceipts(database, me, [here, there], 150, 3))).toEqual([
      1, 2, 143, 145, 146, 147, 148, 150,
    ]);
    expect(positions(await newestReceipts(database, '@none:a', [here], 150, 3))).toEqual([143, 145, 147]);
    expect(positions(await newestReceipts(database, '@u4:a', [here], 5, 9))).toEqual([1, 3, 5]);
    expect(positions(await newestReceipts(database, '@u4:a', [here], 11, 2))).toEqual([7, 9, 11]);
    const range = { after: 10, upTo: 20, perRoom: 2 };
    expect(positions(await publicReceipts(database, '@u5:a', [here, there], range))).toEqual([11, 12, 15, 17, 18, 20]);
    expect(positions(await publicReceipts(database, me, [here], { ...range, perRoom: 99 }))).toEqual([11, 13, 15, 17]);
    expect(positions(await receiptsOf(database, '@u4:a', [here, there])).toSorted((a, b) => a - b)).toEqual([9, 10]);
    expect(positions(await receiptsOfEvents(database, me, [there], ['$e5', '$e8'], 100))).toEqual([2, 6]);
  });

  it('read no more than they give, however many have read the rooms', async () => {
    const scans = await scansOf(test.database, async (db) => {
      await newestReceipts(db, me, [here], 100, 10);
      await publicReceipts(db, me, [here], { after: 5, upTo: 100, perRoom: 10 });
      await receiptsOf(db, me, [here]);
      await receiptsOfEvents(db, me, [here], ['$e5'], 100);
    });
    expect(scans).toEqual([]);
  });
});
