import { databaseMigrations } from '@rookery/database';
import { buildEvent, type RoomEvent, roomVersionRules, roomVersions } from '@rookery/events';
import { type JsonObject, parseEventFilter } from '@rookery/matrix-types';
import { replicationMigrations } from '@rookery/replication';
import {
  authStateOf,
  checkAuth,
  checkAuthEvents,
  resolveState,
  restsUpon,
  stateKeyOf,
  type StateMap,
} from '@rookery/state-res';
import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { usersMigrations } from '@rookery/users';
import { randomFrom } from '../../../../test/support/random.js';
import { RoomCreation } from '../creation/room-creation.service.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { roomsMigrations } from '../migrations/index.js';
import { RelationsService } from '../relations/relations.service.js';
import { buildRooms, requesterOf, type RoomsFixture, stateApart } from '../rooms.fixture.js';
import { EventCreation } from '../sending/event-creation.service.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { EventPersister } from './event-persister.js';
import type { ReceiveVerdict } from '../model/remote-events.js';
import { EventStore } from '../store/event-store.js';
import { remoteServer, RemoteServer, yan, zoe } from './remote-server.fixture.js';

interface EventRow {
  readonly event_id: string;
  readonly outlier: boolean | 0 | 1;
  readonly soft_failed: boolean | 0 | 1;
  readonly rejection_reason: string | null;
}

/** What a room must be like, worked out from its events alone: no state group and no index is looked at. */
class Graph {
  readonly events = new Map<string, RoomEvent>();
  readonly #after = new Map<string, Promise<StateMap>>();
  readonly #rejected = new Map<string, Promise<boolean>>();

  constructor(private readonly version: string) {}

  add(event: RoomEvent): void {
    this.events.set(event.eventId, event);
  }

