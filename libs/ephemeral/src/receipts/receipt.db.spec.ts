import { MatrixError } from '@rookery/matrix-types';
import { MembershipService, PurgeService } from '@rookery/rooms';
import { eachDatabase, FakeClock, holdUp, type TestDatabase } from '@rookery/testing';
import { AccountDataService } from '@rookery/users';
import { buildEphemeral, type EphemeralFixture, fixtureMigrations, requesterOf } from '../ephemeral.fixture.js';
import { EphemeralHooks } from '../hooks.js';
import { type Receipt, receiptContent, receiptContents, type StoredReceipt } from '../model/receipt.js';
import { type MarkerType, ReceiptService, receiptsStream } from './receipt.service.js';

const alice = requesterOf('alice');
const bob = requesterOf('bob');
const carol = requesterOf('carol');

describe('the content of m.receipt', () => {
  const receipt = {
    roomId: '!r',
    type: 'm.read',
    userId: '@a:b',
    eventId: '$e',
    ts: 5,
    eventStreamOrdering: 1,
  } as const;
  it('nests event, type and user, and prefers the receipt for the whole room', () => {
    const threaded: Receipt = { ...receipt, threadId: 'main' };
    const whole: Receipt = { ...receipt, threadId: undefined };
    expect(receiptContent([threaded])).toEqual({ $e: { 'm.read': { '@a:b': { ts: 5, thread_id: 'main' } } } });
    const expected = { $e: { 'm.read': { '@a:b': { ts: 5 } } } };
    expect(receiptContent([whole, threaded])).toEqual(expected);
    expect(receiptContent([threaded, whole])).toEqual(expected);
  });

  it('is one more where a user has read an event in several threads', () => {
    const [main, root, other, whole] = ['main', '$e', '$f', undefined].map((threadId, index): Receipt => ({
      ...receipt,
      threadId,
      ts: index,
    })) as [Receipt, Receipt, Receipt, Receipt];
    const content = (ts: number, threadId: string) => ({ $e: { 'm.read': { '@a:b': { ts, thread_id: threadId } } } });
    expect(receiptContents([main])).toEqual([content(0, 'main')]);
    expect(receiptContents([main, root])).toEqual([content(0, 'main'), content(1, '$e')]);
    // No event is in more than two.
    expect(receiptContents([main, root, other])).toEqual([content(1, '$e'), content(2, '$f')]);
    expect(receiptContents([main, root, whole])).toEqual([{ $e: { 'm.read': { '@a:b': { ts: 3 } } } }]);
    const [first, second] = receiptContents([{ ...main, userId: '@c:b' }, main, root]);
    expect([first, second]).toEqual([
      content(0, 'main'),
      { $e: { 'm.read': { '@c:b': { ts: 0, thread_id: 'main' }, '@a:b': { ts: 1, thread_id: '$e' } } } },
    ]);
  });
});

