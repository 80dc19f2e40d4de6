import { Database, databaseMigrations, type SqlValue, type Tx, type WriteOptions } from '@rookery/database';
import { replicationMigrations } from '@rookery/replication';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { JoinService } from '../membership/join.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import type { SentEvent } from '../model/stored-event.js';
import { servableSql } from '../store/servable.query.js';
import { PurgeService } from './purge.service.js';
import { RedactionCensor } from './redaction-censor.js';
import { RoomShutdown } from './room-shutdown.service.js';
import { RoomTasks } from './room-tasks.js';

/** A database for a process that is killed after a number of writes. */
class Mortal extends Database {
  readonly dialect;
  /** Writes that it still does. */
  left = Number.POSITIVE_INFINITY;

  constructor(private readonly inner: Database) {
    super();
    this.dialect = inner.dialect;
  }

  get isDead(): boolean {
    return this.left < 0;
  }

  query<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row[]> {
    return this.#alive(() => this.inner.query<Row>(sql, params));
  }

  get<Row>(sql: string, params?: readonly SqlValue[]): Promise<Row | undefined> {
    return this.#alive(() => this.inner.get<Row>(sql, params));
  }

  write<T>(fn: (tx: Tx) => Promise<T>, options?: WriteOptions): Promise<T> {
    this.left -= 1;
    return this.#alive(() => this.inner.write(fn, options));
  }

  async close(): Promise<void> {}

  async #alive<T>(work: () => Promise<T>): Promise<T> {
    if (this.isDead) throw new Error('killed');
    return work();
  }
}

const byEvent = [
  'event_json',
  'event_auth',
  'event_auth_chains',
  'event_to_state_groups',
  'event_relations',
  'redactions',
  'rejections',
  'state_events',
  'room_memberships',
  'event_txn_id_device_id',
  'event_forward_extremities',
  'current_state_events',
];
const byRoom = [
  'events',
  'event_json',
  'state_groups',
  'state_groups_state',
  'current_state_events',
  'current_state_delta_stream',
  'local_current_membership',
  'room_memberships',
  'event_forward_extremities',
  'event_backward_extremities',
  'event_edges',
  'event_auth',
  'state_events',
  'event_txn_id_device_id',
  'threads',
  'thread_repliers',
  'room_stats_state',
  'room_stats_current',
  'room_aliases',
];
const repliers = 'SELECT room_id, thread_id, user_id, replies FROM thread_repliers';
const replies = `SELECT e.room_id, r.relates_to_id, e.sender, COUNT(*) FROM event_relations r JOIN events e ON e.event_id = r.event_id
  WHERE r.relation_type = 'm.thread' AND ${servableSql('e.')} GROUP BY e.room_id, r.relates_to_id, e.sender`;
/** What must never be found, by name. */
const dangling: ReadonlyMap<string, string> = new Map([
  ...byEvent.map(
    (table) => [table, `SELECT 1 FROM ${table} WHERE event_id NOT IN (SELECT event_id FROM events)`] as const,
  ),
  ...byRoom.map(
    (table) =>
      [`${table} of rooms`, `SELECT 1 FROM ${table} WHERE room_id NOT IN (SELECT room_id FROM rooms)`] as const,
  ),
  ['last replies', 'SELECT 1 FROM thread_repliers WHERE latest_event_id NOT IN (SELECT event_id FROM events)'],
  ['replies that are not counted', `${replies} EXCEPT ${repliers}`],
  ['counts of replies', `${repliers} EXCEPT ${replies}`],
  ['threads', 'SELECT 1 FROM threads WHERE thread_id NOT IN (SELECT event_id FROM events)'],
  ['groups of events', 'SELECT 1 FROM event_to_state_groups WHERE state_group NOT IN (SELECT id FROM state_groups)'],
  ['rows of groups', 'SELECT 1 FROM state_groups_state WHERE state_group NOT IN (SELECT id FROM state_groups)'],
  ['edges of groups', 'SELECT 1 FROM state_group_edges WHERE state_group NOT IN (SELECT id FROM state_groups)'],
  ['bases of groups', 'SELECT 1 FROM state_group_edges WHERE prev_state_group NOT IN (SELECT id FROM state_groups)'],
  [
    'groups that nothing rests on',
    `SELECT 1 FROM state_groups WHERE id NOT IN (SELECT state_group FROM event_to_state_groups)
       AND id NOT IN (SELECT prev_state_group FROM state_group_edges)`,
  ],
  ['rooms without a head', 'SELECT 1 FROM rooms WHERE room_id NOT IN (SELECT room_id FROM event_forward_extremities)'],
  [
    'links of chains',
    'SELECT 1 FROM event_auth_chain_links WHERE origin_chain_id NOT IN (SELECT chain_id FROM event_auth_chains)',
  ],
]);

