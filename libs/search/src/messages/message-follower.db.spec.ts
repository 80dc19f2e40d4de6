import {
  Database,
  databaseMigrations,
  type Db,
  type Dialect,
  type SqlValue,
  type Tx,
  type WriteOptions,
} from '@rookery/database';
import { type Clock, Config, SystemClock } from '@rookery/platform';
import {
  FollowerSharing,
  InProcessBus,
  InProcessRpc,
  LocalRoles,
  Notifier,
  replicationMigrations,
} from '@rookery/replication';
import { type EventBatch, RoomHooks, roomsMigrations } from '@rookery/rooms';
import { eventually, eachDatabase, FakeClock, RecordingLogger, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { indexCursor, searchMigrations } from '../migrations/index.js';
import { queryWordsOf } from '../text/words.js';
import { MessageFollower } from './message-follower.js';
import { MessageIndex } from './message-index.js';
import { deleteRoomMessages, selectByTime } from './message-index.query.js';
import { searchableTypes } from './searchable.js';

const roomId = '!room:example.org';
const alice = '@alice:example.org';

/** A database in which a transaction can be held, or made to fail, behind its last statement. */
class GatedDatabase extends Database {
  gate: ((name: string) => Promise<void> | void) | undefined;

  constructor(private readonly inner: Database) {
    super();
  }
  get dialect(): Dialect {
    return this.inner.dialect;
  }
  query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    return this.inner.query<Row>(sql, params);
  }
  get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return this.inner.get<Row>(sql, params);
  }
  write<T>(fn: (tx: Tx) => Promise<T>, options: WriteOptions = {}): Promise<T> {
    return this.inner.write(async (tx) => {
      const result = await fn(tx);
      await this.gate?.(options.name ?? '');
      return result;
    }, options);
  }
  close(): Promise<void> {
    return this.inner.close();
  }
}

interface Running {
  caughtUp(): Promise<void>;
  stop(): Promise<void>;
}

interface Given {
  readonly body?: unknown;
  readonly type?: string;
  readonly sender?: string;
  readonly room?: string;
  readonly more?: Readonly<Record<string, SqlValue>>;
}

async function store(tx: Tx, position: number, given: Given = {}): Promise<void> {
  const { body = `word${position} words`, type = 'm.room.message', sender = alice, room = roomId, more = {} } = given;
  const id = `$${position}`;
  const columns = ['event_id', 'type', 'room_id', 'sender', 'topological_ordering', 'depth', 'stream_ordering'];
  await tx.insertMany(
    'events',
    [...columns, 'origin_server_ts', 'received_ts', ...Object.keys(more)],
    [[id, type, room, sender, 1, 1, position, 1_000 + position, 1, ...Object.values(more)]],
  );
  await tx.insertMany(
    'event_json',
    ['stream_ordering', 'event_id', 'room_id', 'internal_metadata', 'json'],
    [[position, id, room, '{}', JSON.stringify({ content: { body } })]],
  );
}

interface GivenRedaction {
  readonly sender?: string;
  readonly room?: string;
  readonly recheck?: boolean;
}

const redact = async (tx: Tx, target: number, position: number, given: GivenRedaction = {}): Promise<void> => {
  const { recheck = false, ...event } = given;
  await store(tx, position, { ...event, type: 'm.room.redaction' });
  const columns = ['event_id', 'redacts', 'received_ts', 'recheck'];
  await tx.insertMany('redactions', columns, [[`$${position}`, `$${target}`, 1, recheck]]);
};

const indexed = async (db: Db): Promise<number[]> => {
  const key = db.dialect.name === 'postgres' ? 'stream_ordering' : 'rowid';
  const rows = await db.query<{ position: number }>(`SELECT ${key} AS position FROM event_search ORDER BY 1`);
  return rows.map((row) => row.position);
};

const from = (first: number, count: number): number[] => Array.from({ length: count }, (_, index) => first + index);

const soon = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 60));

