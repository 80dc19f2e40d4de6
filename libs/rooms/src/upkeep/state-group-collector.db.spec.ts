import { databaseMigrations } from '@rookery/database';
import type { RoomEvent } from '@rookery/events';
import { replicationMigrations } from '@rookery/replication';
import { stateKeyOf } from '@rookery/state-res';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { RoomCreation } from '../creation/room-creation.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { applied, RemoteServer, yan, zoe } from '../pipeline/remote-server.fixture.js';
import { buildRooms, requesterOf, type RoomsFixture, stateApart } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { StateGroupCollector } from './state-group-collector.js';

type State = ReadonlyMap<string, RoomEvent>;
/** A branch of a room's graph: its end, and the state there. */
interface Branch {
  readonly end: RoomEvent;
  readonly state: State;
}

eachDatabase(
  'state groups of rooms with several forward extremities',
  (open) => {
    const clock = new FakeClock();
    const alice = requesterOf('alice');
    let test: TestDatabase;
    let rooms: RoomsFixture;
    beforeAll(async () => {
      test = await open(clock);
      await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
      rooms = await buildRooms({ database: test.database, state: test.state, clock });
    });
    afterAll(() => rooms.close());

    const receive = async (event: RoomEvent): Promise<void> => {
      const verdicts = await rooms.get(EventPersister).receive(event.roomId, [{ event }]);
      expect(verdicts.map((verdict) => verdict.kind)).toEqual(['accepted']);
    };
    const stateOf = async (roomId: string): Promise<Map<string, RoomEvent>> =>
      new Map(
        (await rooms.get(RoomStateReader).current(roomId)).map(({ event }) => [
          stateKeyOf(event.type, event.stateKey!),
          event,
        ]),
      );
    const idsOf = (state: State): [string, string][] => [...state].map(([key, { eventId }]) => [key, eventId]);
    const say = (roomId: string, body: string): Promise<unknown> =>
      rooms.get(EventCreation).send(alice, { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body } });
    const groups = async (roomId: string): Promise<{ all: number; rows: number; unused: number }> => {
      const leaves = await test.state.query<{ id: number }>(
        'SELECT id FROM state_groups WHERE room_id = ? AND id NOT IN (SELECT prev_state_group FROM state_group_edges)',
        [roomId],
      );
      const named = await test.database.query<{ id: number }>('SELECT state_group AS id FROM event_to_state_groups');
      const ids = new Set(named.map(({ id }) => id));
      const count = async (table: string): Promise<number> => {
        const sql = `SELECT COUNT(*) AS n FROM ${table} g WHERE g.room_id = ?`;
        return Number((await test.state.get<{ n: number }>(sql, [roomId]))!.n);
      };
      return {
        all: await count('state_groups'),
        rows: await count('state_groups_state'),
        unused: leaves.filter(({ id }) => !ids.has(id)).length,
      };
    };

    /** A room of alice's in which zoe and yan have changed their names at the same time, each on a branch of their own. */
    const forked = async (): Promise<{ roomId: string; server: RemoteServer; zoes: Branch; yans: Branch }> => {
      const { roomId } = await rooms.get(RoomCreation).create(alice, { room_version: '11', preset: 'public_chat' });
      const server = new RemoteServer('11', roomId);
      let state: State = await stateOf(roomId);
      const [head] = await test.database.query<{ event_id: string }>(
        'SELECT event_id FROM event_forward_extremities WHERE room_id = ?',
        [roomId],
      );
      let end = [...state.values()].find(({ eventId }) => eventId === head!.event_id)!;
      for (const userId of [zoe, yan]) {
        ({ end, state } = named(server, userId, undefined, { end, state }));
        await receive(end);
      }
      const zoes = named(server, zoe, 'first', { end, state });
      const yans = named(server, yan, 'first', { end, state });
      await receive(zoes.end);
      await receive(yans.end);
      return { roomId, server, zoes, yans };
    };
    const named = (server: RemoteServer, userId: string, name: string | undefined, { end, state }: Branch): Branch => {
      const content = { membership: 'join', ...(name !== undefined && { displayname: name }) };
      const next = server.make({ type: 'm.room.member', stateKey: userId, sender: userId, content }, [end], state);
      return { end: next, state: applied(state, next) };
    };

    it('are not made anew while what they are made of stays the same', async () => {
      const { roomId, server, zoes, yans } = await forked();
      const before = await groups(roomId);
      let { end } = zoes;
      for (let n = 0; n < 20; n++) {
        end = server.make({ type: 'm.room.message', sender: zoe, content: { body: `${n}` } }, [end], zoes.state);
        await receive(end);
      }
      // Upon both, as they are and as they were.
      for (const prev of [end, zoes.end]) {
        await receive(
          server.make({ type: 'm.room.message', sender: yan, content: { body: 'both' } }, [prev, yans.end], yans.state),
        );
      }
      expect(await groups(roomId)).toEqual({ ...before, unused: 0 });
      const state = await stateOf(roomId);
      expect(
        [zoe, yan].map((userId) => state.get(stateKeyOf('m.room.member', userId))?.content['displayname']),
      ).toEqual(['first', 'first']);
    });

    it('are deleted in the background once the room has moved on', async () => {
      const { roomId, server, ...branches } = await forked();
      let { zoes, yans } = branches;
      const quiet = await forked();
      for (let n = 0; n < 80; n++) {
        if (n % 2 === 0) await receive((zoes = named(server, zoe, `${n}`, zoes)).end);
        else await receive((yans = named(server, yan, `${n}`, yans)).end);
      }
      const [before, state] = [await groups(roomId), await stateOf(roomId)];
      expect(before.unused).toBeGreaterThan(60);
      await rooms.get(StateGroupCollector).run();
      // What stands for both branches now is in use, though nothing rests on it.
      expect((await groups(roomId)).unused).toBeLessThanOrEqual(1);
      expect(idsOf(await stateOf(roomId))).toEqual(idsOf(state));
      await say(roomId, 'joins the branches');
      await rooms.close();
      rooms = await buildRooms({ database: test.database, state: test.state, clock });
      await rooms.get(StateGroupCollector).run();
      const after = await groups(roomId);
      expect(after.unused).toBeLessThanOrEqual(1);
      expect(after.rows).toBeLessThan(before.rows);
      expect(idsOf(await stateOf(roomId))).toEqual(idsOf(state));
      await receive(named(server, zoe, 'last', { end: zoes.end, state }).end);
      await say(roomId, 'goes on');
      expect((await stateOf(roomId)).get(stateKeyOf('m.room.member', zoe))?.content['displayname']).toBe('last');
      // A few rows are not worth that a room waits.
      expect((await groups(quiet.roomId)).unused).toBeLessThanOrEqual(1);
    });
  },
  stateApart,
);
