import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, SingleFlight } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import { RoomHooks } from '../hooks.js';
import {
  type PartialJoin,
  selectCompletions,
  selectEarlierJoins,
  selectLastCompletion,
  selectPartialRooms,
  selectPartialServers,
} from './partial-rooms.query.js';

/** A room whose state has not arrived yet. */
export interface PartialRoom {
  readonly roomId: string;
  /** The event with which this server came in. */
  readonly joinEventId: string;
  /** Whom to ask first. */
  readonly via: string;
  /** Other servers that were in the room before: with those of the members that are known, who is told of news. */
  readonly servers: ReadonlySet<string>;
  /** Aborts once nobody waits for that state any more: it is here, the room is gone, or another join counts. */
  readonly over: AbortSignal;
}

interface OpenRoom extends PartialRoom {
  readonly ending: AbortController;
}

const cacheName = 'partial_rooms';

/** How long a request waits for a room's state; milliseconds. */
const patienceMs = 10 * 60_000;

/**
 * The rooms that were joined before their state was here (MSC3902). Who needs to know all members of such a room waits for
 * {@link whole}; who has only to reach its servers takes {@link PartialRoom.servers} with those it knows.
 */
@Injectable()
export class PartialRooms implements OnModuleInit {
  readonly #rooms = new Map<string, OpenRoom>();
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #began = new Set<(room: PartialRoom) => void>();
  /** The last position of the events at which members of any room became known. */
  #lastCompletion = 0;
  /** Where another process writes: it has said that something changed since this was read. */
  #isOutdated = false;
  readonly #reading = new SingleFlight<void>();

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly hooks: RoomHooks,
    private readonly invalidations: Invalidations,
  ) {
    // What the process that writes remembers is what is true.
    const forget = (): void => void (this.#isOutdated = database.isBesideWriter);
    invalidations.on(cacheName, { forget, forgetAll: forget });
  }

  async onModuleInit(): Promise<void> {
    this.hooks.subscribe({
      onRoomPurged: (tx, roomId) => {
        tx.unlessRolledBack(() => this.end(roomId));
        return Promise.resolve();
      },
    });
    await this.#read();
  }

  async #read(): Promise<void> {
    this.#isOutdated = false;
    try {
      const last = await selectLastCompletion(this.database);
      const servers = Map.groupBy(await selectPartialServers(this.database), (row) => row.room_id);
      const rooms = await selectPartialRooms(this.database);
      this.#lastCompletion = last;
      for (const roomId of [...this.#rooms.keys()]) this.#drop(roomId);
      for (const row of rooms) {
        const names = (servers.get(row.room_id) ?? []).map((server) => server.server_name);
        this.#keep(row.room_id, row.join_event_id ?? '', { via: row.joined_via ?? '', servers: names });
      }
    } catch (error) {
      this.#isOutdated = true;
      throw error;
    }
  }

  /**
   * Waits until what another process has said is known here: to be called before {@link hasAny}, {@link has} and the like wherever
   * any process may ask. Costs nothing where nothing changed.
   */
  async heard(): Promise<void> {
    while (this.#isOutdated || this.#reading.size > 0) await this.#reading.run(cacheName, () => this.#read());
  }

  /** Whether there is any such room: without, nothing has to be looked up. */
  get hasAny(): boolean {
    return this.#rooms.size > 0;
  }

  get all(): readonly PartialRoom[] {
    return [...this.#rooms.values()];
  }

  get(roomId: string): PartialRoom | undefined {
    return this.#rooms.get(roomId);
  }

  has(roomId: string): boolean {
    return this.#rooms.has(roomId);
  }

  /** Rooms in which a server is as far as is known, though none of its members may be. */
  withServer(server: string): string[] {
    return this.all.filter(({ servers }) => servers.has(server)).map(({ roomId }) => roomId);
  }

  /** Has somebody told of each room that is joined so from now on. */
  onBegan(listener: (room: PartialRoom) => void): void {
    this.#began.add(listener);
  }

  /**
   * Waits until all of a room's state is here.
   * @throws MatrixError 503 `M_UNKNOWN` when that takes too long
   */
  async whole(roomId: string): Promise<void> {
    if (!(await this.arrives(roomId, patienceMs)))
      throw MatrixError.unavailable('The state of the room has not arrived yet');
  }

  /** Waits until all of a room's state is here, for a time at most. Whether it is. */
  async arrives(roomId: string, timeoutMs: number): Promise<boolean> {
    await this.heard();
    if (!this.#rooms.has(roomId)) return true;
    this.database.onlyAtWriter('waiting for the state of a room');
    const waiting = this.#waiting.get(roomId) ?? new Set();
    this.#waiting.set(roomId, waiting);
    return new Promise<boolean>((resolve) => {
      const timer = this.clock.after(timeoutMs, () => {
        waiting.delete(done);
        resolve(false);
      });
      const done = (): void => {
        timer.cancel();
        resolve(true);
      };
      waiting.add(done);
    });
  }

  /**
   * Where, after one position of the events and up to another, members of some rooms became known: of a room that is whole the last
   * of these is where it became so. Costs no query while there was none.
   */
  async completed(
    roomIds: readonly string[],
    after: number,
    upTo: number,
  ): Promise<ReadonlyMap<string, ReadonlySet<number>>> {
    await this.heard();
    if (roomIds.length === 0 || this.#lastCompletion <= after) return new Map();
    return selectCompletions(this.database, roomIds, after, upTo);
  }

  /** Events with which this server came into a room before, and before which the state is missing as well. */
  async earlierJoins({ roomId, joinEventId }: PartialRoom): Promise<string[]> {
    const joins = await selectEarlierJoins(this.database, roomId, joinEventId);
    return joins.filter((join) => domainOf(join.user_id) === this.config.serverName).map((join) => join.event_id);
  }

  /** Told by the persister once a join is durable. */
  begin(roomId: string, joinEventId: string, join: PartialJoin): PartialRoom {
    const room = this.#keep(roomId, joinEventId, join);
    this.#tell(roomId);
    for (const listener of this.#began) listener(room);
    return room;
  }

  /** Told once some more members of a room are known at a position. */
  grew(roomId: string, position: number): void {
    this.#lastCompletion = Math.max(this.#lastCompletion, position);
    this.#tell(roomId);
  }

  /** Told once the state of a room is whole at a position, or the room is gone. */
  end(roomId: string, position?: number): void {
    this.#drop(roomId);
    if (position !== undefined) this.#lastCompletion = Math.max(this.#lastCompletion, position);
    this.#tell(roomId);
    for (const done of this.#waiting.get(roomId) ?? []) done();
    this.#waiting.delete(roomId);
  }

  #tell(roomId: string): void {
    this.invalidations.send(cacheName, [roomId]);
  }

  #keep(roomId: string, joinEventId: string, { via, servers }: PartialJoin): PartialRoom {
    const others = servers.filter((server) => server !== this.config.serverName);
    const ending = new AbortController();
    const room = { roomId, joinEventId, via, servers: new Set(others), over: ending.signal, ending };
    this.#drop(roomId);
    this.#rooms.set(roomId, room);
    return room;
  }

  #drop(roomId: string): void {
    this.#rooms.get(roomId)?.ending.abort();
    this.#rooms.delete(roomId);
  }
}
