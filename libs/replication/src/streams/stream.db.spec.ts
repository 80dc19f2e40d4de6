import { type Database, databaseMigrations } from '@rookery/database';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { type Bus, defineRpc, defineStream, InProcessBus, Notifier, Streams } from '../index.js';
import { InProcessRpc } from '../rpc/rpc.js';
import { StreamWriters } from './stream-writers.js';

const notes = defineStream({ name: 'notes', keys: { user: {}, room: {} }, takenUpTo: async () => 7 });
const memory = defineStream({ name: 'memory' });
const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

eachDatabase('Streams', (open) => {
  let test: TestDatabase;
  let db: Database;
  let bus: Bus;

  beforeEach(async () => {
    test = await open();
    db = test.database;
    await test.migrate(databaseMigrations);
    bus = new InProcessBus();
  });

  const process = (instance: string, writers?: StreamWriters): { notifier: Notifier; streams: Streams } => {
    const notifier = new Notifier(new FakeClock(), bus, { instance });
    return { notifier, streams: new Streams(db, notifier, { writers: writers ?? new StreamWriters(instance) }) };
  };
  /** A stream as the process that writes it has it, and as another one does. */
  const writerAndReader = async (): Promise<Record<'source' | 'stream', ReturnType<typeof sideOf>>> => {
    const writer = process('writer');
    const reader = process('reader', new StreamWriters('reader', { notes: ['writer'] }));
    const [source, stream] = [sideOf(writer), sideOf(reader)];
    await writer.streams.open();
    await reader.streams.open();
    return { source, stream };
  };
  const sideOf = ({ streams }: ReturnType<typeof process>) => streams.of(notes);

  it('numbers what is written, wakes whom it concerns and knows who changed', async () => {
    const { notifier, streams } = process('main');
    const stream = streams.of(notes);
    const users = stream.changes('user');
    expect(users.hasChanged('@a:x', 100)).toBe(true);
    await streams.open();
    const before = stream.current();
    expect(before).toBeGreaterThanOrEqual(7);
    expect(users.hasChanged('@a:x', before)).toBe(false);

    const woken = notifier.wait('@a:x', { timeoutMs: 1000 });
    const position = await db.write((tx) => stream.write(tx, { changed: { user: ['@a:x'] }, users: ['@a:x'] }));
    expect(await woken).toBe('news');
    expect([position, stream.current(), notifier.position('notes')]).toEqual(Array(3).fill(before + 1));
    expect(String(stream.positions())).toBe(String(position));
    expect(users.hasChanged('@a:x', before)).toBe(true);
    expect(users.hasChanged('@a:x', position)).toBe(false);
    expect(users.hasChanged('@b:x', before)).toBe(false);
    expect(stream.changes('room').anyChanged(before)).toBe(false);
  });

  it('says nothing of a transaction that is rolled back, and does not wait for its positions', async () => {
    const { streams } = process('main');
    const stream = streams.of(notes);
    await streams.open();
    const before = stream.current();
    const failed = db.write(async (tx) => {
      await stream.write(tx, { changed: { user: ['@a:x'] } });
      throw new Error('no');
    });
    await expect(failed).rejects.toThrow('no');
    expect(stream.changes('user').hasChanged('@a:x', before)).toBe(false);
    expect(stream.current()).toBe(before + 1);
  });

  it('knows of a change before its position can be seen', async () => {
    const { streams } = process('main');
    const stream = streams.of(notes);
    await streams.open();
    const first = await stream.allocate();
    const second = await stream.allocate(2);
    second.commit({ changed: { room: ['!r'] } });
    expect(stream.current()).toBe(first.ids[0]! - 1);
    expect(stream.changes('room').hasChanged('!r', first.ids[0]!)).toBe(true);
    first.done();
    expect(stream.current()).toBe(second.ids[1]);
  });

  it('gives everybody the same stream, and refuses a second definition of its name and unknown kinds of key', () => {
    const { streams } = process('main');
    expect(streams.of(notes)).toBe(streams.of(notes));
    expect(() => streams.of(defineStream({ name: 'notes' }))).toThrow(/two definitions/);
    expect(() => streams.of(notes).changes('event' as 'user')).toThrow(/no keys/);
  });

  it('takes positions only where the stream is written, and calls the writer from elsewhere', async () => {
    const table = { memory: ['writer'] };
    const { streams } = process('reader', new StreamWriters('reader', table));
    const stream = streams.of(memory);
    await streams.open();
    expect(stream.isWrittenHere).toBe(false);
    await expect(stream.allocate()).rejects.toThrow(/written by writer/);
    await expect(db.write((tx) => stream.write(tx, {}))).rejects.toThrow(/written by writer/);

    const asked: unknown[] = [];
    const method = defineRpc<{ n: number }, number>('add_note');
    class Far extends InProcessRpc {
      override async call<Request, Response>(_: unknown, request: Request, instance?: string): Promise<Response> {
        asked.push([request, instance]);
        return 1 as Response;
      }
    }
    const rpc = new Far();
    const there = new Streams(db, new Notifier(new FakeClock(), bus), {
      writers: new StreamWriters('reader', table),
      rpc,
    });
    there.of(memory).serve(method, () => Promise.reject(new Error('not here')));
    expect(await there.of(memory).atWriter(method, { n: 1 })).toBe(1);
    expect(asked).toEqual([[{ n: 1 }, 'writer']]);

    const here = new Streams(db, new Notifier(new FakeClock(), bus)).of(memory);
    here.serve(method, async ({ n }) => n + 1);
    expect(await here.atWriter(method, { n: 1 })).toBe(2);
  });

  it('is told by others of a position only with everything that changed up to it', async () => {
    const { source, stream } = await writerAndReader();
    await db.write((tx) => source.write(tx, {}));
    await settled();
    const before = stream.current();
    const users = stream.changes('user');
    const unknown: (readonly [number, string])[] = [];
    const positions = new Map<string, number>();
    bus.subscribe(() => {
      for (const [user, position] of positions)
        if (stream.current() >= position && !users.hasChanged(user, position - 1))
          unknown.push([stream.current(), user]);
    });

    const [first, second] = [await source.allocate(), await source.allocate()];
    positions.set('@a:x', first.ids[0]!).set('@b:x', second.ids[0]!);
    second.commit({ changed: { user: ['@b:x'] } });
    first.commit({ changed: { user: ['@a:x'] } });
    await settled();
    // The same where the positions are those of transactions.
    const held = await source.allocate();
    await db.write(async (tx) => {
      positions.set('@c:x', await source.write(tx, { changed: { user: ['@c:x'] } }));
    });
    positions.set('@d:x', held.ids[0]!);
    held.commit({ changed: { user: ['@d:x'] } });
    await settled();
    expect(stream.current()).toBe(before + 4);
    expect(users.hasChanged('@stranger:x', before)).toBe(false);
    expect(unknown).toEqual([]);
  });

  it('hears what others write, and forgets what it knew where a message was lost', async () => {
    const { source, stream } = await writerAndReader();
    const write = (user: string): Promise<number> => db.write((tx) => source.write(tx, { changed: { user: [user] } }));
    const users = stream.changes('user');

    // What the reader has not heard from the beginning it cannot trust.
    const first = await write('@a:x');
    await Promise.resolve();
    expect(stream.current()).toBe(first);
    expect(users.hasChanged('@b:x', first - 1)).toBe(true);

    const second = await write('@a:x');
    await Promise.resolve();
    expect(users.hasChanged('@a:x', first)).toBe(true);
    expect(users.hasChanged('@b:x', first)).toBe(false);

    const lost = bus.publish.bind(bus);
    bus.publish = () => undefined;
    await write('@b:x');
    bus.publish = lost;
    expect(users.hasChanged('@b:x', second)).toBe(false);
    const fourth = await write('@c:x');
    await Promise.resolve();
    expect(stream.current()).toBe(fourth);
    expect(users.hasChanged('@b:x', second)).toBe(true);
    expect(users.hasChanged('@b:x', fourth)).toBe(false);
  });

  it('forgets what was read while the writer was asked, before anybody sees how far that is', async () => {
    let remembered = 'nothing';
    class Far extends InProcessRpc {
      override async call<_Request, Response>(): Promise<Response> {
        // Somebody reads while the answer is on its way, and the writer writes.
        remembered = 'what is true no more';
        return { notes: 40 } as Response;
      }
    }
    const notifier = new Notifier(new FakeClock(), bus, { instance: 'reader' });
    const writers = new StreamWriters('reader', {}, 'writer');
    const streams = new Streams(db, notifier, { writers, rpc: new Far() });
    const stream = streams.of(notes);
    const seen: (readonly [number, string])[] = [];
    notifier.onAdvance('notes', (position) => seen.push([position, remembered]));
    await streams.catchUp(() => (remembered = 'nothing'));
    expect([stream.current(), seen]).toEqual([40, [[40, 'nothing']]]);
  });
});
