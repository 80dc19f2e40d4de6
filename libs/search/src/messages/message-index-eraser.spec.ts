import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { type Database, databaseMigrations } from '@rookery/database';
import { BackgroundTasks, Config, SystemClock } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { type EventBatch, RoomHooks, roomsMigrations } from '@rookery/rooms';
import { openTestDatabase, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { searchMigrations } from '../migrations/index.js';
import { MessageIndex } from './message-index.js';
import { MessageIndexEraser } from './message-index-eraser.js';
import { indexMessages } from './message-index.query.js';

const roomId = '!room:example.org';
const count = 6_000;
const secretOf = (position: number): string => createHash('sha256').update(`${position}`).digest('hex').slice(0, 24);
/** The index leaves out what a word has in common with the one before it. */
const traceOf = (position: number): string => secretOf(position).slice(8);

const eraserOf = (database: Database, index: MessageIndex): MessageIndexEraser => {
  const clock = new SystemClock();
  return new MessageIndexEraser(database, index, clock, new BackgroundTasks(clock, new RecordingLogger()));
};

describe('what is taken out of the index of messages on SQLite', () => {
  let test: TestDatabase;
  let hooks: RoomHooks;
  let eraser: MessageIndexEraser;
  let path: string;

  beforeEach(async () => {
    test = await openTestDatabase('sqlite');
    if (test.options.name !== 'sqlite3') throw new Error('not SQLite');
    ({ path } = test.options);
    await test.migrate([
      ...[...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations],
      ...searchMigrations,
    ]);
    hooks = new RoomHooks();
    const index = new MessageIndex(hooks, Config.fromObject({ server_name: 'example.org' }));
    index.onModuleInit();
    eraser = eraserOf(test.database, index);
    const columns = ['event_id', 'type', 'room_id', 'sender', 'topological_ordering', 'depth', 'stream_ordering'];
    const positions = Array.from({ length: count }, (_, n) => n + 1);
    await test.database.write((tx) =>
      tx.insertMany(
        'events',
        [...columns, 'origin_server_ts', 'received_ts'],
        positions.map((n) => [`$${n}`, 'm.room.message', roomId, '@a:example.org', 1, 1, n, 1, 1]),
      ),
    );
    // As it comes in: in many small batches, of which the index merges some by itself.
    for (let from = 0; from < count; from += 50) {
      await test.database.write((tx) =>
        indexMessages(
          tx,
          positions.slice(from, from + 50).map((n) => ({
            streamOrdering: n,
            roomId,
            words: ['hello', `word${n % 997}`, secretOf(n), `more${(n * 31) % 4099}`],
          })),
        ),
      );
    }
  });
  afterEach(() => test.close());

  const purge = (...positions: readonly number[]): Promise<void> =>
    test.database.write(async (tx) => {
      for (const hook of hooks.all)
        await hook.onEventsPurged?.(
          tx,
          roomId,
          positions.map((n) => `$${n}`),
          false,
        );
    });
  const settle = async (): Promise<void> => {
    await eraser.run();
    while ((await test.database.reclaim()) > 0);
  };
  const onDisk = (position: number): boolean =>
    [path, `${path}-wal`].some((file) => existsSync(file) && readFileSync(file).includes(traceOf(position)));
  const found = async (word: string): Promise<number> =>
    (await test.database.query('SELECT rowid FROM event_search WHERE event_search MATCH ?', [`"${word}"`])).length;

  it('leaves the file, in small steps that others can come between', async () => {
    expect(onDisk(1234)).toBe(true);
    await purge(1234, 5999);
    expect(await found(secretOf(1234))).toBe(0);
    let steps = 0;
    const { database } = test;
    const write = database.write.bind(database);
    database.write = (fn, options) => {
      if (options?.name === 'merge_index') steps++;
      return write(fn, options);
    };
    await settle();
    expect(steps).toBeGreaterThan(3);
    expect([onDisk(1234), onDisk(5999), onDisk(1235)]).toEqual([false, false, true]);
    expect([await found('hello'), await found(secretOf(1235)), await found(secretOf(5999))]).toEqual([count - 2, 1, 0]);
    // From an index in one part as well, and with nothing to do nothing is written.
    await purge(77);
    await settle();
    expect([onDisk(77), onDisk(78)]).toEqual([false, true]);
    steps = 0;
    await settle();
    expect(steps).toBe(0);
  });

  it('goes on where it was interrupted, while messages come and go', async () => {
    await purge(10);
    const running = eraser.run();
    await new Promise((resolve) => setTimeout(resolve, 30));
    await eraser.onModuleDestroy();
    await running;
    const again = await test.reopen();
    const index = new MessageIndex(hooks, Config.fromObject({ server_name: 'example.org' }));
    const next = eraserOf(again, index);
    const work = next.run();
    for (let n = 20; n < 60; n += 4) {
      await again.write((tx) =>
        indexMessages(tx, [{ streamOrdering: n, roomId, words: ['hello', 'again', secretOf(n)] }]),
      );
    }
    await work;
    while ((await again.reclaim()) > 0);
    expect([onDisk(10), onDisk(11)]).toEqual([false, true]);
    expect([await found('hello'), await found('again'), await found(secretOf(10))]).toEqual([count - 1, 10, 0]);
  });

  it('is remembered after a redaction', async () => {
    const index = new MessageIndex(hooks, Config.fromObject({ server_name: 'example.org' }));
    index.onModuleInit();
    index.hasTakenOut = false;
    const event = { eventId: '$r', redacts: '$5' };
    const batch = { roomId, events: [{ event, outlier: false, softFailed: false }], backfilled: false };
    await test.database.write(async (tx) => {
      for (const hook of hooks.all) await hook.inTransaction?.(tx, batch as unknown as EventBatch, undefined);
    });
    expect(index.hasTakenOut).toBe(true);
  });
});
