import type { Database, SqlValue, Tx } from '@rookery/database';
import { Config, Lifecycle, type Requester, SilentLogger } from '@rookery/platform';
import { InProcessBus, Invalidations, Notifier, Streams } from '@rookery/replication';
import { type InvitePermissions, RoomHooks } from '@rookery/rooms';
import { eachDatabase, FakeClock } from '@rookery/testing';
import { fixtureMigrations } from '../push.fixture.js';
import type { Regrouped } from '../rules/own-rules.js';
import { collectGroups, deleteGroups, selectGroups, selectGroupsOf, writeGroups } from '../rules/rule-groups.query.js';
import { usersToPush } from '../pushers/pusher.query.js';
import { readCounts } from './counted-rooms.js';
import { type EventPush, type NotifyOutcome, noteOf } from './event-push.js';
import {
  deleteRoomPushes,
  insertMarks,
  insertOwnPushes,
  raiseMark,
  raiseThreadMarks,
  selectNotifications,
  selectReach,
  selectUnread,
  type ThreadMark,
  withdrawPushes,
} from './push-actions.query.js';
import { NotificationHistory } from './notification-history.js';
import { OwnReads } from './own-reads.js';
import { PushCounts, type RoomCounts, totalOf } from './push-counts.js';

const plain: NotifyOutcome = { highlight: false, json: '["notify"]' };
const loud: NotifyOutcome = { highlight: true, json: '["notify",{"set_tweak":"highlight"}]' };
const userIdOf = (name: string): string => `@${name}:example.org`;
const [alice, bob, carol, dan] = ['alice', 'bob', 'carol', 'dan'].map(userIdOf) as [string, string, string, string];
const members = [alice, bob, carol, dan];

/** The same numbers each time. */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

