import { isTransient, type SqlValue } from '@rookery/database';
import type { TestDatabase } from '@rookery/testing';
import { buildEvent, type RoomEvent, roomVersionRules, type RoomVersionRules } from '@rookery/events';
import type { Destinations, RecoveryListener } from '@rookery/federation-client';
import { MatrixError } from '@rookery/matrix-types';
import { Lifecycle, Metrics, SilentLogger } from '@rookery/platform';
import type { EventPersister, InboundEvents, RoomStateReader } from '@rookery/rooms';
import { eachDatabase, eventually, FakeClock, RecordingLogger } from '@rookery/testing';
import { inboundTables } from '../migrations/federation-inbound.migration.js';
import { GapFillers } from './gap-fillers.js';
import { GapRetries } from './gap-retries.js';
import { type ReceiveVerdict, StagedEvents } from './staged-events.js';

type RemoteEvent = Parameters<InboundEvents['receive']>[2];

const rules = roomVersionRules('11') as RoomVersionRules;
const origin = 'other.test';
const known: ReceiveVerdict = { kind: 'known' };

let count = 0;
let testNumber = 0;
/** A message on top of others, in a room of the test's own: what an earlier one still works on it leaves alone. */
const message = (room: string, prev: readonly RoomEvent[] = [], body = ''): RoomEvent =>
  buildEvent(
    {
      ...{ roomId: `${room}${testNumber}`, type: 'm.room.message', sender: '@a:other.test' },
      content: { n: ++count, body },
      ...{ originServerTs: 0, depth: 5, authEventIds: [], prevEventIds: prev.map((event) => event.eventId) },
    },
    rules,
  );

/** Rooms that do with events what a test says. */
class Rooms {
  /** Ids, by the order in which they were stored. */
  readonly stored: string[] = [];
  readonly batches: number[] = [];
  /** Ids of those whose gaps were to be filled, each time. */
  readonly filled: string[] = [];
  verdict: (event: RoomEvent) => ReceiveVerdict | Promise<ReceiveVerdict> = () => known;
  fill: (event: RoomEvent) => Promise<ReceiveVerdict> = () => Promise.resolve(known);

  readonly persister = {
    receive: async (_: string, events: readonly RemoteEvent[]): Promise<ReceiveVerdict[]> => {
      const verdicts: ReceiveVerdict[] = [];
      for (const { event } of events) verdicts.push(await this.verdict(event));
      this.batches.push(events.length);
      for (const [index, { event }] of events.entries())
        if (verdicts[index]?.kind !== 'missingAncestors') this.stored.push(event.eventId);
      return verdicts;
    },
  } as unknown as EventPersister;
  readonly inbound = {
    receive: async (_: string, __: string, { event }: RemoteEvent): Promise<ReceiveVerdict> => {
      const verdict = await this.fill(event);
      this.filled.push(event.eventId);
      if (verdict.kind !== 'missingAncestors') this.stored.push(event.eventId);
      return verdict;
    },
  } as unknown as InboundEvents;
  readonly state = {
    versions: (ids: readonly string[]) =>
      Promise.resolve(new Map(ids.filter((id) => !id.startsWith('!gone')).map((id) => [id, '11']))),
  } as unknown as RoomStateReader;
}

