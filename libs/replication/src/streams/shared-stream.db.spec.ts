import { DatabaseBesideWriter, databaseMigrations, type Tx } from '@rookery/database';
import { eachDatabase, eventually, FakeClock, type TestDatabase } from '@rookery/testing';
import { Bus, type BusMessage, defineStream, Notifier, Streams } from '../index.js';
import { InProcessRpc } from '../rpc/rpc.js';
import { type Sharing, StreamWriters } from './stream-writers.js';

const notes = defineStream({ name: 'notes', keys: { user: {} }, takenUpTo: async () => 7, anyProcess: true });
const own = defineStream({ name: 'own', keys: { user: {} } });

/** A bus that brings messages when the test says so. */
class HeldBus extends Bus {
  readonly sent: BusMessage[] = [];
  readonly #listeners: ((message: BusMessage) => void)[] = [];
  isHeld = false;

  publish(message: BusMessage): void {
    if (this.isHeld) this.sent.push(message);
    else this.bring(message);
  }
  bring(message: BusMessage): void {
    for (const listener of this.#listeners) listener(structuredClone(message));
  }
  subscribe(listener: (message: BusMessage) => void): () => void {
    this.#listeners.push(listener);
    return () => undefined;
  }
  async close(): Promise<void> {
    await Promise.resolve();
  }
}

eachDatabase('A stream that several processes write', (open) => {
  let test: TestDatabase;
  let bus: HeldBus;
  let clock: FakeClock;

  beforeEach(async () => {
    test = await open();
    await test.migrate(databaseMigrations);
    bus = new HeldBus();
    clock = new FakeClock();
  });

  const process = async (name: string, sharing?: Sharing) => {
    const db = name === 'writer' ? test.database : new DatabaseBesideWriter(test.database);
    const notifier = new Notifier(clock, bus, { instance: name });
    const writers = new StreamWriters(name, {}, 'writer', sharing);
    class Asking extends InProcessRpc {
      override async call<_Request, Response>(): Promise<Response> {
        return { own: 0 } as Response;
      }
    }
    const streams = new Streams(db, notifier, { writers, rpc: new Asking() });
    const stream = streams.of(notes);
    streams.of(own);
    await streams.open();
    const write = (user: string): Promise<number> =>
      db.write((tx) => stream.write(tx, { changed: { user: [user] }, users: [user] }), { anyProcess: true });
    return { db, notifier, streams, stream, users: stream.changes('user'), write };
  };

  it('numbers all that is written in one row, and everybody knows who changed', async () => {
    const all = [await process('writer'), await process('p2'), await process('p3')];
    const [writer] = all;
    const before = writer!.stream.current();
    expect(before).toBeGreaterThanOrEqual(7);
    const written = await Promise.all(
      Array.from({ length: 30 }, (_, n) => all[n % 3]!.write(`@u${n}:x`).then((position) => [n, position] as const)),
    );
    expect(written.map(([, position]) => position - before).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 30 }, (_, n) => n + 1),
    );
    for (const { stream, users } of all) {
      expect(stream.current()).toBe(before + 30);
      expect(users.earliestKnown).toBe(before);
      for (const [n, position] of written) {
        expect(users.hasChanged(`@u${n}:x`, position - 1)).toBe(true);
        expect(users.hasChanged(`@u${n}:x`, position)).toBe(false);
      }
      expect(users.hasChanged('@stranger:x', before)).toBe(false);
    }
  });

  it('gives the positions of what is rolled back to others, and tells those without news', async () => {
    const [writer, other] = [await process('writer'), await process('p2')];
    const before = writer.stream.current();
    const failed = other.db.write(
      async (tx) => {
        await other.stream.write(tx, { changed: { user: ['@a:x'] } });
        throw new Error('no');
      },
      { anyProcess: true },
    );
    await expect(failed).rejects.toThrow('no');
    expect([writer.stream.current(), other.stream.current()]).toEqual([before, before]);
    await writer.db.write(async (tx) => {
      const ids = await writer.stream.allocateIn(tx, 3);
      expect(ids).toEqual([before + 1, before + 2, before + 3]);
      writer.stream.announceIn(tx, ids[1]!, { changed: { user: ['@b:x'] } });
      expect(await writer.stream.allocateIn(tx)).toEqual([before + 4]);
    });
    expect([writer.stream.current(), other.stream.current()]).toEqual([before + 4, before + 4]);
    expect(other.users.hasChanged('@a:x', before)).toBe(false);
    expect(other.users.hasChanged('@b:x', before + 1)).toBe(true);
  });

  it('lets nobody read what comes before what has not been told yet', async () => {
    const [writer, other, reader] = [await process('writer'), await process('p2'), await process('p3')];
    const before = reader.stream.current();
    const heard: unknown[] = [];
    reader.stream.onHeard((changed) => heard.push(changed?.user));
    bus.isHeld = true;
    await writer.write('@first:x');
    await other.write('@second:x');
    const [first, second] = bus.sent;
    let woken = '';
    void reader.notifier.wait('@second:x', { timeoutMs: 60_000 }).then((outcome) => (woken = outcome));
    bus.bring(second!);
    await new Promise((resolve) => setImmediate(resolve));
    // Its own news are news to nobody here while those before them may be some.
    expect([reader.stream.current(), woken, heard]).toEqual([before, '', []]);
    // Whoever wrote it cannot read it yet, and answers once it can.
    expect(other.stream.current()).toBe(before);
    let isSettled = false;
    const settling = other.streams.settled()!.then(() => (isSettled = true));
    expect([writer.streams.settled(), isSettled]).toEqual([undefined, false]);
    bus.bring(first!);
    await settling;
    await new Promise((resolve) => setImmediate(resolve));
    expect([reader.stream.current(), other.stream.current(), woken]).toEqual([before + 2, before + 2, 'news']);
    expect(heard).toEqual([['@first:x'], ['@second:x']]);
    expect(reader.users.hasChanged('@first:x', before)).toBe(true);
    expect(reader.users.hasChanged('@stranger:x', before)).toBe(false);
    expect(other.streams.settled()).toBeUndefined();
  });