eachDatabase('receipts', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: EphemeralFixture;
  let receipts: ReceiptService;
  let roomId: string;

  const set = (requester: typeof alice, eventId: string, type: MarkerType = 'm.read', threadId?: unknown) =>
    receipts.setByClient(requester, roomId, [{ type, eventId, threadId }]);
  const news = async (userId: string, since: number): Promise<StoredReceipt[]> => {
    const rooms = new Set([roomId]);
    const upTo = receipts.stream.current();
    if (!receipts.mayHaveChanged(userId, rooms, since)) {
      expect(await receipts.changes(userId, rooms, since, upTo)).toEqual(new Map());
      return [];
    }
    return (await receipts.changes(userId, rooms, since, upTo)).get(roomId) ?? [];
  };

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildEphemeral({ database: test.database, clock });
    receipts = fixture.get(ReceiptService);
  });
  beforeEach(async () => {
    roomId = await fixture.room(alice, bob);
  });
  afterAll(() => fixture.close());

  it('shows public receipts to everybody in the room', async () => {
    const eventId = await fixture.say(bob, roomId);
    const since = receipts.stream.current();
    await set(alice, eventId);
    for (const userId of [alice.userId, bob.userId]) {
      expect(await news(userId, since)).toMatchObject([
        { type: 'm.read', userId: alice.userId, eventId, threadId: undefined, ts: clock.nowMs() },
      ]);
    }
    expect(await news(bob.userId, receipts.stream.current())).toEqual([]);
  });

  it('shows the newest of very many, and one’s own', async () => {
    const eventId = await fixture.say(bob, roomId);
    const since = receipts.stream.current();
    await set(alice, eventId);
    await receipts.store(
      Array.from({ length: 1_200 }, (_, i) => ({
        ...{ roomId, type: 'm.read' as const, userId: `@reader${i}:elsewhere.org`, eventId, threadId: undefined },
        ...{ ts: 1, eventStreamOrdering: 1 },
      })),
    );
    const shown = await news(alice.userId, since);
    expect(shown.map(({ userId }) => userId)).toEqual([
      alice.userId,
      ...Array.from({ length: 1_000 }, (_, i) => `@reader${i + 200}:elsewhere.org`),
    ]);
    expect(await news(bob.userId, since)).toHaveLength(1_000);
  });

  it('shows private receipts to their user alone', async () => {
    const eventId = await fixture.say(bob, roomId);
    const since = receipts.stream.current();
    await set(alice, eventId, 'm.read.private');
    expect(await news(bob.userId, since)).toEqual([]);
    expect(await news(alice.userId, since)).toMatchObject([{ type: 'm.read.private', eventId }]);
    // Bob's own news in the same room must not bring Alice's along.
    await set(bob, eventId, 'm.read.private');
    expect(await news(bob.userId, since)).toMatchObject([{ userId: bob.userId }]);
    // Nor must a public receipt.
    await set(alice, eventId);
    expect((await news(bob.userId, since)).map((one) => [one.type, one.userId])).toEqual([
      ['m.read', alice.userId],
      ['m.read.private', bob.userId],
    ]);
    const all = (await receipts.forRooms(bob.userId, [roomId], receipts.stream.current())).get(roomId) ?? [];
    expect(all.map((one) => [one.type, one.userId])).toEqual([
      ['m.read.private', bob.userId],
      ['m.read', alice.userId],
    ]);
  });

  it('does not wake others for a private receipt', async () => {
    const eventId = await fixture.say(bob, roomId);
    const own = fixture.notifier.wait(alice.userId, { timeoutMs: 1_000 });
    const other = fixture.notifier.wait(bob.userId, { timeoutMs: 1_000 });
    await set(alice, eventId, 'm.read.private');
    expect(await own).toBe('news');
    await clock.advance(2_000);
    expect(await other).toBe('timeout');
  });

  it('never moves back', async () => {
    const first = await fixture.say(bob, roomId);
    const second = await fixture.say(bob, roomId);
    await set(alice, second);
    const since = receipts.stream.current();
    await set(alice, first);
    await set(alice, second);
    expect(await news(bob.userId, since)).toEqual([]);
    expect((await receipts.own(alice.userId, [roomId])).map((one) => one.eventId)).toEqual([second]);
    const third = await fixture.say(bob, roomId);
    await set(alice, third);
    expect((await news(bob.userId, since)).map((one) => one.eventId)).toEqual([third]);
  });

  it('keeps receipts of threads apart', async () => {
    const root = await fixture.say(bob, roomId);
    const inThread = await fixture.say(bob, roomId, { 'm.relates_to': { rel_type: 'm.thread', event_id: root } });
    const reaction = await fixture.say(bob, roomId, {
      'm.relates_to': { rel_type: 'm.reference', event_id: inThread },
    });
    const main = await fixture.say(bob, roomId);
    await set(alice, main);
    await set(alice, inThread, 'm.read', root);
    await set(alice, reaction, 'm.read', root);
    await set(alice, root, 'm.read', root);
    await set(alice, root, 'm.read', 'main');
    await set(alice, main, 'm.read', 'main');
    const own = await receipts.own(alice.userId, [roomId]);
    expect(new Map(own.map((one) => [one.threadId, one.eventId]))).toEqual(
      new Map([
        [undefined, main],
        [root, reaction],
        ['main', main],
      ]),
    );
    const wrong = { errcode: 'M_INVALID_PARAM' };
    await expect(set(alice, inThread, 'm.read', 'main')).rejects.toMatchObject(wrong);
    await expect(set(alice, main, 'm.read', root)).rejects.toMatchObject(wrong);
    await expect(set(alice, reaction, 'm.read', 'main')).rejects.toMatchObject(wrong);
  });

  it('refuses threads of the wrong kind, events that are not there, and strangers', async () => {
    const eventId = await fixture.say(bob, roomId);
    for (const threadId of ['', 5, null, 'nonsense', `$${'x'.repeat(300)}`])
      await expect(set(alice, eventId, 'm.read', threadId)).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(set(alice, eventId, 'm.fully_read', 'main')).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(set(alice, 'not-an-event')).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(set(alice, '$unknown')).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    await expect(set(carol, eventId)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    const elsewhere = await fixture.say(alice, await fixture.room(alice));
    await expect(set(alice, elsewhere)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    await fixture.get(MembershipService).byContent(bob, roomId, bob.userId, { membership: 'leave' });
    await expect(set(bob, eventId)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
  });

  it('sets all markers of a request or none', async () => {
    const eventId = await fixture.say(bob, roomId);
    const since = receipts.stream.current();
    await expect(
      receipts.setByClient(alice, roomId, [
        { type: 'm.read', eventId },
        { type: 'm.fully_read', eventId: '$unknown' },
      ]),
    ).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    const full = jest.spyOn(fixture.get(AccountDataService), 'changeInRoom');
    full.mockRejectedValueOnce(MatrixError.tooLarge('There is no place left'));
    await expect(
      receipts.setByClient(alice, roomId, [
        { type: 'm.read', eventId },
        { type: 'm.fully_read', eventId },
      ]),
    ).rejects.toMatchObject({ errcode: 'M_TOO_LARGE' });
    expect(full).toHaveBeenCalledTimes(1);
    full.mockRestore();
    expect(await news(bob.userId, since)).toEqual([]);
  });

  it('moves the fully-read marker forward only, unless told', async () => {
    const first = await fixture.say(bob, roomId);
    const second = await fixture.say(bob, roomId);
    const marker = () => fixture.get(AccountDataService).find(alice.userId, roomId, 'm.fully_read');
    await set(alice, second, 'm.fully_read');
    expect(await marker()).toEqual({ event_id: second });
    await set(alice, first, 'm.fully_read');
    expect(await marker()).toEqual({ event_id: second });
    await receipts.setByClient(alice, roomId, [{ type: 'm.fully_read', eventId: first, mayGoBack: true }]);
    expect(await marker()).toEqual({ event_id: first });
    const [third, fourth] = [await fixture.say(bob, roomId), await fixture.say(bob, roomId)];
    await Promise.all([set(alice, fourth, 'm.fully_read'), set(alice, third, 'm.fully_read')]);
    expect(await marker()).toEqual({ event_id: fourth });
  });

  it('leaves the fully-read marker where another process has moved it further meanwhile', async () => {
    const [first, second] = [await fixture.say(bob, roomId), await fixture.say(bob, roomId)];
    const data = fixture.get(AccountDataService);
    const find = data.find.bind(data);
    const looking = jest.spyOn(data, 'find').mockImplementationOnce(async (...piece) => {
      const found = await find(...piece);
      await data.set(alice.userId, roomId, 'm.fully_read', { event_id: second }, {});
      return found;
    });
    await set(alice, first, 'm.fully_read');
    expect(looking).toHaveBeenCalledTimes(1);
    looking.mockRestore();
    expect(await find(alice.userId, roomId, 'm.fully_read')).toEqual({ event_id: second });
  });

  it('gives new clients the newest receipts of a room, and all of their own', async () => {
    const first = await fixture.say(bob, roomId);
    await set(alice, first);
    const others = Array.from({ length: 300 }, (_, index): Receipt => ({
      ...{ roomId, type: 'm.read', eventId: first, threadId: undefined, ts: index, eventStreamOrdering: 1 },
      userId: `@reader${index}:elsewhere.org`,
    }));
    expect(await receipts.store(others)).toHaveLength(300);
    const shown = (await receipts.forRooms(alice.userId, [roomId], receipts.stream.current())).get(roomId) ?? [];
    expect(shown).toHaveLength(251);
    expect(shown[0]?.userId).toBe(alice.userId);
    expect(shown.at(-1)?.userId).toBe('@reader299:elsewhere.org');
  });

  it('feeds followers and hooks with what was news', async () => {
    const hooks = fixture.get(EphemeralHooks);
    const inTransaction: string[] = [];
    const sent: string[] = [];
    hooks.subscribe({
      receiptsInTransaction: async (_, list) => void inTransaction.push(...list.map((one) => one.userId)),
      receiptsSent: (list) => void sent.push(...list.map((one) => one.userId)),
    });
    const eventId = await fixture.say(bob, roomId);
    const since = receipts.stream.current();
    await set(alice, eventId);
    await set(alice, eventId);
    await receipts.store([
      {
        roomId,
        type: 'm.read',
        userId: '@x:elsewhere.org',
        eventId,
        threadId: undefined,
        ts: 1,
        eventStreamOrdering: 9,
      },
    ]);
    expect(inTransaction).toEqual([alice.userId, '@x:elsewhere.org']);
    expect(sent).toEqual([alice.userId]);
    const rows = await receiptsStream.read(test.database, since, receipts.stream.current(), 100);
    expect(rows.map((row) => row.userId)).toEqual([alice.userId, '@x:elsewhere.org']);
  });

  it('leaves none of a room that is deleted at that moment', async () => {
    const left = (): Promise<unknown[]> =>
      test.database.query('SELECT user_id FROM receipts_linearized WHERE room_id = ?', [roomId]);
    const eventId = await fixture.say(bob, roomId);
    const purges = fixture.get(PurgeService);
    const reached = holdUp(
      test.database,
      'receipts',
      test.database.dialect.name === 'sqlite' ? 'purge_events' : 'purge_room',
    );
    const setting = set(alice, eventId);
    await reached;
    await Promise.all([setting, purges.purgeRoom(roomId)]);
    expect(await left()).toEqual([]);
    // What was checked before, and is stored after it.
    const more = { eventId, threadId: undefined, ts: 1, eventStreamOrdering: 9 };
    expect(await receipts.store([{ roomId, type: 'm.read', userId: bob.userId, ...more }])).toEqual([]);
    expect(await left()).toEqual([]);
  });

  it('leaves none of a room that is deleted, and deletes few at a time', async () => {
    await test.database.write((tx) =>
      tx.insertMany(
        'receipts_linearized',
        ['stream_id', 'room_id', 'receipt_type', 'user_id', 'event_id', 'data'],
        Array.from({ length: 1_200 }, (_, n) => [1_000_000 + n, roomId, 'm.read', `@u${n}:elsewhere.org`, '$e', '{}']),
      ),
    );
    const write = jest.spyOn(test.database, 'write');
    await fixture.get(PurgeService).purgeRoom(roomId);
    expect(write.mock.calls.filter(([, options]) => options?.name === 'purge_derived')).toHaveLength(3);
    write.mockRestore();
    expect(await test.database.query('SELECT 1 FROM receipts_linearized WHERE room_id = ?', [roomId])).toEqual([]);
  });

  it('finds after a restart what changed before', async () => {
    const eventId = await fixture.say(bob, roomId);
    const since = receipts.stream.current();
    await set(alice, eventId);
    const again = await buildEphemeral({ database: await test.reopen(), clock });
    const restarted = again.get(ReceiptService);
    const found = await restarted.changes(bob.userId, new Set([roomId]), since, restarted.stream.current());
    expect(found.get(roomId)).toMatchObject([{ eventId }]);
    await again.close();
  });
});
