import { databaseMigrations, type Database, type SqlValue, StreamIds } from '@rookery/database';
import { type Clock, SystemClock } from '@rookery/platform';
import { eventually, eachDatabase, FakeClock, RecordingLogger, type TestDatabase } from '@rookery/testing';
import {
  defineStream,
  Follower,
  InProcessBus,
  inBatches,
  Notifier,
  replicationMigrations,
  saveCursor,
} from './index.js';
import { type FollowerOptions } from './follower.js';

interface NoteRow {
  readonly position: number;
  readonly text: string;
}

const notes = defineStream({
  name: 'notes',
  read: (db, after, upTo, limit) =>
    db.query<NoteRow>('SELECT id AS position, body AS text FROM notes WHERE id > ? AND id <= ? ORDER BY id LIMIT ?', [
      after,
      upTo,
      limit,
    ]),
});

eachDatabase('Follower', (open) => {
  let test: TestDatabase;
  let db: Database;
  let ids: StreamIds;
  let notifier: Notifier;
  let running: Follower[];

  const restart = async (clock: Clock = new SystemClock()): Promise<void> => {
    ids = await StreamIds.load(db, 'notes', { blockSize: 4 });
    notifier = new Notifier(clock, new InProcessBus());
    notifier.track(ids);
  };
  beforeEach(async () => {
    test = await open();
    db = test.database;
    await test.migrate([...databaseMigrations, ...replicationMigrations]);
    await db.write((tx) => tx.run('CREATE TABLE notes (id BIGINT PRIMARY KEY, body TEXT NOT NULL)'));
    await restart();
    running = [];
  });
  afterEach(async () => {
    for (const follower of running) await follower.stop();
    notifier.close();
    await test.close();
  });

  const add = (...texts: string[]): Promise<void> =>
    db.write(async (tx) => {
      const taken = await ids.allocateIn(tx, texts.length);
      await tx.insertMany(
        'notes',
        ['id', 'body'],
        taken.map((id, i) => [id, texts[i] ?? '']),
      );
    });
  const follow = async (
    handle: (rows: readonly NoteRow[]) => Promise<void>,
    options: Partial<FollowerOptions> = {},
    limit = 3,
  ): Promise<Follower> => {
    const advance = inBatches(db, notes, handle, limit);
    const follower = new Follower({
      name: 'reader',
      stream: 'notes',
      database: db,
      notifier,
      clock: new SystemClock(),
      advance,
      ...options,
    });
    running.push(follower);
    await follower.start();
    return follower;
  };
  const cursor = async (): Promise<number | undefined> =>
    (await db.get<{ position: number }>("SELECT position FROM stream_cursors WHERE name = 'reader'"))?.position;

  it('reads what is there and what comes, in order and in batches', async () => {
    const read: string[] = [];
    let largest = 0;
    await add('a', 'b', 'c', 'd', 'e', 'f', 'g');
    const follower = await follow(async (rows) => {
      largest = Math.max(largest, rows.length);
      read.push(...rows.map((row) => row.text));
    });
    await eventually(() => read.length === 7);
    await add('h');
    await Promise.all([add('i'), add('j'), add('k', 'l')]);
    await eventually(() => read.length === 12);
    expect(read.slice(0, 8).join('')).toBe('abcdefgh');
    expect(read.toSorted().join('')).toBe('abcdefghijkl');
    expect(largest).toBeLessThanOrEqual(3);
    await eventually(() => follower.position === ids.current());
    await follower.stop();
    expect(await cursor()).toBe(ids.current());
  });

  it('goes on at its cursor after a restart', async () => {
    const read: string[] = [];
    const handle = async (rows: readonly NoteRow[]): Promise<void> => void read.push(...rows.map((row) => row.text));
    await add('a', 'b');
    const first = await follow(handle);
    await eventually(() => read.length === 2);
    await first.stop();
    await add('c');
    await restart();
    await follow(handle);
    await add('d');
    await eventually(() => read.length === 4);
    expect(read.join('')).toBe('abcd');
  });

  it('can begin with what comes', async () => {
    const read: string[] = [];
    await add('old');
    await follow(async (rows) => void read.push(...rows.map((row) => row.text)), { startAt: 'now' });
    await add('new');
    await eventually(() => read.length > 0);
    expect(read).toEqual(['new']);
  });

  /** Answers are old by the time they are heard: each waits to be let go. */
  const slowReads = (): { readonly database: Database; readonly letGo: () => Promise<void> } => {
    const held: (() => void)[] = [];
    const get = async <Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> => {
      const answer = await db.get<Row>(sql, params);
      await new Promise<void>((resolve) => void held.push(resolve));
      return answer;
    };
    const letGo = async (): Promise<void> => {
      await eventually(() => held.length > 0);
      held.shift()!();
    };
    return { database: { get, write: db.write.bind(db) } as unknown as Database, letGo };
  };

  it('ends while it looks whether another process has said where to begin', async () => {
    const { database, letGo } = slowReads();
    const [follower] = await Promise.all([
      follow(async () => undefined, { startAt: 'once stored', database }),
      letGo(),
    ]);
    const ended = follower.stop();
    await letGo();
    await ended;
  });

  it('misses nothing that another process stores while it looks', async () => {
    const { database, letGo } = slowReads();
    const read: string[] = [];
    const handle = async (rows: readonly NoteRow[]): Promise<void> => void read.push(...rows.map((row) => row.text));
    await Promise.all([follow(handle, { startAt: 'once stored', database }), letGo()]);
    await db.write((tx) => saveCursor(tx, 'reader', 0));
    await add('a');
    await letGo();
    await letGo();
    await eventually(() => read.length === 1);
    expect(read).toEqual(['a']);
  });

  it('repeats what failed, after a growing pause, without losing or skipping anything', async () => {
    const clock = new FakeClock();
    const logger = new RecordingLogger();
    const read: string[] = [];
    let failures = 3;
    await add('a', 'b');
    const follower = await follow(
      async (rows) => {
        if (failures-- > 0) throw new Error('no network');
        read.push(...rows.map((row) => row.text));
      },
      { clock, logger },
    );
    await eventually(() => follower.failures === 1);
    await clock.advance(499);
    expect(follower.failures).toBe(1);
    await clock.advance(2);
    await eventually(() => follower.failures === 2);
    await clock.advance(1001);
    await eventually(() => follower.failures === 3);
    expect(read).toEqual([]);
    await clock.advance(2001);
    await eventually(() => read.length === 2);
    await eventually(() => follower.failures === 0);
    expect(logger.messages('warn')).toHaveLength(3);
  });

  it('treats an advance that does not advance as a failure instead of spinning', async () => {
    let calls = 0;
    await add('a');
    const follower = await follow(async () => {}, {
      clock: new FakeClock(),
      advance: async (after) => (calls++, after),
    });
    await eventually(() => follower.failures === 1);
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(calls).toBe(1);
  });

  it('stores its cursor now and then, not for each row', async () => {
    const clock = new FakeClock();
    const saves: string[] = [];
    const counted = await open(undefined, { onTransaction: (report) => saves.push(report.name) });
    await counted.migrate([...databaseMigrations, ...replicationMigrations]);
    const read: number[] = [];
    const position = { value: 0 };
    const source = new Notifier(clock, new InProcessBus());
    const follower = new Follower({
      name: 'reader',
      stream: 'numbers',
      database: counted.database,
      notifier: source,
      clock,
      advance: async (_, upTo) => (read.push(upTo), upTo),
    });
    await follower.start();
    saves.length = 0;
    for (let i = 1; i <= 20; i++) {
      position.value = i;
      source.announce('numbers', i);
      await eventually(() => read.at(-1) === i);
    }
    expect(saves.length).toBeLessThanOrEqual(1);
    await clock.advance(1000);
    await eventually(() => saves.length > 0);
    expect(saves).toEqual(['save_cursor']);
    await follower.stop();
    expect(saves).toEqual(['save_cursor']);
    await counted.close();
  });

  it('lets the work and the cursor be one transaction, and never moves a cursor back', async () => {
    await db.write(async (tx) => {
      await saveCursor(tx, 'reader', 9);
      await saveCursor(tx, 'reader', 4);
    });
    expect(await cursor()).toBe(9);
  });
});