eachDatabase('what brings messages into the index', (open) => {
  let test: TestDatabase;
  let database: GatedDatabase;
  let hooks: RoomHooks;
  let notifier: Notifier;
  let clock: FakeClock;
  let transactions: string[] = [];
  const running: Running[] = [];

  beforeAll(async () => {
    test = await open(undefined, { onTransaction: ({ name }) => transactions.push(name) });
    const migrations = [...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations];
    await test.migrate([...migrations, ...searchMigrations]);
  });
  beforeEach(async () => {
    for (const table of ['events', 'event_json', 'redactions', 'stream_cursors', 'event_search'])
      await test.database.write((tx) => tx.run(`DELETE FROM ${table}`));
    transactions = [];
    clock = new FakeClock();
    database = new GatedDatabase(test.database);
    notifier = new Notifier(clock, new InProcessBus());
    hooks = new RoomHooks();
    new MessageIndex(hooks, Config.fromObject({ server_name: 'example.org' })).onModuleInit();
  });
  afterEach(async () => {
    database.gate = undefined;
    for (const follower of running.splice(0)) await follower.stop();
    notifier.close();
  });

  const follow = async (settings: object = {}, ownClock: Clock = clock): Promise<Running> => {
    const config = Config.fromObject({ server_name: 'example.org', ...settings });
    const rpc = new InProcessRpc();
    const roles = new LocalRoles(rpc);
    const logger = new RecordingLogger();
    const sharing = new FollowerSharing({ ...{ roles, rpc, database, notifier, logger }, clock: ownClock });
    const follower = new MessageFollower(database, sharing, config);
    follower.onModuleInit();
    const one = { caughtUp: () => follower.caughtUp(), stop: () => roles.stop() };
    running.push(one);
    await roles.start();
    return one;
  };
  const say = async (...positions: readonly number[]): Promise<void> => {
    await test.database.write(async (tx) => {
      for (const position of positions) await store(tx, position);
    });
    notifier.announce('events', positions.at(-1)!);
  };
  const cursor = async (): Promise<number | undefined> =>
    (await database.get<{ position: number }>('SELECT position FROM stream_cursors WHERE name = ?', [indexCursor]))
      ?.position;
  const found = async (term: string, rooms = [roomId]): Promise<string[]> => {
    const query = { words: queryWordsOf(term, 10), roomIds: rooms, types: searchableTypes };
    return (await selectByTime(database, query, undefined, 1_000)).map((row) => row.event_id);
  };
  const batches = (): number => transactions.filter((name) => name === 'index_messages').length;
  /** Waits until so many batches have come to an end, well or not, and what follows is left to the clock. */
  const done = async (count: number): Promise<void> => {
    await eventually(() => batches() >= count);
    await soon();
  };
  const emptied = async (): Promise<boolean> => (await indexed(database)).length === 0;
  const hook = () => hooks.all[0]!;
  const batchOf = (events: readonly { redacts?: string; position: number; body?: string }[], backfilled = false) =>
    ({
      roomId,
      backfilled,
      events: events.map(({ redacts, position, body }) => ({
        event: { eventId: `$${position}`, roomId, type: 'm.room.message', redacts, content: { body } },
        streamOrdering: position,
        outlier: false,
        softFailed: false,
      })),
    }) as unknown as EventBatch;

  it('gathers what comes within a pause, unless somebody searches', async () => {
    const follower = await follow();
    await say(1);
    await done(1);
    for (const position of from(2, 20)) await say(position);
    await soon();
    expect([batches(), await indexed(database)]).toEqual([1, [1]]);
    await clock.advance(249);
    await soon();
    expect(batches()).toBe(1);
    await clock.advance(1);
    await done(2);
    expect([batches(), await indexed(database)]).toEqual([2, from(1, 21)]);

    await say(22);
    await say(23);
    await follower.caughtUp();
    expect([batches(), await found('words')]).toEqual([3, from(1, 23).map((position) => `$${24 - position}`)]);
    await follower.caughtUp();
    expect(batches()).toBe(3);
  });

  it('makes a search wait two seconds at most', async () => {
    const follower = await follow();
    await say(1);
    await follower.caughtUp();
    database.gate = () => {
      throw new Error('disk full');
    };
    await say(2);
    let isOver = false;
    const waiting = follower.caughtUp().then(() => (isOver = true));
    await clock.advance(1_999);
    await soon();
    expect(isOver).toBe(false);
    await clock.advance(1);
    await waiting;
    expect(await found('words')).toEqual(['$1']);
    const stopped = follower.caughtUp();
    await follower.stop();
    await stopped;
    await follower.caughtUp();
  });

  it('takes a long backlog in batches, and goes on where it was stopped', async () => {
    await say(...from(1, 1_200));
    const first = await follow();
    await eventually(async () => (await cursor()) === 500);
    await first.stop();
    expect(await indexed(database)).toEqual(from(1, 500));
    const second = await follow();
    await second.caughtUp();
    expect(await indexed(database)).toEqual(from(1, 1_200));
    expect([await cursor(), batches(), (await found('words')).length]).toEqual([1_200, 3, 1_000]);
    await second.stop();
    const third = await follow();
    await third.caughtUp();
    expect(batches()).toBe(3);
  });

  it('ends a batch early when texts are long', async () => {
    const body = 'long '.repeat(2_000);
    await test.database.write(async (tx) => {
      for (const position of from(1, 25)) await store(tx, position, { body });
    });
    notifier.announce('events', 25);
    await follow();
    await done(1);
    expect(await cursor()).toBe(10);
    await clock.advance(250);
    await done(2);
    expect([await cursor(), await indexed(database)]).toEqual([20, from(1, 20)]);
  });

  it('keeps rows and cursor together over a crash', async () => {
    let crashes = 1;
    database.gate = (name) => {
      if (name === 'index_messages' && crashes-- > 0) throw new Error('crash');
    };
    const follower = await follow();
    await say(1, 2);
    await done(1);
    expect(crashes).toBe(0);
    expect([await indexed(database), await cursor()]).toEqual([[], 0]);
    await clock.advance(500);
    await follower.caughtUp();
    expect([await indexed(database), await cursor()]).toEqual([[1, 2], 2]);
  });

  it('takes what clients may see, and passes over the rest without a transaction', async () => {
    await test.database.write(async (tx) => {
      await store(tx, 1, { more: { outlier: true } });
      await store(tx, 2, { more: { soft_failed: true } });
      await store(tx, 3, { more: { rejection_reason: 'auth' } });
      await store(tx, 4, { type: 'org.example.other' });
      await store(tx, 5, { body: 5 });
      await store(tx, 6, { body: '!?' });
    });
    notifier.announce('events', 6);
    const follower = await follow();
    await follower.caughtUp();
    expect([await indexed(database), batches()]).toEqual([[], 0]);
    await test.database.write(async (tx) => {
      await store(tx, 7);
      await store(tx, 8);
      await store(tx, 9);
      await redact(tx, 7, 10);
      await redact(tx, 8, 11, { sender: '@mallory:elsewhere.org', recheck: true });
      await redact(tx, 9, 12, { sender: '@bob:example.org', recheck: true });
      await redact(tx, 8, 13, { room: '!other:example.org' });
    });
    notifier.announce('events', 13);
    await follower.caughtUp();
    // Mallory may not redact; Bob is of Alice's server; what may be done in one room may not be done in others.
    expect(await indexed(database)).toEqual([8]);
  });

  it('takes out what a redaction or a purge concerns, and nothing else', async () => {
    const follower = await follow();
    await say(1, 2, 3, 4);
    await follower.caughtUp();
    await test.database.write(async (tx) => {
      await redact(tx, 1, 5);
      await redact(tx, 2, 6, { sender: '@mallory:elsewhere.org', recheck: true });
      await redact(tx, 3, 7, { room: '!other:example.org' });
      await hook().inTransaction?.(
        tx,
        batchOf([5, 6, 7].map((position) => ({ position, redacts: `$${position - 4}` }))),
        undefined,
      );
    });
    expect(await indexed(database)).toEqual([2, 3, 4]);
    await test.database.write(async (tx) => hook().onEventsPurged?.(tx, roomId, ['$2', '$nothing'], false));
    expect(await indexed(database)).toEqual([3, 4]);
    await test.database.write((tx) => store(tx, 8, { room: '!other:example.org' }));
    notifier.announce('events', 8);
    await follower.caughtUp();
    // Even when the events themselves have gone before.
    await test.database.write(async (tx) => {
      await tx.run('DELETE FROM events WHERE event_id = ?', ['$3']);
      await hook().onRoomPurged?.(tx, roomId);
    });
    expect(await indexed(database)).toEqual([8]);
    expect(await found('words', [roomId, '!other:example.org'])).toEqual(['$8']);
  });

  it('puts what was fetched from the past in at once, but not what is redacted', async () => {
    const batch = batchOf(
      [-1, -2].map((position) => ({ position, body: 'old words' })),
      true,
    );
    await test.database.write(async (tx) => {
      await store(tx, -1, { body: 'old words' });
      await store(tx, -2, { body: 'old words' });
      await redact(tx, -2, 1);
      await hook().inTransaction?.(tx, batch, undefined);
      // What is said now is nothing that the transaction waits for.
      await store(tx, 2);
      await hook().inTransaction?.(tx, batchOf([{ position: 2, body: 'new words' }]), undefined);
    });
    expect(await indexed(database)).toEqual([-1]);
    expect(await found('old')).toEqual(['$-1']);
  });

  const withdrawals: Record<string, (tx: Tx) => Promise<unknown>> = {
    async redaction(tx) {
      await redact(tx, 1, 3);
      await hook().inTransaction?.(tx, batchOf([{ position: 3, redacts: '$1' }]), undefined);
    },
    async purge(tx) {
      await hook().onEventsPurged?.(tx, roomId, ['$1'], false);
      await tx.run('DELETE FROM events WHERE event_id = ?', ['$1']);
    },
    async 'purge of the room'(tx) {
      await tx.run('DELETE FROM events WHERE room_id = ?', [roomId]);
      await hook().onRoomPurged?.(tx, roomId);
    },
  };

  describe.each(Object.keys(withdrawals))('and a %s at the same time', (name) => {
    /** Holds the transaction that comes first open until the other has had the time to do harm. */
    const meanwhile = async (first: 'index' | 'withdrawal', outcome?: 'crash'): Promise<void> => {
      let isHeld = false;
      let release = (): void => {};
      const held = new Promise<void>((resolve) => (release = resolve));
      const hold = async (): Promise<void> => {
        if (isHeld) return;
        isHeld = true;
        await held;
        if (outcome === 'crash') throw new Error('crash');
      };
      const withdraw = (): Promise<unknown> =>
        test.database
          .write(async (tx) => {
            await withdrawals[name]?.(tx);
            if (first === 'withdrawal') await hold();
          })
          .catch((error: unknown) => {
            expect([outcome, String(error)]).toEqual(['crash', 'Error: crash']);
          });
      database.gate = (transaction) => (first === 'index' && transaction === 'index_messages' ? hold() : undefined);
      const follower = await follow();
      await test.database.write((tx) => store(tx, 1));
      let withdrawn: Promise<unknown> | undefined;
      if (first === 'withdrawal') {
        withdrawn = withdraw();
        await eventually(() => isHeld);
      }
      notifier.announce('events', 1);
      if (first === 'index') {
        await eventually(() => isHeld);
        withdrawn = withdraw();
      }
      await soon();
      release();
      await withdrawn;
      if (first === 'index') await done(1);
      else await soon();
      // What crashed is tried again; a search that waits is not given up, since time stands still from then on.
      await clock.advance(500);
      await follower.caughtUp();
    };

    it('that finds it in the index', async () => {
      await meanwhile('index');
      expect(await emptied()).toBe(true);
    });

    it('that is not finished when it is to come into the index', async () => {
      await meanwhile('withdrawal');
      expect(await emptied()).toBe(true);
    });

    it('leaves nothing when the index comes to nothing', async () => {
      await meanwhile('index', 'crash');
      expect(await emptied()).toBe(true);
    });

    it('leaves everything when it comes to nothing itself', async () => {
      await meanwhile('withdrawal', 'crash');
      expect(await indexed(database)).toEqual([1]);
    });
  });

  it('leaves what is said in other rooms alone, though they have the same word', async () => {
    const follower = await follow();
    await say(1);
    await follower.caughtUp();
    await test.database.write((tx) => tx.run('UPDATE events SET room_id = ?', ['!other:example.org']));
    await test.database.write((tx) => deleteRoomMessages(tx, roomId));
    expect(await indexed(database)).toEqual([1]);
    expect(await found('words')).toEqual([]);
  });

  it('does nothing where there is no search', async () => {
    for (const [isOn, expected] of [
      [false, []],
      [true, [1]],
    ] as const) {
      const config = Config.fromObject({ server_name: 'example.org', enable_search: isOn });
      const others = new RoomHooks();
      new MessageIndex(others, config).onModuleInit();
      const follower = await follow({ enable_search: isOn }, new SystemClock());
      if (!isOn) {
        await say(1);
        await test.database.write(async (tx) => {
          await store(tx, -1);
          await others.all[0]!.inTransaction?.(tx, batchOf([{ position: -1, body: 'words' }], true), undefined);
        });
      }
      await follower.caughtUp();
      await soon();
      expect(await indexed(database)).toEqual(expected);
      await follower.stop();
    }
  });
});