  it('forgets what it knew where something is not told at all, and goes on', async () => {
    const [writer, other, reader] = [await process('writer'), await process('p2'), await process('p3')];
    const before = reader.stream.current();
    const heard: unknown[] = [];
    reader.stream.onHeard((changed) => heard.push(changed?.user));
    bus.isHeld = true;
    await writer.write('@lost:x');
    await other.write('@second:x');
    bus.bring(bus.sent[1]!);
    const settling = other.streams.settled();
    await clock.advance(300);
    await settling;
    expect([reader.stream.current(), other.stream.current()]).toEqual([before + 2, before + 2]);
    expect(heard).toEqual([undefined, ['@second:x']]);
    for (const { users } of [reader, other]) {
      expect(users.hasChanged('@lost:x', before)).toBe(true);
      expect(users.hasChanged('@second:x', before + 1)).toBe(true);
      expect(users.hasChanged('@third:x', before + 1)).toBe(false);
    }
    // It came after all.
    bus.bring(bus.sent[0]!);
    expect(heard.at(-1)).toEqual(['@lost:x']);
    expect([reader.stream.current(), clock.pendingTimers]).toEqual([before + 2, 0]);
  });

  it('says that something is missing before it tells what has waited for that', async () => {
    const [writer, other, reader] = [await process('writer'), await process('p2'), await process('p3')];
    const before = reader.stream.current();
    const heard: unknown[] = [];
    reader.stream.onHeard((changed) => heard.push([reader.stream.current() - before, changed?.user]));
    bus.isHeld = true;
    await writer.write('@lost:x');
    await other.write('@second:x');
    bus.bring(bus.sent[1]!);
    expect(heard).toEqual([]);
    reader.stream.catchUp(before + 1);
    expect(heard).toEqual([
      [0, undefined],
      [1, ['@second:x']],
    ]);
    expect(reader.stream.current()).toBe(before + 2);
    expect(reader.users.hasChanged('@lost:x', before)).toBe(true);
    expect(reader.users.hasChanged('@second:x', before + 1)).toBe(true);
  });

  it('is where the database says, whoever was not heard, and forgets nothing where that is known', async () => {
    const [writer, other] = [await process('writer'), await process('p2')];
    const before = other.stream.current();
    let forgotten = 0;
    await writer.streams.catchUp(() => forgotten++);
    expect(forgotten).toBe(0);
    bus.isHeld = true;
    await other.write('@unheard:x');
    await writer.streams.catchUp(() => forgotten++);
    expect([writer.stream.current(), forgotten]).toEqual([before + 1, 1]);
    expect(writer.users.hasChanged('@unheard:x', before)).toBe(true);
  });

  it('forgets with the next look what may have changed by what it gave up', async () => {
    const [writer, other] = [await process('writer'), await process('p2')];
    let forgotten = 0;
    const look = async (hasMissed?: boolean): Promise<number> => {
      await writer.streams.catchUp(() => forgotten++, hasMissed);
      return forgotten;
    };
    bus.isHeld = true;
    await other.write('@unheard:x');
    const written = await writer.write('@heard:x');
    await clock.advance(300);
    expect([writer.stream.current(), forgotten]).toEqual([written, 0]);
    expect(await look()).toBe(1);
    expect(await look()).toBe(1);
    expect(await look(true)).toBe(2);
  });

  it('is written by one process alone while that one knows of no other, or others cannot be told', async () => {
    await process('writer');
    let [isKnown, canTell] = [true, true];
    const other = await process('p2', { isKnown: () => isKnown, canTell: () => canTell });
    expect(other.stream.isWrittenHere).toBe(true);
    canTell = false;
    expect(other.stream.isWrittenHere).toBe(false);
    [isKnown, canTell] = [false, true];
    expect(other.stream.isWrittenHere).toBe(false);
    // That one numbers from blocks then: the counter of the database is ahead of what there is.
    const before = other.stream.current();
    await test.database.write((tx) => tx.run('UPDATE stream_positions SET stream_id = stream_id + 1000'));
    await other.streams.catchUp();
    expect(other.stream.current()).toBe(before);
    isKnown = true;
    await other.streams.catchUp();
    expect(other.stream.current()).toBe(before + 1_000);
  });

  it('finds out what became of a transaction of which nobody can tell', async () => {
    const [writer, other] = [await process('writer'), await process('p2')];
    const before = other.stream.current();
    let listeners: (() => void)[] = [];
    await test.database.write(async (tx) => {
      // As a connection that breaks while the commit is under way: it happened, and nobody is told that it did.
      const unclear = Object.create(tx, {
        afterCommit: { value: () => undefined },
        unlessRolledBack: { value: (fn: () => void) => (listeners = [...listeners, fn]) },
        get: { value: tx.get.bind(tx) },
      }) as Tx;
      await writer.stream.write(unclear, { changed: { user: ['@a:x'] } });
    });
    for (const listener of listeners) listener();
    await eventually(() => writer.stream.current() === before + 1 || void clock.advance(300));
    await eventually(() => other.stream.current() === before + 1 || void clock.advance(300));
    for (const { users } of [writer, other]) expect(users.hasChanged('@a:x', before)).toBe(true);
  });
});
