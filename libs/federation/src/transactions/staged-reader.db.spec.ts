import type { Db, SqlValue } from '@rookery/database';
import { eachDatabase, type TestDatabase } from '@rookery/testing';
import { buildEvent, type RoomEvent, roomVersionRules } from '@rookery/events';
import { inboundTables } from '../migrations/federation-inbound.migration.js';
import { plansOf } from '@rookery/testing/internal';
import { StagedReader } from './staged-reader.js';
import { deleteStaged, selectStagedAgain, stageEvents } from './staging.query.js';
import { Unstaging } from './unstaging.js';

eachDatabase('reading events that wait', (open) => {
  let test: TestDatabase;
  let reader: StagedReader;
  let looked: number;
  const aside = new Set<string>();
  beforeAll(async () => {
    test = await open();
    await test.migrate([inboundTables]);
  });
  beforeEach(async () => {
    reader = new StagedReader(test.database);
    looked = 0;
    aside.clear();
    await test.database.write((tx) => tx.run('DELETE FROM federation_inbound_events_staging'));
  });

  const events = (count: number, body = ''): RoomEvent[] =>
    Array.from({ length: count }, (_, n) =>
      buildEvent(
        {
          ...{ roomId: '!a:x', type: 'm.room.message', sender: '@a:other.test', content: { n, body } },
          ...{ originServerTs: 0, depth: 5, authEventIds: [], prevEventIds: [] },
        },
        roomVersionRules('11')!,
      ),
    );
  const stage = (some: readonly RoomEvent[], first: number, origin = 'other.test'): Promise<void> =>
    test.database.write((tx) =>
      stageEvents(
        tx,
        origin,
        some.map((event, n) => ({ event, text: JSON.stringify(event.pdu), ordering: first + n })),
        0,
      ),
    );
  const next = async (limit = Infinity): Promise<string[]> => (await batch(limit)).map((row) => row.event_id);
  const batch = (limit = Infinity): ReturnType<StagedReader['next']> =>
    reader.next('!a:x', limit, (eventId) => (looked++, aside.has(eventId)));
  const idsOf = (some: readonly RoomEvent[]): string[] => some.map(({ eventId }) => eventId);

  it('gives a batch until it is done, then the next one', async () => {
    const all = events(60);
    await stage(all, 1);
    const first = await batch();
    expect(first.map((row) => row.event_id)).toEqual(idsOf(all.slice(0, 50)));
    expect(await next(1)).toEqual(idsOf(all.slice(0, 1)));
    reader.done('!a:x', first);
    expect(await next()).toEqual(idsOf(all.slice(50)));
  });

  it('gives what comes again before the others, and once', async () => {
    const all = events(4);
    await stage(all, 1);
    aside.add(all[1]!.eventId);
    reader.done('!a:x', await batch());
    await stage(events(5).slice(4), 9);
    aside.clear();
    reader.comesAgain('!a:x', all[1]!.eventId);
    reader.comesAgain('!a:x', '$gone');
    const again = await batch();
    expect(again.map((row) => row.event_id)).toEqual([all[1]!.eventId]);
    reader.done('!a:x', again);
    const last = await batch();
    expect(last.map((row) => row.ordering)).toEqual([9]);
    reader.done('!a:x', last);
    expect(await next()).toEqual([]);
  });

  it('finds what was written with an earlier place than what was read', async () => {
    const [early, late] = events(2) as [RoomEvent, RoomEvent];
    await stage([late], 2);
    reader.done('!a:x', await batch());
    await stage([early], 1);
    reader.arrived('!a:x', early.eventId, 1);
    expect(await next()).toEqual([early.eventId]);
    // What was written behind it needs nothing of that kind.
    reader.arrived('!a:x', '$new', 3);
    expect(await next()).toEqual([early.eventId]);
  });

  it('forgets what is done some events at a time, each by room and id together', async () => {
    const all = events(1_200).map(({ eventId }, n) => ({ roomId: `!${n % 40}:x`, eventId }));
    const rows = (): Promise<{ room_id: string; event_id: string }[]> =>
      test.database.query('SELECT room_id, event_id FROM federation_inbound_events_staging ORDER BY event_id');
    const [kept, ...done] = all;
    // Of the same id, in a room of which others are done.
    const twin = { roomId: '!5:x', eventId: kept!.eventId };
    await test.database.write((tx) =>
      tx.insertMany(
        'federation_inbound_events_staging',
        ['origin', 'room_id', 'event_id', 'received_ts', 'event_json', 'internal_metadata', 'ordering'],
        [...all, twin].map(({ roomId, eventId }, n) => ['other.test', roomId, eventId, 0, '{}', '{}', n]),
      ),
    );
    const unstaging = new Unstaging(test.database);
    const writing = jest.spyOn(test.database, 'write');
    await Promise.all(
      [...Map.groupBy([...done, twin], ({ roomId }) => roomId)].map(([roomId, some]) =>
        unstaging.forget(
          roomId,
          some.map(({ eventId }) => eventId),
        ),
      ),
    );
    expect(writing).toHaveBeenCalledTimes(3);
    writing.mockRestore();
    expect(await rows()).toEqual([{ room_id: kept!.roomId, event_id: kept!.eventId }]);
    const [steps] = await plansOf(test.database, (tx) => deleteStaged(tx, done));
    if (test.database.dialect.name === 'sqlite') {
      expect(steps).toContainEqual(expect.stringMatching(/^SEARCH .*\(room_id=\? AND event_id=\?\)/));
      expect(steps!.filter((step) => step.includes('LIST SUBQUERY'))).toHaveLength(1);
    }
  });

  it('passes over what is in somebody’s hands once, however often something comes again', async () => {
    const all = events(500);
    await stage(all, 1);
    for (const { eventId } of all) aside.add(eventId);
    expect(await next()).toEqual([]);
    for (const { eventId } of all) {
      aside.delete(eventId);
      reader.comesAgain('!a:x', eventId);
      const again = await batch();
      expect(again).toHaveLength(1);
      aside.add(eventId);
      reader.done('!a:x', again);
    }
    expect(looked).toBe(1_000);
  });

  it('looks up what comes again by its id', async () => {
    const { database } = test;
    let plan = '';
    const explained = async (sql: string, params?: readonly SqlValue[]): Promise<never[]> => {
      const steps = await database.query<{ detail: string }>(`EXPLAIN QUERY PLAN ${sql}`, params);
      plan = steps.map(({ detail }) => detail).join('\n');
      return [];
    };
    // The plans of PostgreSQL follow how much there is.
    if (database.dialect.name !== 'sqlite') return;
    await selectStagedAgain({ dialect: database.dialect, query: explained } as unknown as Db, '!a:x', ['$a']);
    expect(plan).toContain('event_id=?');
  });

  it('gives few events where they are large, and more again behind them', async () => {
    await stage(events(10, 'x'.repeat(60_000)), 1);
    await stage(events(50).slice(10), 11);
    const sizes: number[] = [];
    for (let rows = await batch(); rows.length > 0; rows = await batch()) {
      sizes.push(rows.length);
      reader.done('!a:x', rows);
    }
    expect(sizes).toEqual([4, 4, 8, 16, 18]);
  });
});