eachDatabase('what an event means to everybody', (open) => {
  let database: Database;
  let position = 10;
  let rooms = 0;

  beforeAll(async () => {
    const test = await open();
    await test.migrate(fixtureMigrations);
    database = test.database;
  });

  const markOf = ({ sender: userId, roomId, threadId, streamOrdering }: EventPush): ThreadMark => ({
    ...{ userId, roomId, threadId, streamOrdering },
  });
  const push = (roomId: string, more: Partial<EventPush> = {}): EventPush => {
    position++;
    return {
      eventId: `$${position}`,
      roomId,
      streamOrdering: position,
      sender: alice,
      threadId: 'main',
      everyone: plain,
      except: [],
      exceptGroups: [],
      own: new Map(),
      outOfBand: false,
      ...more,
    };
  };

  /** Stores events as the writer of events and the hook do. */
  async function store(
    pushes: readonly EventPush[],
    counts?: PushCounts,
    regrouped: Regrouped = new Map(),
    reads: readonly ThreadMark[] = [],
  ): Promise<void> {
    const columns =
      'event_id type room_id sender topological_ordering depth stream_ordering origin_server_ts received_ts';
    const row = (one: EventPush, note: ReturnType<typeof noteOf>): (string | number | null)[] => [
      ...[one.eventId, 'm.room.message', one.roomId, one.sender],
      ...[one.streamOrdering, one.streamOrdering, one.streamOrdering, 1, 1],
      note?.thread ?? null,
      note ? Number(note.highlight) : null,
      note?.actions ?? null,
      note?.except ?? null,
    ];
    await database.write(async (tx) => {
      await tx.insertMany(
        'events',
        [...columns.split(' '), 'push_thread', 'push_highlight', 'push_actions', 'push_except'],
        pushes.map((one) => row(one, noteOf(one, undefined))),
      );
      await insertOwnPushes(tx, pushes);
      const { roomId, streamOrdering } = pushes[0]!;
      await writeGroups(tx, roomId, streamOrdering, regrouped);
      counts?.changeIn(tx, roomId, () => {
        for (const userId of regrouped.keys()) counts.forget(roomId, userId);
        counts.add(roomId, pushes, reads);
      });
    });
  }

  async function newRoom(): Promise<string> {
    const roomId = `!${++rooms}:example.org`;
    const at = ++position;
    await database.write(async (tx) => {
      await insertMarks(
        tx,
        roomId,
        members.map((userId) => [userId, at] as const),
      );
      await tx.insertMany(
        'local_current_membership',
        ['room_id', 'user_id', 'event_id', 'membership', 'event_stream_ordering'],
        members.map((userId) => [roomId, userId, `$join${roomId}${userId}`, 'join', at]),
      );
    });
    return roomId;
  }

  const config = Config.fromObject({ server_name: 'example.org' });
  const newReads = (clock = new FakeClock()): OwnReads => {
    const logger = new SilentLogger();
    const streams = new Streams(database, new Notifier(clock, new InProcessBus()));
    return new OwnReads(database, clock, logger, new Lifecycle(clock, logger), streams);
  };
  const newCounts = (reads = newReads(), tables = database): PushCounts =>
    new PushCounts(
      ...([tables, config, reads] as const),
      new Invalidations(new Notifier(new FakeClock(), new InProcessBus())),
      {} as InvitePermissions,
      new Streams(database, new Notifier(new FakeClock(), new InProcessBus())),
      new RoomHooks(),
    );
  const sorted = (counts: RoomCounts | undefined): unknown[] =>
    [...(counts ?? [])].sort(([one], [other]) => (one < other ? -1 : 1));
  const readBy = (userId: string, roomId: string, upTo: number, threadId?: string): Promise<void> =>
    database.write((tx) => raiseMark(tx, userId, roomId, threadId, upTo));

  it('is NULL where it is usual, so that a row carries nothing for it', () => {
    const roomId = '!any:example.org';
    expect(noteOf(push(roomId), undefined)).toEqual({
      thread: 'main',
      highlight: false,
      actions: undefined,
      except: undefined,
    });
    expect(noteOf(push(roomId, { everyone: loud, threadId: '$root', except: [bob] }), undefined)).toEqual({
      thread: '$root',
      highlight: true,
      actions: loud.json,
      except: JSON.stringify([bob]),
    });
    expect(noteOf(push(roomId, { everyone: undefined, own: new Map([[bob, loud]]) }), undefined)).toBeUndefined();
  });

  it('counts the same in memory as from the tables, whatever happens', async () => {
    const random = numbers(7);
    const pick = <T>(list: readonly T[]): T => list[random(list.length)]!;
    const roomId = await newRoom();
    let reads = newReads();
    let counts = newCounts(reads);
    const groups = new Map<string, string | undefined>();
    for (let step = 0; step < 120; step++) {
      const reader = pick(members);
      if (random(4) === 0) {
        const receipt = { roomId, userId: reader, eventStreamOrdering: position - random(8) };
        const threadId = pick([undefined, 'main', '$t1', '$t2']);
        await database.write((tx) => counts.receiptsInTransaction(tx, [{ ...receipt, threadId }]));
      }
      if (random(6) === 0) {
        const eventId = `$${position - random(12)}`;
        await database.write(async (tx) => {
          await counts.takeBackIn(tx, roomId, [eventId]);
          await withdrawPushes(tx, [eventId]);
        });
      }
      const regrouped = new Map<string, string | undefined>();
      if (random(5) === 0) regrouped.set(pick(members), pick([undefined, '#one', '#two']));
      for (const [userId, groupId] of regrouped) groups.set(userId, groupId);
      const pushes = Array.from({ length: 1 + random(3) }, () => {
        const sender = pick(members);
        const others = members.filter((userId) => userId !== sender);
        const everyone = pick([undefined, plain, plain, plain, loud]);
        const own = new Map(
          others.filter(() => random(4) === 0).map((userId) => [userId, pick([plain, loud])] as const),
        );
        const exceptGroups = everyone ? ['#one', '#two'].filter(() => random(2) === 0) : [];
        const isSpared = (userId: string): boolean => exceptGroups.includes(groups.get(userId) ?? '');
        // Members of a group that is spared are named as well, or not.
        const except = everyone
          ? others.filter((userId) => (own.has(userId) && !isSpared(userId)) || random(4) === 0)
          : [];
        return push(roomId, {
          sender,
          everyone,
          own,
          except,
          exceptGroups,
          threadId: pick(['main', 'main', '$t1', '$t2']),
        });
      });
      // Some were sent by a client, which has read what is before them.
      const marks = pushes.filter(() => random(3) === 0).map(markOf);
      await store(pushes, counts, regrouped, marks);
      // Some are in memory from the beginning, others come later.
      const known = members.slice(0, 1 + (step >> 5));
      const inMemory = await Promise.all(known.map((userId) => counts.read(userId, [roomId])));
      for (const { userId, threadId, streamOrdering } of marks) {
        const since = pushes.filter((one) => one.streamOrdering > streamOrdering && one.threadId === threadId);
        const unread = (await counts.read(userId, [roomId])).get(roomId)!.get(threadId)?.notify ?? 0;
        expect(unread).toBeLessThanOrEqual(since.length);
      }
      if (random(20) === 0) {
        await reads.stop();
        reads = newReads();
        counts = newCounts(reads);
      } else if (random(3) === 0) await Promise.all(members.map((userId) => reads.settle(userId)));
      else continue;
      for (const [index, userId] of known.entries()) {
        const told = sorted(inMemory[index]!.get(roomId));
        expect([step, told]).toEqual([step, sorted((await newCounts().read(userId, [roomId])).get(roomId))]);
        expect([step, told]).toEqual([step, sorted((await counts.read(userId, [roomId])).get(roomId))]);
      }
    }
    expect(totalOf((await counts.read(alice, [roomId])).get(roomId)!).notify).toBeGreaterThan(0);
  });

  const totalIn = async (counts: PushCounts, userId: string, roomId: string): Promise<number> =>
    totalOf((await counts.read(userId, [roomId])).get(roomId)!).notify;

  it('counts what is in the tables where the commit was not answered', async () => {
    const roomId = await newRoom();
    const counts = newCounts();
    await store([push(roomId)], counts);
    const unread = async (): Promise<number[]> =>
      [...((await counts.read(bob, [roomId])).get(roomId)?.values() ?? [])].map(({ notify }) => notify);
    expect(await unread()).toEqual([1]);
    const untold: (() => void)[] = [];
    await database.write(async (tx) => {
      const silent = {
        afterCommit: () => undefined,
        afterRollback: (fn: () => void) => void untold.push(fn),
        unlessRolledBack: (fn: () => void) => void untold.push(fn),
      };
      counts.changeIn(silent as unknown as Tx, roomId, () => undefined);
      await raiseMark(tx, bob, roomId, undefined, position);
    });
    for (const tell of untold) tell();
    expect(await unread()).toEqual([]);
  });

  it('counts anew what is taken back for those alone who had not read it', async () => {
    const roomId = await newRoom();
    const asked: string[] = [];
    const listening = new Proxy(database, {
      get: (target, name: keyof Database) => {
        if (name !== 'query') return typeof target[name] === 'function' ? target[name].bind(target) : target[name];
        return (sql: string, params: readonly SqlValue[]) => {
          if (sql.includes('push_read_marks')) asked.push(String(params[1]));
          return database.query(sql, params);
        };
      },
    });
    const counts = newCounts(undefined, listening);
    const [gone, inThread, last] = [push(roomId), push(roomId, { threadId: '$t' }), push(roomId)];
    await store([gone, inThread, last], counts);
    // All of it, what is in no thread, and nothing.
    await readBy(bob, roomId, inThread.streamOrdering);
    await readBy(carol, roomId, gone.streamOrdering, 'main');
    const unread = (): Promise<number[]> =>
      Promise.all([bob, carol, dan].map((userId) => totalIn(counts, userId, roomId)));
    const takeBack = (one: EventPush): Promise<void> =>
      database.write(async (tx) => {
        await counts.takeBackIn(tx, roomId, [one.eventId]);
        await withdrawPushes(tx, [one.eventId]);
      });
    expect(await unread()).toEqual([1, 2, 3]);
    asked.length = 0;
    await takeBack(gone);
    expect(await unread()).toEqual([1, 2, 2]);
    expect(asked).toEqual([dan]);
    await takeBack(inThread);
    expect(await unread()).toEqual([1, 1, 1]);
    expect(asked).toEqual([dan, carol, dan]);
    // Of it nobody had been told any more.
    await takeBack(inThread);
    expect(await unread()).toEqual([1, 1, 1]);
    expect(asked).toHaveLength(3);
  });

  it('counts many rooms, and large ones, in several turns of the event loop', async () => {
    const small: string[] = [];
    for (let index = 0; index < 45; index++) {
      const roomId = await newRoom();
      small.push(roomId);
      await store([push(roomId), push(roomId, { sender: bob }), push(roomId, { threadId: '$t', everyone: loud })]);
    }
    const large = await newRoom();
    const count = 21_000;
    for (let done = 0; done < count; done += 3_000)
      await store(
        Array.from({ length: 3_000 }, (_, n) =>
          n % 1_000 === 0
            ? push(large, { everyone: undefined, own: new Map([[bob, loud]]) })
            : push(large, { threadId: n % 3 === 0 ? '$t' : 'main' }),
        ),
      );
    const queries: number[] = [];
    let turn = 0;
    let timer = setImmediate(function next() {
      turn++;
      timer = setImmediate(next);
    });
    const rows = await readCounts(
      {
        dialect: database.dialect,
        get: (sql, params) => database.get(sql, params),
        query: (sql, params) => {
          queries.push(turn);
          return database.query(sql, params);
        },
      },
      bob,
      [...small, large],
    );
    clearImmediate(timer);
    expect(new Set(queries).size).toBe(queries.length);
    // Three for all rooms, and the rest of the large one.
    expect(queries).toHaveLength(3 + 2);
    const sums = new Map<string, number[]>();
    for (const { room_id: roomId, thread_id: threadId, notify, highlight } of rows) {
      const sum = sums.get(`${roomId} ${threadId}`) ?? [0, 0];
      sums.set(`${roomId} ${threadId}`, [sum[0]! + notify, sum[1]! + highlight]);
    }
    expect(sums.get(`${large} main`)).toEqual([21 * 667, 21]);
    expect(sums.get(`${large} $t`)).toEqual([21 * 333, 0]);
    for (const roomId of small) {
      expect(sums.get(`${roomId} main`)).toEqual([1, 0]);
      expect(sums.get(`${roomId} $t`)).toEqual([1, 1]);
    }
    const counts = await newCounts().read(bob, [...small, large]);
    expect(sorted(counts.get(large))).toEqual([
      ['$t', { notify: 21 * 333, highlight: 0 }],
      ['main', { notify: 21 * 667, highlight: 21 }],
    ]);
    expect(totalOf(counts.get(small[0]!)!)).toEqual({ notify: 2, highlight: 1 });
  });

  it('was read by who sends something in the same thread, and in no other one', async () => {
    const roomId = await newRoom();
    const counts = newCounts();
    await counts.read(bob, [roomId]);
    await store([push(roomId, { threadId: '$t' }), push(roomId), push(roomId)], counts);
    expect(await totalIn(counts, bob, roomId)).toBe(3);
    const own = push(roomId, { sender: bob });
    await store([own, push(roomId)], counts, undefined, [markOf(own)]);
    for (const each of [counts, newCounts()]) {
      await counts.read(bob, [roomId]);
      if (each !== counts) await database.write((tx) => raiseThreadMarks(tx, [markOf(own)]));
      expect(sorted((await each.read(bob, [roomId])).get(roomId))).toEqual([
        ['$t', { notify: 1, highlight: 0 }],
        ['main', { notify: 1, highlight: 0 }],
      ]);
    }
  });

  it('is noted for later where somebody had something to read, and written for many at a time', async () => {
    const roomId = await newRoom();
    const clock = new FakeClock();
    const reads = newReads(clock);
    const counts = newCounts(reads);
    const written: (readonly string[])[] = [];
    reads.onWritten((userIds) => written.push(userIds));
    const marks = async (): Promise<number> =>
      (await database.query(`SELECT 1 FROM push_read_marks WHERE room_id = ? AND thread_id <> ''`, [roomId])).length;
    const send = async (sender: string): Promise<void> => {
      const own = push(roomId, { sender });
      await store([own], counts, undefined, [markOf(own)]);
    };
    await counts.read(alice, [roomId]);
    await send(alice);
    expect(clock.pendingTimers).toBe(0);
    // What these two have not read is not known.
    await send(bob);
    await send(carol);
    await send(alice);
    expect([await marks(), clock.pendingTimers]).toEqual([0, 1]);
    await clock.advance(3_000);
    await Promise.all([alice, bob, carol].map((userId) => reads.settle(userId)));
    expect([await marks(), written, clock.pendingTimers]).toEqual([3, [[bob, carol, alice]], 0]);
    expect(await totalIn(counts, bob, roomId)).toBe(2);
    await send(bob);
    expect(await totalIn(counts, bob, roomId)).toBe(0);
    expect(await readCounts(database, bob, [roomId])).toMatchObject([{ notify: 2 }]);
    await reads.stop();
    expect(await readCounts(database, bob, [roomId])).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });

  it('has no effect for who has left, and goes no further back than a receipt', async () => {
    const roomId = await newRoom();
    const [one, two] = [push(roomId), push(roomId, { sender: bob })];
    await store([one, two]);
    const eve = userIdOf('eve');
    await readBy(carol, roomId, position);
    await readBy(dan, roomId, position, 'main');
    const mark = { ...markOf(one), threadId: 'main' };
    const each = [eve, carol, dan].map((userId) => ({ ...mark, userId }));
    await database.write((tx) => raiseThreadMarks(tx, each));
    const rows = await database.query(
      `SELECT user_id, read_up_to FROM push_read_marks WHERE room_id = ? AND thread_id <> ''`,
      [roomId],
    );
    expect(rows).toEqual([{ user_id: dan, read_up_to: position }]);
  });

  it('a room of very many threads is counted all the same', async () => {
    const roomId = await newRoom();
    const counts = newCounts();
    await counts.read(bob, [roomId]);
    for (let batch = 0; batch < 4; batch++) {
      await store(
        Array.from({ length: 100 }, () => push(roomId, { threadId: `$thread${position}` })),
        counts,
      );
      expect((await counts.read(bob, [roomId])).get(roomId)?.size).toBe(100 * (batch + 1));
    }
    expect(totalOf((await counts.read(bob, [roomId])).get(roomId)!)).toEqual({ notify: 400, highlight: 0 });
  });

  it('is taken back by a redaction, which tells whether anybody had been told', async () => {
    const roomId = await newRoom();
    const [silent, shared, own] = [
      push(roomId, { everyone: undefined }),
      push(roomId),
      push(roomId, { everyone: undefined, own: new Map([[bob, loud]]) }),
    ];
    await store([silent, shared, own]);
    const countOf = async (): Promise<number> =>
      (await readCounts(database, bob, [roomId])).reduce((sum, row) => sum + row.notify, 0);
    const withdraw = async (one: EventPush): Promise<boolean> => {
      const hasTold = (await selectReach(database, [one.eventId])).size > 0;
      await database.write((tx) => withdrawPushes(tx, [one.eventId]));
      return hasTold;
    };
    expect(
      await selectReach(
        database,
        [own, silent, shared].map(({ eventId }) => eventId),
      ),
    ).toEqual(new Map([['main', own.streamOrdering]]));
    expect(await countOf()).toBe(2);
    expect(await withdraw(silent)).toBe(false);
    expect(await withdraw(shared)).toBe(true);
    expect(await countOf()).toBe(1);
    expect(await withdraw(own)).toBe(true);
    expect(await countOf()).toBe(0);
    expect(await withdraw(own)).toBe(false);
    const row = await database.get('SELECT push_thread, push_highlight FROM events WHERE event_id = ?', [
      shared.eventId,
    ]);
    expect(row).toEqual({ push_thread: null, push_highlight: null });
  });

  it('is listed newest first, from each room only what the page can hold', async () => {
    const [one, other] = [await newRoom(), await newRoom()];
    const pushes = Array.from({ length: 30 }, (_, index) =>
      push(index % 3 === 0 ? one : other, {
        everyone: index % 10 === 0 ? loud : plain,
        except: index % 7 === 0 ? [bob] : [],
        sender: index % 5 === 0 ? bob : alice,
      }),
    );
    await store(pushes.filter((each) => each.roomId === one));
    await store(pushes.filter((each) => each.roomId === other));
    const expected = pushes
      .filter((each) => !each.except.includes(bob) && each.sender !== bob)
      .toReversed()
      .map((each) => each.eventId);
    const page = async (before: number, limit: number, onlyHighlights = false): Promise<string[]> =>
      (await selectNotifications(database, bob, { after: 0, before, limit, onlyHighlights })).map(
        (row) => row.event_id,
      );
    expect(await page(position + 1, 5)).toEqual(expected.slice(0, 5));
    const fifth = pushes.find((each) => each.eventId === expected[4])!;
    expect(await page(fifth.streamOrdering, 6)).toEqual(expected.slice(5, 11));
    const mention = push(one, { everyone: loud, except: [] });
    await store([mention]);
    const listed = await selectNotifications(database, carol, {
      ...{ after: 0, before: position + 1, limit: 2, onlyHighlights: true },
    });
    expect(listed).toMatchObject([
      { event_id: mention.eventId, highlight: 1, actions: loud.json, thread_id: 'main' },
      { event_id: pushes[20]!.eventId },
    ]);
  });

  it('is listed in pages of bounded work, even where hardly anything notified', async () => {
    const roomId = await newRoom();
    const count = 30_000;
    const first = position + 1;
    const notifying = new Set([3, 4_000, 9_000, 29_000, 29_999]);
    const pushes = Array.from({ length: count }, (_, index) =>
      push(roomId, { everyone: notifying.has(index) ? plain : undefined }),
    );
    for (let at = 0; at < count; at += 1_000) await store(pushes.slice(at, at + 1_000));
    const history = new NotificationHistory(
      database,
      {
        inOrder: async (ids: readonly string[]) => ids.map((eventId) => ({ event: { eventId }, receivedTs: 1 })),
      } as never,
      { inRooms: async () => new Map() } as never,
      { visible: async (_: string, stored: readonly object[]) => stored.map((one) => ({ stored: one })) } as never,
      {
        serialize: async (_: object, visible: readonly { stored: { event: { eventId: string } } }[]) =>
          visible.map(({ stored }) => ({ event_id: stored.event.eventId })),
      } as never,
      newReads(),
    );
    const erin = { userId: userIdOf('erin') } as Requester;
    await database.write((tx) => insertMarks(tx, roomId, [[erin.userId, first - 1]]));
    const pages: number[][] = [];
    const tokens: number[] = [];
    for (let from: string | undefined; pages.length < 10;) {
      const page = await history.page(erin, { from, limit: 50, onlyHighlights: false });
      const ids = page.notifications.map(({ event }) => (event as { event_id: string }).event_id);
      pages.push(ids.map((eventId) => Number(eventId.slice(1)) - first));
      from = page.next_token ?? undefined;
      if (from === undefined) break;
      tokens.push(Number(from) - first);
    }
    expect(pages.flat()).toEqual([29_999, 29_000, 9_000, 4_000, 3]);
    expect(tokens.length).toBeGreaterThan(0);
    // What each page but the last one looked at.
    const looked = tokens.map((token, index) => (tokens[index - 1] ?? count) - token);
    expect(Math.max(...looked)).toBeLessThanOrEqual(20_000);
    expect(Math.min(...looked)).toBeGreaterThan(4_000);
    const one = await history.page(erin, { limit: 1, onlyHighlights: false });
    expect(one).toMatchObject({ notifications: [{ room_id: roomId }], next_token: String(first + 29_999) });
  });

  it('keeps what groups were while an event refers to it, and not without end', async () => {
    const roomId = await newRoom();
    const rows = (): Promise<{ since: number; until: number | null; rules: string }[]> =>
      database.query('SELECT since, until, rules FROM push_rule_groups WHERE room_id = ? ORDER BY since', [roomId]);
    const spared = (): EventPush => push(roomId, { exceptGroups: ['#quiet'] });
    const [first, second, third] = [spared(), spared(), spared()];
    await store([first], undefined, new Map([[bob, '#quiet']]));
    await store([second], undefined, new Map([[bob, undefined]]));
    await store([third], undefined, new Map([[bob, '#loud']]));
    expect(await rows()).toEqual([
      { since: first.streamOrdering, until: second.streamOrdering, rules: '#quiet' },
      { since: third.streamOrdering, until: null, rules: '#loud' },
    ]);
    expect([...(await selectGroups(database, roomId)), ...(await selectGroupsOf(database, bob, [roomId]))]).toEqual([
      [bob, '#loud'],
      [roomId, '#loud'],
    ]);
    expect((await readCounts(database, bob, [roomId]))[0]?.notify).toBe(2);
    const collect = (one: EventPush): Promise<void> =>
      database.write(async (tx) => {
        await collectGroups(tx, roomId, [one.eventId]);
        await tx.run('DELETE FROM events WHERE event_id = ?', [one.eventId]);
      });
    await collect(second);
    expect(await rows()).toHaveLength(2);
    await collect(first);
    expect(await rows()).toEqual([{ since: third.streamOrdering, until: null, rules: '#loud' }]);
    for (let round = 0; round < 120; round++)
      await store([spared()], undefined, new Map([[bob, round % 2 === 0 ? '#quiet' : '#loud']]));
    expect((await rows()).length).toBeLessThanOrEqual(102);
    expect((await readCounts(database, bob, [roomId]))[0]?.notify).toBeGreaterThan(0);
  });

  it('is pushed oldest first, and not what was read', async () => {
    const roomId = await newRoom();
    const start = position;
    const pushes = Array.from({ length: 12 }, (_, index) =>
      push(roomId, { threadId: index % 4 === 3 ? '$t' : 'main' }),
    );
    await store(pushes);
    const unread = async (after: number, upTo: number, limit: number): Promise<number[]> =>
      (await selectUnread(database, bob, { after, upTo, limit })).map((row) => row.stream_ordering - start);
    expect(await unread(start, position, 3)).toEqual([1, 2, 3]);
    expect(await unread(start + 3, start + 9, 20)).toEqual([4, 5, 6, 7, 8, 9]);
    await readBy(bob, roomId, start + 5);
    await readBy(bob, roomId, start + 8, '$t');
    expect(await unread(start, position, 20)).toEqual([6, 7, 9, 10, 11, 12]);
    expect(await unread(start + 9, position, 2)).toEqual([10, 11]);
  });

  it('finds who has a pusher among the members, but not the sender', async () => {
    const roomId = await newRoom();
    await database.write((tx) =>
      tx.insertMany(
        'pushers',
        [
          ...['id', 'user_name', 'profile_tag', 'kind', 'app_id', 'app_display_name', 'device_display_name', 'pushkey'],
          ...['ts', 'data', 'last_stream_ordering'],
        ],
        [alice, bob, userIdOf('eve')].map((userId, id) => [
          id,
          userId,
          '',
          'http',
          'app',
          'a',
          'd',
          userId,
          1,
          '{}',
          0,
        ]),
      ),
    );
    const after = position;
    await store([push(roomId, { everyone: undefined })]);
    expect(await usersToPush(database, after, position)).toEqual([]);
    await store([push(roomId)]);
    expect(await usersToPush(database, after, position)).toEqual([bob]);
    // Who sends something is told where somebody else did as well, and not alone.
    const said = position;
    await store([push(roomId, { sender: bob })]);
    expect(await usersToPush(database, said, position)).toEqual([alice]);
    await store([push(roomId, { sender: carol })]);
    expect((await usersToPush(database, said, position)).sort()).toEqual([alice, bob]);
    const spared = position;
    const quiet = { exceptGroups: ['#quiet'] };
    await store([push(roomId, quiet)], undefined, new Map([[bob, '#quiet']]));
    expect(await usersToPush(database, spared, position)).toEqual([]);
    const first = position;
    await store([push(roomId, quiet)], undefined, new Map([[bob, undefined]]));
    // Together with one from which he was spared, and alone.
    expect(await usersToPush(database, spared, position)).toEqual([bob]);
    expect(await usersToPush(database, first, position)).toEqual([bob]);
  });

  it('goes with the room, and leaves other rooms alone', async () => {
    const [gone, kept] = [await newRoom(), await newRoom()];
    for (const roomId of [gone, kept]) {
      const regrouped = new Map([[bob, '#quiet']]);
      await store([push(roomId, { everyone: undefined, own: new Map([[bob, loud]]) })], undefined, regrouped);
    }
    await readBy(bob, gone, position, '$t');
    await database.write(async (tx) => {
      await deleteRoomPushes(tx, gone);
      await deleteGroups(tx, gone);
    });
    const left = async (table: string): Promise<string[]> =>
      (
        await database.query<{ room_id: string }>(
          `SELECT DISTINCT room_id FROM ${table} WHERE ${database.dialect.anyOf('room_id')}`,
          [[gone, kept]],
        )
      ).map((row) => row.room_id);
    const tables = ['push_read_marks', 'event_push_actions', 'push_rule_groups'];
    expect(await Promise.all(tables.map(left))).toEqual([[kept], [kept], [kept]]);
  });
});