  resolve(states: readonly StateMap[]): Promise<StateMap> {
    const distinct = new Map(states.map((state) => [JSON.stringify([...state].sort()), state]));
    return resolveState(
      [...distinct.values()],
      {
        events: async (ids) => new Map(ids.flatMap((id) => this.#found(id).map((event) => [id, event]))),
        isRejected: async (ids) => {
          const rejected = new Set<string>();
          for (const id of ids) if (await this.isRejected(id)) rejected.add(id);
          return rejected;
        },
      },
      roomVersionRules(this.version)!,
    );
  }

  async before(event: RoomEvent): Promise<StateMap> {
    return this.resolve(await Promise.all(event.prevEventIds.map((id) => this.after(id))));
  }

  after(eventId: string): Promise<StateMap> {
    const known = this.#after.get(eventId);
    if (known) return known;
    const made = (async () => {
      const event = this.events.get(eventId)!;
      const before = await this.before(event);
      if (event.stateKey === undefined || (await this.isRejected(eventId))) return before;
      return new Map([...before, [stateKeyOf(event.type, event.stateKey), eventId]]);
    })();
    this.#after.set(eventId, made);
    return made;
  }

  isRejected(eventId: string): Promise<boolean> {
    const known = this.#rejected.get(eventId);
    if (known) return known;
    const made = (async () => {
      const event = this.events.get(eventId)!;
      const auth = restsUpon(event).flatMap((id) => this.#found(id));
      const rejected = new Set<string>();
      for (const each of auth) if (await this.isRejected(each.eventId)) rejected.add(each.eventId);
      const named = auth.filter((each) => event.authEventIds.includes(each.eventId));
      if (!checkAuthEvents(event, named, { rejected }).allowed) return true;
      if (!checkAuth(event, authStateOf(auth)).allowed) return true;
      return !checkAuth(event, this.authStateOf(await this.before(event))).allowed;
    })();
    this.#rejected.set(eventId, made);
    return made;
  }

  authStateOf(state: StateMap): ReturnType<typeof authStateOf> {
    return authStateOf([...state.values()].flatMap((id) => this.#found(id)));
  }

  /** Those upon which nothing follows that counts, be it by way of events that do not count. */
  heads(counts: ReadonlySet<string>): string[] {
    const covered = new Set<string>();
    const cover = (event: RoomEvent): void => {
      for (const id of event.prevEventIds) {
        if (covered.has(id)) continue;
        covered.add(id);
        const prev = this.events.get(id);
        if (prev && !counts.has(id)) cover(prev);
      }
    };
    for (const id of counts) cover(this.events.get(id)!);
    return [...counts].filter((id) => !covered.has(id)).sort();
  }

  #found(id: string): RoomEvent[] {
    const event = this.events.get(id);
    return event ? [event] : [];
  }
}

const toClient = (event: RoomEvent): JsonObject => ({ event_id: event.eventId, type: event.type });

eachDatabase(
  'graphs that other servers make up',
  (open) => {
    const clock = new FakeClock();
    let test: TestDatabase;
    let rooms: RoomsFixture;
    const alice = requesterOf('alice');
    const xan = `@xan:${remoteServer}`;

    beforeAll(async () => {
      test = await open(clock);
      await test.migrate([...databaseMigrations, ...replicationMigrations, ...usersMigrations, ...roomsMigrations]);
      rooms = await buildRooms({ database: test.database, state: test.state, clock });
    });
    afterAll(() => rooms.close());

    class World {
      readonly graph: Graph;
      readonly server: RemoteServer;
      /** What the other server has made, the oldest first. */
      readonly made: RoomEvent[] = [];

      private constructor(
        readonly roomId: string,
        readonly version: string,
        private readonly random: () => number,
      ) {
        this.graph = new Graph(version);
        this.server = new RemoteServer(version, roomId);
      }

      static async make(version: string, seed: number): Promise<World> {
        const { roomId } = await rooms.get(RoomCreation).create(alice, {
          room_version: version,
          preset: 'public_chat',
          power_level_content_override: {
            users: roomVersionRules(version)!.createEventImplied ? { [zoe]: 60 } : { [alice.userId]: 100, [zoe]: 60 },
          },
        });
        const world = new World(roomId, version, randomFrom(seed));
        await world.learnOwn();
        for (const userId of [zoe, yan, xan]) {
          const join = await world.say(
            { type: 'm.room.member', stateKey: userId, content: { membership: 'join' } },
            userId,
            [...world.made.slice(-1), ...(world.made.length === 0 ? await world.storedHeads() : [])],
          );
          expect(await world.receive([join])).toEqual(['accepted']);
        }
        return world;
      }

      pick<T>(from: readonly T[]): T {
        return from[Math.floor(this.random() * from.length)]!;
      }
      chance(part: number): boolean {
        return this.random() < part;
      }

      /** Takes over what this server has made. */
      async learnOwn(): Promise<void> {
        const rows = await test.database.query<{ event_id: string }>('SELECT event_id FROM events WHERE room_id = ?', [
          this.roomId,
        ]);
        const fresh = rows.map((row) => row.event_id).filter((id) => !this.graph.events.has(id));
        for (const { event } of await rooms.get(EventStore).inOrder(fresh)) this.graph.add(event);
      }

      async storedHeads(): Promise<RoomEvent[]> {
        const rows = await test.database.query<{ event_id: string }>(
          'SELECT event_id FROM event_forward_extremities WHERE room_id = ? ORDER BY event_id',
          [this.roomId],
        );
        return rows.map((row) => this.graph.events.get(row.event_id)!);
      }

      async say(
        what: { type: string; stateKey?: string; content: JsonObject; depth?: number; auth?: string[] },
        sender: string,
        prev: readonly RoomEvent[],
      ): Promise<RoomEvent> {
        const state = await this.graph.resolve(await Promise.all(prev.map((each) => this.graph.after(each.eventId))));
        const events = new Map([...state].map(([key, id]) => [key, this.graph.events.get(id)!]));
        const event = this.server.make({ ...what, sender }, prev, events);
        this.graph.add(event);
        this.made.push(event);
        return event;
      }

      /** Something, on top of anything. */
      async sayAnything(): Promise<RoomEvent> {
        const ground = [...this.made.slice(-6), ...(await this.storedHeads())];
        const prev = [...new Set(Array.from({ length: this.pick([1, 1, 1, 2, 3]) }, () => this.pick(ground)))];
        const member = (userId: string, membership: string, more: JsonObject = {}): [object, string | undefined] => [
          { type: 'm.room.member', stateKey: userId, content: { membership, ...more } },
          undefined,
        ];
        const target = this.pick(this.made).eventId;
        const number = this.made.length;
        const kinds: (readonly [object, string | undefined])[] = [
          [{ type: 'm.room.message', content: { msgtype: 'm.text', body: `words ${number}` } }, undefined],
          [{ type: 'm.room.topic', stateKey: '', content: { topic: `${number}` } }, undefined],
          [{ type: 'm.room.name', stateKey: '', content: { name: `${number}` } }, zoe],
          member(yan, 'ban'),
          member(yan, 'leave'),
          member(xan, 'ban'),
          member(xan, 'leave'),
          [member(yan, 'join', { displayname: `${number}` })[0], yan],
          [member(xan, 'join', { displayname: `${number}` })[0], xan],
          [{ type: 'm.room.join_rules', stateKey: '', content: { join_rule: this.pick(['public', 'invite']) } }, zoe],
          [
            {
              type: 'm.room.power_levels',
              stateKey: '',
              content: {
                users: {
                  ...(roomVersionRules(this.version)!.createEventImplied ? {} : { [alice.userId]: 100 }),
                  [zoe]: 60,
                  [this.pick([yan, xan])]: this.pick([0, 50, 55]),
                },
                state_default: this.pick([50, 55]),
              },
            },
            this.pick([zoe, zoe, yan]),
          ],
          [
            {
              type: 'm.reaction',
              content: { 'm.relates_to': { rel_type: 'm.annotation', event_id: target, key: 'x' } },
            },
            undefined,
          ],
          [
            {
              type: 'm.room.message',
              content: {
                msgtype: 'm.text',
                body: 'thread',
                'm.relates_to': { rel_type: 'm.thread', event_id: target },
              },
            },
            undefined,
          ],
        ];
        const [what, sender = this.pick([zoe, zoe, yan, xan])] = this.pick(kinds);
        const draft = what as { type: string; stateKey?: string; content: JsonObject };
        const depth = this.chance(0.1) ? this.pick([1, 2, 1_000_000, Number.MAX_SAFE_INTEGER]) : undefined;
        return this.say({ ...draft, ...(depth !== undefined && { depth }) }, sender, prev);
      }

      async receive(events: readonly RoomEvent[]): Promise<ReceiveVerdict['kind'][]> {
        const given = events.map((event) => ({ event }));
        return (await rooms.get(EventPersister).receive(this.roomId, given)).map((verdict) => verdict.kind);
      }

      async rows(): Promise<Map<string, EventRow>> {
        const rows = await test.database.query<EventRow>(
          'SELECT event_id, outlier, soft_failed, rejection_reason FROM events WHERE room_id = ?',
          [this.roomId],
        );
        return new Map(rows.map((row) => [row.event_id, row]));
      }

      /** Stores an event whose ancestors are withheld, with the state before it. */
      async receiveWithState(event: RoomEvent): Promise<void> {
        const state = [...(await this.graph.before(event)).values()].map((id) => this.graph.events.get(id)!);
        const authChain = new Map<string, RoomEvent>();
        const follow = (each: RoomEvent): void => {
          for (const id of restsUpon(each)) {
            const found = this.graph.events.get(id);
            if (!found || authChain.has(id)) continue;
            authChain.set(id, found);
            follow(found);
          }
        };
        for (const each of [event, ...state]) follow(each);
        await rooms
          .get(EventPersister)
          .receiveWithState(this.version, { event }, { state, authChain: [...authChain.values()] });
      }

      /**
       * Compares what is stored with what must be.
       * @param withGaps ancestors are withheld: a head may be left that is covered by way of something that is not there
       */
      async check(withGaps = false): Promise<void> {
        await this.learnOwn();
        const placed = [...(await this.rows()).values()].filter((row) => !row.outlier);
        for (const row of placed) {
          const isRejected = row.rejection_reason !== null;
          expect([row.event_id, isRejected]).toEqual([row.event_id, await this.graph.isRejected(row.event_id)]);
        }
        const counting = placed.filter((row) => !row.soft_failed && row.rejection_reason === null);
        const counts = new Set(counting.map((row) => row.event_id));
        const heads = (await this.storedHeads()).map((event) => event.eventId).sort();
        const least = this.graph.heads(counts);
        expect(heads).toEqual(
          withGaps ? [...new Set([...heads.filter((id) => counts.has(id)), ...least])].sort() : least,
        );
        const wanted = await this.graph.resolve(await Promise.all(heads.map((id) => this.graph.after(id))));
        const current = await test.database.query<{
          type: string;
          state_key: string;
          event_id: string;
          membership: string | null;
        }>('SELECT type, state_key, event_id, membership FROM current_state_events WHERE room_id = ?', [this.roomId]);
        const stored = current.map((row) => [stateKeyOf(row.type, row.state_key), row.event_id]);
        expect(stored.sort()).toEqual([...wanted].sort());
        const joined = current.filter((row) => row.membership === 'join');
        for (const row of current.filter((each) => each.type === 'm.room.member')) {
          expect(row.membership).toBe(this.graph.events.get(row.event_id)!.content['membership']);
        }
        const figures = await test.database.get<{ joined_members: number; current_state_events: number }>(
          'SELECT joined_members, current_state_events FROM room_stats_current WHERE room_id = ?',
          [this.roomId],
        );
        expect(figures).toEqual({ joined_members: joined.length, current_state_events: current.length });
      }

      /** Nothing that was rejected is given to anybody, and nothing that was soft-failed but as state that a resolution brought back. */
      async checkHidden(): Promise<void> {
        const rows = [...(await this.rows()).values()];
        const rejected = new Set(rows.filter((row) => row.rejection_reason !== null).map((row) => row.event_id));
        const hidden = new Set(
          rows
            .filter((row) => row.outlier || row.soft_failed || row.rejection_reason !== null)
            .map((row) => row.event_id),
        );
        const reading = rooms.get(RoomReadingService);
        const relations = rooms.get(RelationsService);
        const filter = parseEventFilter({});
        const { roomId } = this;
        const answers: JsonObject[] = [];
        for (const direction of ['b', 'f'] as const)
          answers.push(await reading.messages(alice, roomId, { direction, limit: 1_000, filter }));
        answers.push({ state: (await rooms.get(RoomStateReader).current(roomId)).map(({ event }) => toClient(event)) });
        const visible = rows.map((row) => row.event_id).filter((id) => !hidden.has(id));
        for (const eventId of visible.slice(-15)) {
          const request = { roomId, eventId, direction: 'b', limit: 100, recurse: true } as const;
          answers.push(await reading.context(alice, roomId, eventId, 20, filter));
          answers.push(await relations.relations(alice, request));
        }
        for (const { state, ...timeline } of answers) {
          // What an event refers to in its content says nothing about that.
          const text = (value: unknown): string =>
            JSON.stringify(value, (key, part: unknown) => (key === 'content' ? undefined : part)) ?? '';
          const named = (set: ReadonlySet<string>, value: unknown): string[] => {
            const shown = text(value);
            return [...set].filter((id) => shown.includes(`"event_id":"${id}"`));
          };
          expect([named(hidden, timeline), named(rejected, state)]).toEqual([[], []]);
        }
        for (const id of hidden)
          await expect(reading.event(alice, roomId, id)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
      }
    }

    it.each([...roomVersions])('become the same room in whatever order they arrive (version %s)', async (version) => {
      const seed = Number(process.env['ROOKERY_GRAPH_SEED'] ?? 17) * 1_000 + roomVersions.indexOf(version);
      const world = await World.make(version, seed);
      for (let round = 0; round < 6; round++) {
        const waiting: RoomEvent[] = [];
        for (let n = 0; n < 6; n++) waiting.push(await world.sayAnything());
        for (let attempt = 0; waiting.length > 0; attempt++) {
          expect(attempt).toBeLessThan(200);
          const batch = Array.from({ length: world.pick([1, 1, 2, 4]) }, () => world.pick(waiting));
          if (world.chance(0.2))
            await rooms.get(EventPersister).receiveOutliers(
              world.roomId,
              batch.filter((event) => event.stateKey !== undefined),
            );
          // The same event may come by two ways at once.
          const lanes = world.chance(0.3) ? [batch, [...batch].reverse()] : [batch];
          const verdicts = await Promise.all(lanes.map((lane) => world.receive(lane)));
          for (const [index, kind] of verdicts[0]!.entries()) {
            if (kind === 'missingAncestors') continue;
            const at = waiting.indexOf(batch[index]!);
            if (at >= 0) waiting.splice(at, 1);
          }
          await world.check();
        }
        if (world.chance(0.4))
          await rooms
            .get(EventCreation)
            .send(alice, { roomId: world.roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'own' } });
        await world.check();
      }
      // Whoever says that the room begins anew, with an event that follows upon nothing as only the first one does.
      const anew = await world.say(
        { type: 'm.room.create', stateKey: '', content: { room_version: version } },
        zoe,
        [],
      );
      expect(await world.receive([anew])).toEqual(['rejected']);
      await world.check();
      await world.checkHidden();
      const kinds = [...(await world.rows()).values()];
      // Without any of these it would have proven little.
      expect(kinds.some((row) => row.rejection_reason !== null)).toBe(true);
    });

    it.each(['1', '6', '11', '12'])('stand gaps that are filled later or never (version %s)', async (version) => {
      const seed = Number(process.env['ROOKERY_GRAPH_SEED'] ?? 17) * 1_000 + Number(version);
      const world = await World.make(version, seed);
      for (let round = 0; round < 6; round++) {
        const hidden: RoomEvent[] = [];
        for (let n = 0; n < 5; n++) hidden.push(await world.sayAnything());
        const shown = hidden.splice(world.pick([2, 3, 4]), 1)[0]!;
        expect(['missingAncestors', 'accepted', 'rejected', 'softFailed']).toContain((await world.receive([shown]))[0]);
        await world.receiveWithState(shown);
        await world.check(true);
        // What was withheld comes in any order, and some of it never.
        for (let n = 0; n < 12; n++) {
          await world.receive([world.pick(hidden.slice(round % 2))]);
          await world.check(true);
        }
        await rooms
          .get(EventCreation)
          .send(alice, { roomId: world.roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'own' } });
        await world.check(true);
      }
      await world.checkHidden();
    });

    it.each(['1', '2'])('that bite their own tail stop nobody (version %s)', async (version) => {
      const world = await World.make(version, 5);
      const [first, second] = ['$ouroboros', '$serpent'].map((name) => `${name}${version}:${remoteServer}`) as [
        string,
        string,
      ];
      const head = world.made.at(-1)!;
      const biting = (eventId: string, prev: string[], auth: string[] = []): RoomEvent =>
        buildEvent(
          {
            ...{ roomId: world.roomId, type: 'm.room.message', sender: zoe, content: { body: 'x' }, eventId },
            ...{ originServerTs: 1, depth: 9, prevEventIds: prev, authEventIds: [...head.authEventIds, ...auth] },
          },
          roomVersionRules(version)!,
        );
      expect(await world.receive([biting(first, [head.eventId, first])])).toEqual(['missingAncestors']);
      expect(await world.receive([biting(first, [head.eventId], [first])])).toEqual(['missingAncestors']);
      expect(await world.receive([biting(first, [second]), biting(second, [first])])).toEqual([
        ...['missingAncestors', 'missingAncestors'],
      ]);
      // Whoever vouches for the state before it has it stored.
      const event = biting(first, [head.eventId, first]);
      const state = [...(await world.graph.after(head.eventId)).values()].map((id) => world.graph.events.get(id)!);
      await rooms.get(EventPersister).receiveWithState(version, { event }, { state, authChain: state });
      expect(await world.receive([await world.say({ type: 'm.room.message', content: {} }, zoe, [head])])).toEqual([
        'accepted',
      ]);
      await rooms
        .get(EventCreation)
        .send(alice, { roomId: world.roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'on' } });
      const filter = parseEventFilter({});
      const page = await rooms
        .get(RoomReadingService)
        .messages(alice, world.roomId, { direction: 'b', limit: 100, filter });
      expect(JSON.stringify(page)).toContain('"on"');
      expect(
        await test.database.query('SELECT 1 FROM event_forward_extremities WHERE room_id = ?', [world.roomId]),
      ).toHaveLength(1);
    });
  },
  stateApart,
);
