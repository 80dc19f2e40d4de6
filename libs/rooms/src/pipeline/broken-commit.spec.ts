import { type Database, databaseMigrations, migrate, openDatabase } from '@rookery/database';
import { SystemClock } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { eventually, makeTestDatabasePlace, PostgresLine, type TestDatabasePlace } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomHooks } from '../hooks.js';
import { roomsMigrations } from '../migrations/index.js';
import { RecentEvents } from '../store/recent-events.js';
import { buildRooms, requesterOf, type RoomsFixture } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { EventPersister } from './event-persister.js';
import { RoomIds } from '../store/room-ids.js';

interface Sent {
  readonly eventId: string;
  readonly streamOrdering: number;
}

describe('writes of events whose commit PostgreSQL does not answer', () => {
  const alice = requesterOf('alice');
  const count = 12;
  /** Events of which hooks were told that they are durable. */
  const announced: string[] = [];
  let place: TestDatabasePlace;
  let line: PostgresLine;
  let db: Database;
  /** Past the line. */
  let direct: Database;
  let rooms: RoomsFixture;
  let roomIds: string[];

  beforeAll(async () => {
    place = await makeTestDatabasePlace('postgres');
    line = await PostgresLine.open();
    const { options } = place;
    if (options.name === 'sqlite3') throw new Error('not PostgreSQL');
    const clock = new SystemClock();
    direct = await openDatabase(options, clock);
    await migrate(direct, [...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
    const args = { ...options.args, host: '127.0.0.1', port: line.port, cp_max: 6 };
    db = await openDatabase({ ...options, args }, clock);
    rooms = await buildRooms({ database: db, clock });
    rooms.get(RoomHooks).subscribe({
      afterCommit: ({ events }) => void announced.push(...events.map(({ event }) => event.eventId)),
    });
    const created = Array.from({ length: count }, () => rooms.get(RoomCreation).create(alice, {}));
    roomIds = (await Promise.all(created)).map(({ roomId }) => roomId);
  });
  beforeEach(() => void (announced.length = 0));
  afterAll(async () => {
    await rooms.close();
    await Promise.all([db.close(), direct.close()]);
    line.close();
    await place.remove();
  });

  const send = (roomId: string, body: string, txnId: string): Promise<Sent> =>
    rooms
      .get(EventCreation)
      .send(alice, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } }, txnId);
  /** As the server itself sends: nobody could tell that it was done already. */
  const notice = (roomId: string, body: string): Promise<Sent> =>
    rooms.get(EventPersister).send({
      ...{ roomId, type: 'm.room.message', sender: alice.userId, content: { msgtype: 'm.notice', body } },
    });
  /** What lies in the database, by room, and whether what is held in memory of it is the same. */
  const bodies = async (): Promise<Map<string, string[]>> => {
    const rows = await direct.query<{ room_id: string; event_id: string; json: string; stream_ordering: number }>(
      `SELECT e.room_id, e.event_id, e.stream_ordering, j.json FROM events e
       JOIN event_json j ON j.stream_ordering = e.stream_ordering
       WHERE e.type = 'm.room.message' ORDER BY e.stream_ordering`,
    );
    const all = new Map<string, string[]>();
    const current = rooms.get(RoomIds).events.current();
    for (const roomId of roomIds) {
      const own = rows.filter((row) => row.room_id === roomId);
      all.set(
        roomId,
        own.map(({ json }) => (JSON.parse(json) as { content: { body: string } }).content.body),
      );
      const remembered = rooms.get(RecentEvents).latest(roomId, own[0]!.stream_ordering - 1, current, 30);
      expect(remembered?.map(({ eventId }) => eventId)).toEqual(own.slice(-31).map((row) => row.event_id));
      const heads = await direct.query('SELECT event_id FROM event_forward_extremities WHERE room_id = ?', [roomId]);
      expect(heads).toEqual([{ event_id: own.at(-1)!.event_id }]);
    }
    return all;
  };

  for (const fault of ['cut before', 'cut behind', 'cut after the answer'] as const) {
    for (const away of [undefined, 'refusing', 'silent'] as const) {
      it(`keeps each event once: ${fault}, ${away ?? 'not away'}`, async () => {
        const name = `${fault} ${away ?? ''}`;
        await Promise.all(roomIds.map((roomId) => send(roomId, `${name} 0`, `${name} 0`)));
        announced.length = 0;
        let cut = false;
        line.breakAt('COMMIT', fault, () => {
          cut = true;
          if (away) line.goDown(away);
        });
        const sending = roomIds.map((roomId, n) =>
          n % 2 === 0 ? send(roomId, `${name} 1`, `${name} 1`) : notice(roomId, `${name} 1`),
        );
        const outcomes = Promise.allSettled(sending);
        await eventually(() => cut);
        await new Promise((resolve) => setTimeout(resolve, away ? 500 : 0));
        line.comeBack();
        const done = await outcomes;
        expect(done.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason as unknown] : []))).toEqual(
          [],
        );
        const sent = done.map((outcome) => (outcome as PromiseFulfilledResult<Sent>).value);
        expect(announced.toSorted()).toEqual(sent.map(({ eventId }) => eventId).toSorted());
        // The room goes on, and a request that is repeated gets the answer that it had.
        await Promise.all(roomIds.map((roomId) => send(roomId, `${name} 2`, `${name} 2`)));
        for (const own of (await bodies()).values()) {
          expect(own.filter((body) => body.startsWith(`${name} `))).toEqual([0, 1, 2].map((n) => `${name} ${n}`));
        }
        expect(new Set(sent.map(({ streamOrdering }) => streamOrdering)).size).toBe(count);
      });
    }
  }

  it('loses nothing and repeats nothing while its connections are ended all the time', async () => {
    let ended = 0;
    let isOver = false;
    const trouble = (async () => {
      while (!isOver) {
        const hit = await direct.query(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`,
        );
        ended += hit.length;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    })();
    const failed: [string, string][] = [];
    const worker = async (roomId: string): Promise<string[]> => {
      const own: string[] = [];
      for (let n = 0; n < 40 || ended < 8; n++) {
        const body = `storm ${n}`;
        try {
          await send(roomId, body, body);
          own.push(body);
        } catch {
          failed.push([roomId, body]);
        }
      }
      return own;
    };
    const acknowledged = await Promise.all(roomIds.map(worker)).finally(() => (isOver = true));
    await trouble;
    const before = await bodies();
    for (const [n, roomId] of roomIds.entries()) {
      const own = before.get(roomId)!.filter((body) => body.startsWith('storm'));
      expect(own.filter((body) => acknowledged[n]!.includes(body))).toEqual(acknowledged[n]);
      expect(new Set(own).size).toBe(own.length);
    }
    // Whoever was refused asks again.
    for (const [roomId, body] of failed) await send(roomId, body, body);
    const after = await bodies();
    for (const [n, roomId] of roomIds.entries()) {
      const own = after.get(roomId)!.filter((body) => body.startsWith('storm'));
      const refused = failed.flatMap(([room, body]) => (room === roomId ? [body] : []));
      expect(own.toSorted()).toEqual([...acknowledged[n]!, ...refused].toSorted());
    }
  });
});