eachDatabase('events that wait for their rooms', (open) => {
  let test: TestDatabase;
  let clock: FakeClock;
  let logger: RecordingLogger;
  beforeAll(async () => {
    test = await open(new FakeClock());
    await test.migrate([inboundTables]);
  });
  beforeEach(async () => {
    testNumber++;
    clock = new FakeClock();
    logger = new RecordingLogger();
    await test.database.write((tx) => tx.run('DELETE FROM federation_inbound_events_staging'));
  });

  interface Started {
    readonly staged: StagedEvents;
    readonly lifecycle: Lifecycle;
    readonly recovered: RecoveryListener;
  }
  const start = (rooms: Rooms): Started => {
    const lifecycle = new Lifecycle(clock, new SilentLogger());
    const gaps = new GapFillers(clock, lifecycle, logger);
    let recovered: RecoveryListener = () => undefined;
    const destinations = { onRecovery: (listener: RecoveryListener) => (recovered = listener) };
    const retries = new GapRetries(clock, destinations as unknown as Destinations);
    const { persister, inbound, state } = rooms;
    const staged = new StagedEvents(
      ...([test.database, persister, inbound, state, gaps, retries, clock, lifecycle, logger] as const),
      new Metrics('home.test'),
    );
    return { staged, lifecycle, recovered: (server) => recovered(server) };
  };
  const waiting = async (): Promise<string[]> =>
    (
      await test.database.query<{ event_id: string }>(
        'SELECT event_id FROM federation_inbound_events_staging ORDER BY ordering',
      )
    ).map((row) => row.event_id);
  const empty = (): Promise<boolean> => eventually(async () => (await waiting()).length === 0);
  const idsOf = (events: readonly RoomEvent[]): string[] => events.map((event) => event.eventId);

  it('are stored in their order, once', async () => {
    const rooms = new Rooms();
    const { staged } = start(rooms);
    const events = Array.from({ length: 7 }, () => message('!a:x'));
    await staged.stage(origin, events.slice(0, 4));
    await staged.stage(origin, events.slice(4));
    await empty();
    expect(rooms.stored).toEqual(idsOf(events));
  });

  it('are stored in small batches where they are large, whether they are at hand or in the database only', async () => {
    const rooms = new Rooms();
    const large = 'x'.repeat(60_000);
    const { staged } = start(rooms);
    const few = Array.from({ length: 6 }, () => message('!a:x', [], large));
    await staged.stage(origin, few);
    await empty();
    expect(rooms.batches).toEqual([4, 2]);
    // More than are kept at hand.
    const many = Array.from({ length: 60 }, () => message('!b:x', [], large));
    await staged.stage(origin, many);
    await empty();
    expect(rooms.stored).toEqual(idsOf([...few, ...many]));
    expect(Math.max(...rooms.batches)).toBe(4);
    expect(rooms.batches.reduce((sum, size) => sum + size)).toBe(66);
  });

  it('wait for another try where a module fails to judge them, and ask no server', async () => {
    const rooms = new Rooms();
    const event = message('!a:x');
    let judged = 0;
    rooms.verdict = () => (++judged === 1 ? { kind: 'unjudged' } : known);
    const { staged } = start(rooms);
    await staged.stage(origin, [event]);
    await staged.caughtUp(event.roomId);
    expect(await waiting()).toEqual([event.eventId]);
    await eventually(async () => {
      await clock.advance(10_000);
      return judged === 2;
    });
    await empty();
    expect(rooms.filled).toEqual([]);
  });

  it('are there after a stop', async () => {
    const rooms = new Rooms();
    let held = 0;
    rooms.verdict = () => {
      held++;
      return new Promise<never>(() => undefined);
    };
    const first = start(rooms);
    const events = [message('!a:x'), message('!b:x'), message('!gone:x')];
    await first.staged.stage(origin, events);
    // One of each room is in its hands; it never lets go of them.
    await eventually(() => held === 2);
    expect((await waiting()).length).toBeGreaterThanOrEqual(2);
    rooms.verdict = () => known;
    const again = start(rooms);
    await again.staged.start();
    await empty();
    expect(rooms.stored.sort()).toEqual(idsOf(events.slice(0, 2)).sort());
    // One by one, for one of them might have been the reason.
    expect(new Set(rooms.batches)).toEqual(new Set([1]));
  });

  it('do not suffer from one that nobody can deal with', async () => {
    const rooms = new Rooms();
    const events = Array.from({ length: 5 }, () => message('!a:x'));
    const poison = events[2]!.eventId;
    let attempts = 0;
    rooms.verdict = (event) => {
      if (event.eventId !== poison) return known;
      attempts++;
      throw new TypeError('poison');
    };
    const { staged } = start(rooms);
    await staged.stage(origin, events);
    await eventually(() => rooms.stored.length === 4);
    expect(await eventually(async () => ((await waiting()).length === 1 ? waiting() : undefined))).toEqual([poison]);
    for (let i = 0; i < 5 && (await waiting()).length > 0; i++) {
      await clock.advance(10_000);
      await eventually(() => attempts >= Math.min(i + 3, 4));
      await staged.stage(origin, [message('!a:x')]);
      await eventually(() => rooms.stored.length === 5 + i);
    }
    await empty();
    expect(logger.lines.filter(({ level }) => level === 'error')).toHaveLength(1);
  });

  it('outlast a database that is away', async () => {
    const other = await test.reopen();
    await other.close();
    const away: unknown = await other.write(() => Promise.resolve()).catch((error: unknown) => error);
    expect(isTransient(away)).toBe(true);
    const rooms = new Rooms();
    let [refusals, gapRefusals] = [0, 0];
    rooms.verdict = (event) => {
      if (refusals++ < 8) throw away as Error;
      return event === lost ? { kind: 'missingAncestors', eventIds: ['$unknown'] } : known;
    };
    rooms.fill = () => (gapRefusals++ < 8 ? Promise.reject(away as Error) : Promise.resolve(known));
    const { staged } = start(rooms);
    const lost = message('!a:x');
    const events = [lost, message('!a:x'), message('!a:x')];
    await staged.stage(origin, events);
    await eventually(async () => {
      await clock.advance(1_000);
      return (await waiting()).length === 0;
    });
    expect(rooms.stored.toSorted()).toEqual(idsOf(events).toSorted());
    expect(refusals).toBeGreaterThan(8);
    expect(logger.messages('error').filter((text) => text.includes('given up'))).toEqual([]);
  });

  it('outlast a room that is full', async () => {
    const rooms = new Rooms();
    let refusals = 0;
    rooms.verdict = () => {
      if (refusals++ < 12) throw MatrixError.limitExceeded(1_000);
      return known;
    };
    const { staged } = start(rooms);
    const events = [message('!a:x'), message('!a:x')];
    await staged.stage(origin, events);
    await eventually(async () => {
      await clock.advance(1_000);
      return (await waiting()).length === 0;
    });
    expect(rooms.stored.toSorted()).toEqual(idsOf(events).toSorted());
    expect(logger.messages('error')).toEqual([]);
  });

  it('are given up when they end the server again and again', async () => {
    const event = message('!a:x');
    const rooms = new Rooms();
    rooms.verdict = () => new Promise<never>(() => undefined);
    await start(rooms).staged.stage(origin, [event]);
    const attempts = async (): Promise<number | undefined> =>
      (await test.database.get<{ attempts: number }>('SELECT attempts FROM federation_inbound_events_staging'))
        ?.attempts;
    for (let n = 1; n <= 5; n++) {
      await start(rooms).staged.start();
      await eventually(async () => (await attempts()) === n);
    }
    await start(rooms).staged.start();
    await empty();
    expect(rooms.stored).toEqual([]);
  });

  it('step aside while their gaps are filled', async () => {
    const rooms = new Rooms();
    const late = message('!a:x');
    let fill: ((verdict: ReceiveVerdict) => void) | undefined;
    rooms.verdict = ({ eventId }) =>
      eventId === late.eventId ? { kind: 'missingAncestors', eventIds: ['$missing'] } : known;
    rooms.fill = () => new Promise((resolve) => (fill = resolve));
    const { staged } = start(rooms);
    const others = [message('!a:x'), message('!a:x')];
    await staged.stage(origin, [late, ...others]);
    await staged.stage(origin, [message('!a:x')]);
    await eventually(() => rooms.stored.length === 3 && fill !== undefined);
    // What was stored is taken off the list after that.
    await eventually(async () => (await waiting()).length === 1);
    expect(await waiting()).toEqual([late.eventId]);
    fill?.(known);
    await empty();
    expect(rooms.stored).toContain(late.eventId);
  });

  it('are not given up because the server stops', async () => {
    const rooms = new Rooms();
    const late = message('!a:x');
    let fill: ((verdict: ReceiveVerdict) => void) | undefined;
    rooms.verdict = () => ({ kind: 'missingAncestors', eventIds: ['$missing'] });
    rooms.fill = () => new Promise((resolve) => (fill = resolve));
    const { staged, lifecycle } = start(rooms);
    await staged.stage(origin, [late]);
    await eventually(() => fill !== undefined);
    await lifecycle.stop();
    fill?.({ kind: 'missingAncestors', eventIds: ['$missing'] });
    await eventually(() => rooms.filled.length === 1);
    // Something that would come behind a deletion.
    await test.database.write((tx) => tx.run('DELETE FROM received_transactions'));
    await test.database.write((tx) => tx.run('DELETE FROM received_transactions'));
    expect(await waiting()).toEqual([late.eventId]);
  });

  const nothing: ReceiveVerdict = { kind: 'missingAncestors', eventIds: ['$missing'] };

  it('wait for a server that could not help, and are tried when it is there again', async () => {
    const rooms = new Rooms();
    const [late, later] = [message('!a:x'), message('!b:x')];
    let isThere = false;
    rooms.verdict = () => nothing;
    rooms.fill = () => Promise.resolve(isThere ? known : nothing);
    const { staged, recovered } = start(rooms);
    await staged.stage(origin, [late, later]);
    // Both were asked for: the timers of one that is being asked for are as many as those of two that wait.
    await eventually(() => rooms.filled.length === 2 && clock.pendingTimers === 2);
    expect((await waiting()).sort()).toEqual(idsOf([late, later]).sort());
    isThere = true;
    recovered('third.test');
    expect(clock.pendingTimers).toBe(2);
    recovered(origin);
    await empty();
    expect(rooms.stored.sort()).toEqual(idsOf([late, later]).sort());
    // What is gone from the database may be seen before who deleted it goes on.
    await eventually(() => clock.pendingTimers === 0);
  });

  it('are tried less and less often, not for ever, and not held against the server when it starts', async () => {
    const rooms = new Rooms();
    const late = message('!a:x');
    rooms.verdict = () => nothing;
    rooms.fill = () => Promise.resolve(nothing);
    await start(rooms).staged.stage(origin, [late]);
    await eventually(() => clock.pendingTimers === 1);
    const tries = async (ms: number): Promise<number> => {
      const before = rooms.filled.length;
      await clock.advance(ms - 1);
      expect(rooms.filled).toHaveLength(before);
      await clock.advance(1);
      await eventually(
        async () => rooms.filled.length > before && (clock.pendingTimers === 1 || !(await waiting())[0]),
      );
      return rooms.filled.length;
    };
    const minute = 60_000;
    expect([await tries(10_000), await tries(40_000), await tries(160_000)]).toEqual([2, 3, 4]);
    for (let n = 0; n < 7; n++) {
      const { staged, lifecycle } = start(rooms);
      const before = rooms.filled.length;
      await staged.start();
      await eventually(() => rooms.filled.length > before);
      await eventually(async () => {
        const row = await test.database.get<{ attempts: number }>(
          'SELECT attempts FROM federation_inbound_events_staging',
        );
        return row?.attempts === 0;
      });
      await lifecycle.stop();
    }
    clock = new FakeClock();
    const { staged } = start(rooms);
    await staged.start();
    await eventually(() => clock.pendingTimers === 1);
    for (const pauseMs of [10_000, 40_000, 160_000, 640_000, 2_560_000, 10_240_000, 360 * minute, 360 * minute])
      await tries(pauseMs);
    await empty();
    expect(rooms.stored).toEqual([]);
  });

  it('wait for no place, where many wait for the same server', async () => {
    const rooms = new Rooms();
    const events = Array.from({ length: 130 }, () => message('!a:x'));
    let release = (): void => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    rooms.verdict = () => nothing;
    rooms.fill = () => held.then(() => known);
    const { staged } = start(rooms);
    await staged.stage(origin, events);
    await eventually(() => clock.pendingTimers > 29);
    release();
    await eventually(async () => {
      await clock.advance(10_000);
      return (await waiting()).length === 0;
    });
    expect(rooms.stored.toSorted()).toEqual(idsOf(events).toSorted());
  });

  /** Rooms whose gaps any server can fill but the first; and which were asked. */
  const roomsWithHelp = (): { readonly rooms: Rooms; readonly asked: string[] } => {
    const rooms = new Rooms();
    const asked: string[] = [];
    const helped = new Set<string>();
    rooms.verdict = ({ eventId }) => (helped.has(eventId) ? known : nothing);
    rooms.inbound.receive = (server, _, { event: { eventId } }) => {
      asked.push(server);
      if (server !== origin) helped.add(eventId);
      return Promise.resolve(helped.has(eventId) ? known : nothing);
    };
    return { rooms, asked };
  };

  it('are tried with another server that sends them too', async () => {
    const { rooms, asked } = roomsWithHelp();
    const late = message('!a:x');
    const { staged } = start(rooms);
    await staged.stage(origin, [late]);
    await eventually(() => clock.pendingTimers === 1);
    await staged.stage('honest.test', [late]);
    await empty();
    // The first may be asked once more, or not, before the second has its turn.
    expect([...new Set(asked)]).toEqual([origin, 'honest.test']);
    expect(asked.at(-1)).toBe('honest.test');
  });

  it('are tried with another server that sends them just when it is looked at who has', async () => {
    const { rooms, asked } = roomsWithHelp();
    const late = message('!a:x');
    const { staged } = start(rooms);
    const { get } = test.database;
    let isSent = false;
    test.database.get = (async (sql: string, params?: readonly SqlValue[]) => {
      const row = await get.call(test.database, sql, params);
      if (!isSent && sql.includes('COUNT(*)')) {
        isSent = true;
        await staged.stage('honest.test', [late]);
      }
      return row;
    }) as typeof get;
    try {
      await staged.stage(origin, [late]);
      await empty();
    } finally {
      test.database.get = get;
    }
    expect(asked).toContain('honest.test');
  });

  it('wait for nobody longer than is good', async () => {
    const rooms = new Rooms();
    const stuck = [message('!a:x'), message('!a:x')];
    const filled: string[] = [];
    rooms.verdict = () => ({ kind: 'missingAncestors', eventIds: ['$missing'] });
    rooms.fill = ({ eventId }) => {
      filled.push(eventId);
      return filled.length === 1 ? new Promise<never>(() => undefined) : Promise.resolve(known);
    };
    const { staged } = start(rooms);
    await staged.stage(origin, stuck);
    await eventually(() => filled.length === 1);
    await clock.advance(300_000);
    await eventually(() => filled.length === 2);
    await eventually(async () => (await waiting()).length === 1);
  });

  it('are refused for good where the room says so', async () => {
    const rooms = new Rooms();
    rooms.verdict = () => {
      throw MatrixError.forbidden('The room is gone');
    };
    const { staged } = start(rooms);
    await staged.stage(origin, [message('!a:x'), message('!a:x')]);
    await empty();
  });

  it('do not pile up without end', async () => {
    const rooms = new Rooms();
    let release: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => (release = resolve));
    rooms.verdict = async () => {
      await gate;
      return known;
    };
    const { staged } = start(rooms);
    await staged.stage(origin, [message('!a:x')]);
    let head = message('!a:x');
    for (let page = 0; page < 12; page++) {
      const events: RoomEvent[] = [];
      for (let n = 0; n < 50; n++) events.push((head = message('!a:x', [head])));
      await staged.stage(origin, events);
    }
    release();
    await empty();
    // The last one leads to all the others, which can be fetched.
    expect(rooms.stored).toContain(head.eventId);
    expect(rooms.stored.length).toBeLessThan(600);
  });

  it('of rooms that are flooded come behind those of others, whole batches of one room at a time', async () => {
    const rooms = new Rooms();
    const [most, waits]: [string[], (() => void)[]] = [[], []];
    // Each event of a flooded room takes as long as the test says.
    rooms.verdict = async ({ roomId }) => {
      if (!roomId.startsWith('!flood')) return known;
      if (most.at(-1) !== roomId) most.push(roomId);
      await new Promise<void>((resolve) => waits.push(resolve));
      return known;
    };
    const { staged } = start(rooms);
    const quiet = message('!quiet');
    await staged.stage(origin, [message('!first')]);
    await empty();
    const floods = Array.from({ length: 9 }, (_, n) => `!flood${n}_`);
    for (const room of floods)
      await staged.stage(
        origin,
        Array.from({ length: 50 }, () => message(room)),
      );
    await staged.stage('third.test', [quiet]);
    expect(staged.floodedOf([quiet.roomId, `${floods[0]}${testNumber}`])).toEqual([`${floods[0]}${testNumber}`]);
    // Eight of them hold eight places, and it is done all the same.
    await eventually(() => rooms.stored.includes(quiet.eventId));
    expect(most).toHaveLength(1);
    const timer = setInterval(() => {
      void clock.advance(10);
      for (const go of waits.splice(0)) go();
    }, 1);
    await empty();
    clearInterval(timer);
    expect(rooms.batches.filter((size) => size === 50)).toHaveLength(9);
  });
});
