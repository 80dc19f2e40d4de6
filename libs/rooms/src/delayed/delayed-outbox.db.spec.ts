import { databaseMigrations } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { eachDatabase, eventually, FakeClock, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { roomsMigrations } from '../migrations/index.js';
import { type DelayedEventRow, findDelayed, insertDelayed } from './delayed-events.query.js';
import { DelayedOutbox } from './delayed-outbox.js';
import type { DelayedSending } from './delayed-sending.js';

eachDatabase('events that are sent later', (open) => {
  let test: TestDatabase;
  let clock: FakeClock;
  let outbox: DelayedOutbox;
  let sent: string[];
  /** What sending one does in place of it. */
  let instead: Map<string, () => Promise<void>>;

  beforeAll(async () => {
    test = await open(new FakeClock());
    await test.migrate([...databaseMigrations, ...roomsMigrations]);
  });
  afterAll(() => test.close());
  beforeEach(async () => {
    await test.database.write((tx) => tx.run('DELETE FROM delayed_events'));
    clock = new FakeClock();
    sent = [];
    instead = new Map();
    const sending = {
      send: async ({ delay_id: id }: DelayedEventRow): Promise<void> => {
        await instead.get(id)?.();
        sent.push(id);
      },
    };
    outbox = new DelayedOutbox(test.database, sending as DelayedSending, clock, new RecordingLogger());
  });
  afterEach(async () => {
    for (const { resolve } of held.splice(0)) resolve();
    await outbox.onModuleDestroy();
  });

  const add = async (id: string, delayMs: number): Promise<void> => {
    const row: DelayedEventRow = {
      ...{ delay_id: id, user_localpart: 'alice', device_id: 'D', delay: delayMs, send_ts: clock.nowMs() + delayMs },
      ...{ room_id: '!r:x', event_type: 'm.room.message', state_key: null, origin_server_ts: null, content: '{}' },
      ...{ sticky_duration_ms: null, txn_id: null, appservice_id: null },
    };
    await test.database.write((tx) => insertDelayed(tx, row, 1_000));
    outbox.wakeAt(row.send_ts);
  };
  const isThere = async (id: string): Promise<boolean> => (await findDelayed(test.database, id)) !== undefined;
  const until = (isDone: () => boolean | Promise<boolean>): Promise<unknown> =>
    eventually(async () => {
      await clock.advance(1);
      return isDone();
    });
  const held: { readonly resolve: () => void }[] = [];
  const hold = (): PromiseWithResolvers<void> => {
    const made = Promise.withResolvers<void>();
    held.push(made);
    return made;
  };

  it('are not held up by others that fail, or take long', async () => {
    const tries: number[] = [];
    const slow = hold();
    for (let n = 0; n < 55; n++) {
      await add(`failing ${n}`, 10);
      instead.set(`failing ${n}`, () => {
        if (n === 0) tries.push(clock.nowMs());
        return Promise.reject(n % 2 ? MatrixError.limitExceeded(1) : new Error('broken'));
      });
    }
    await add('slow', 15);
    instead.set('slow', () => slow.promise);
    await add('good', 20);
    await clock.advance(20);
    await until(() => sent.includes('good'));
    expect(sent).toEqual(['good']);
    await add('later', 100);
    await clock.advance(100);
    await until(() => sent.includes('later'));
    expect(tries).toHaveLength(1);
    slow.resolve();
    await until(async () => !(await isThere('slow')));
    const since = (await findDelayed(test.database, 'failing 0'))?.send_ts;
    for (let count = 2; count <= 4; count++) {
      await clock.advance(10_000 * 2 ** (count - 2));
      await until(() => tries.length === count);
    }
    expect((tries[3] ?? 0) - (tries[2] ?? 0)).toBeGreaterThanOrEqual(40_000);
    // Clients are told since when it waits.
    expect((await findDelayed(test.database, 'failing 0'))?.send_ts).toBe(since);
    instead.clear();
    await clock.advance(80_000);
    await until(() => sent.length === 58);
  });

  it('are sent that were stored while it was looked for the next one', async () => {
    const { get } = test.database;
    const heard = hold();
    let looks = 0;
    // The answer is old by the time it is heard.
    test.database.get = async (sql, params) => {
      const answer = await get.call(test.database, sql, params);
      if (sql.includes('ORDER BY send_ts LIMIT 1') && ++looks === 1) await heard.promise;
      return answer as never;
    };
    await add('first', 10);
    await clock.advance(10);
    await eventually(() => looks === 1);
    await add('second', 1);
    await clock.advance(1);
    heard.resolve();
    await eventually(() => sent.length === 2);
    test.database.get = get;
    expect(sent).toEqual(['first', 'second']);
  });

  it('obey their owner, who has an answer, whatever becomes due meanwhile', async () => {
    const { write } = test.database;
    await add('restarted', 1_000);
    await add('canceled', 1_000);
    const waiting = hold();
    await clock.advance(500);
    // Both are found due while the database is at work on what their owner wants.
    test.database.write = async (fn, options) => {
      await waiting.promise;
      return write.call(test.database, fn, options) as ReturnType<typeof fn>;
    };
    const answers = [outbox.restart('restarted'), outbox.cancel('canceled')];
    await clock.advance(500);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(sent).toEqual([]);
    waiting.resolve();
    test.database.write = write;
    await Promise.all(answers);
    await clock.advance(400);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(sent).toEqual([]);
    await clock.advance(1_000);
    await until(() => sent.length === 1);
    expect(sent).toEqual(['restarted']);
    expect(await isThere('canceled')).toBe(false);
  });

  it('are not there any more for an owner who comes while they are sent', async () => {
    const sending = hold();
    const begun = hold();
    await add('sent', 10);
    instead.set('sent', () => {
      begun.resolve();
      return sending.promise;
    });
    await clock.advance(10);
    await begun.promise;
    const answers = Promise.allSettled([outbox.cancel('sent'), outbox.restart('sent'), outbox.send('sent')]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    sending.resolve();
    expect((await answers).map((answer) => answer.status === 'rejected' && answer.reason)).toEqual([
      expect.objectContaining({ status: 404 }),
      expect.objectContaining({ status: 404 }),
      expect.objectContaining({ status: 404 }),
    ]);
    expect(sent).toEqual(['sent']);
  });

  it('are not sent again, nor canceled, when they were sent and could not be deleted', async () => {
    const { write } = test.database;
    await add('sent', 10);
    test.database.write = () => Promise.reject(new Error('away'));
    await clock.advance(10);
    await until(() => sent.length === 1);
    await new Promise((resolve) => setTimeout(resolve, 50));
    test.database.write = write;
    await expect(outbox.cancel('sent')).rejects.toMatchObject({ status: 404 });
    await clock.advance(10_000);
    await until(async () => !(await isThere('sent')));
    expect(sent).toEqual(['sent']);
  });
});