eachDatabase('work on rooms that is killed in the middle', (open) => {
  const clock = new FakeClock();
  const [alice, bob] = [requesterOf('alice'), requesterOf('bob')];
  const settings = { redaction_retention_period: '0s' };
  let test: TestDatabase;

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
  });

  /** A process that may be killed. */
  const start = async (): Promise<{ rooms: RoomsFixture; database: Mortal }> => {
    const database = new Mortal(test.database);
    return { database, rooms: await buildRooms({ database, clock, settings }) };
  };
  const found = async (): Promise<string[]> => {
    const names: string[] = [];
    for (const [name, sql] of dangling) if ((await test.database.query(sql)).length > 0) names.push(name);
    return names;
  };
  const send = (rooms: RoomsFixture, roomId: string, content: object, txnId?: string) =>
    rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'x', ...content } }, txnId);
  /** A room with something of everything in it, and its events. */
  const fill = async (rooms: RoomsFixture): Promise<{ roomId: string; sent: string[] }> => {
    // Equal rooms of the same moment would be one.
    await clock.advance(1_000);
    const { roomId } = await rooms.get(RoomCreation).create(alice, { preset: 'public_chat' });
    await rooms.get(JoinService).join(bob, roomId);
    const many = await Promise.all(Array.from({ length: 210 }, (_, n) => send(rooms, roomId, { n }, `${n}`)));
    const [first, second] = many.slice(0, 2) as [SentEvent, SentEvent];
    await send(rooms, roomId, { 'm.relates_to': { rel_type: 'm.thread', event_id: first.eventId } });
    await send(rooms, roomId, { 'm.relates_to': { rel_type: 'm.thread', event_id: many[100]!.eventId } });
    await rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.redaction', content: {}, redacts: second.eventId }, 'redact');
    for (const topic of ['a', 'b'])
      await rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.topic', stateKey: '', content: { topic } });
    const last = await send(rooms, roomId, { body: 'last' });
    return { roomId, sent: [...many.map(({ eventId }) => eventId), last.eventId] };
  };

  /**
   * Lets work begin in processes that are killed after no write, one, two and so on, until one comes to its end.
   * @param end what the next process does
   */
  const killEverywhere = async (
    begin: (rooms: RoomsFixture, roomId: string, sent: string[]) => Promise<unknown>,
    end: (rooms: RoomsFixture, roomId: string, sent: string[]) => Promise<unknown>,
  ): Promise<number> => {
    for (let writes = 0; ; writes++) {
      const first = await start();
      const { roomId, sent } = await fill(first.rooms);
      first.database.left = writes;
      await begin(first.rooms, roomId, sent).catch(() => undefined);
      await first.rooms.get(RoomTasks).settled();
      const wasKilled = first.database.isDead;
      await first.rooms.close();
      const next = await start();
      await next.rooms.get(RoomTasks).settled();
      await end(next.rooms, roomId, sent);
      await next.rooms.close();
      expect({ writes, found: await found() }).toEqual({ writes, found: [] });
      if (!wasKilled) return writes;
    }
  };

  it('the deletion of a room goes on to its end', async () => {
    const request = { requesterId: alice.userId, block: false, purge: true, forcePurge: false };
    const kills = await killEverywhere(
      async (rooms, roomId) => rooms.get(RoomShutdown).start(roomId, request),
      async (rooms, roomId) => {
        const tasks = await rooms.get(RoomTasks).ofRoom(roomId);
        expect(tasks.map(({ status }) => status)).toEqual(tasks.length === 0 ? [] : ['complete']);
        const left = await test.database.query('SELECT room_id FROM rooms WHERE room_id = ?', [roomId]);
        expect(left).toHaveLength(tasks.length === 0 ? 1 : 0);
      },
    );
    expect(kills).toBeGreaterThan(8);
  });

  it('purges history, while people write', async () => {
    let ends = 0;
    const kills = await killEverywhere(
      async (rooms, roomId, sent) => {
        await rooms.get(PurgeService).purgeHistory(roomId, { eventId: sent.at(-1)! }, true);
        await Promise.all(Array.from({ length: 5 }, (_, n) => send(rooms, roomId, { more: n }).catch(() => undefined)));
      },
      async (rooms, roomId) => {
        await send(rooms, roomId, { body: `end ${ends++}` });
        await rooms.get(JoinService).join(requesterOf(`late${ends}`), roomId);
      },
    );
    expect(kills).toBeGreaterThan(4);
  });

  it('purges what is too old', async () => {
    const purge = async (rooms: RoomsFixture, roomId: string): Promise<void> => {
      await clock.advance(1);
      await rooms.get(PurgeService).purgeOlder(roomId, clock.nowMs());
    };
    const kills = await killEverywhere(purge, async (rooms, roomId) => {
      await purge(rooms, roomId);
      await rooms.get(PurgeService).collectGroups(roomId);
      const left = await test.database.query(
        "SELECT event_id FROM events WHERE room_id = ? AND type = 'm.room.message'",
        [roomId],
      );
      expect(left).toHaveLength(1);
      await send(rooms, roomId, {});
    });
    expect(kills).toBeGreaterThan(1);
  });

  it('makes redactions final', async () => {
    const kills = await killEverywhere(
      (rooms) => rooms.get(RedactionCensor).run(),
      async (rooms, _, sent) => {
        await rooms.get(RedactionCensor).run();
        const row = await test.database.get<{ json: string }>('SELECT json FROM event_json WHERE event_id = ?', [
          sent[1]!,
        ]);
        expect(JSON.parse(row!.json)).toMatchObject({ content: {} });
        expect(Object.keys((JSON.parse(row!.json) as { content: object }).content)).toEqual([]);
      },
    );
    expect(kills).toBeGreaterThan(1);
  });
});
