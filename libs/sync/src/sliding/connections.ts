import { createHash } from 'node:crypto';
import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Cache, Clock, Config, Ids } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import { UserHooks } from '@rookery/users';
import {
  type ConnectionIdentity,
  type ConnectionRoomRow,
  deleteConnections,
  deleteObsolete,
  findConnection,
  insertConnection,
  insertRooms,
  moveConnection,
  selectOfDevices,
  selectRequiredStates,
  selectRooms,
  touchConnection,
} from './connections.query.js';
import { type DeviceMembers, LazyMemberMemories, type MembersPlace } from '../request/device-members.js';
import type { RoomSection } from './lists.js';

export type { ConnectionIdentity } from './connections.query.js';

/** What a connection was told of one room. */
export interface RoomMemory {
  readonly section: RoomSection;
  /** Position of the events up to which everything was sent; absent: up to the client's token, the room is live. */
  readonly sentUpTo: number | undefined;
  readonly timelineLimit: number;
  /** Key of the `RequiredState`. */
  readonly requiredState: string;
  /** Its account data was sent; from then on changes are. */
  readonly accountData: boolean;
  /** The same of receipts. */
  readonly receipts: boolean;
  /** The same of who types. */
  readonly typing: boolean;
}

/** What a connection was told, by the time the client held a position. */
export interface ConnectionMemory {
  readonly key: number;
  readonly position: number;
  readonly rooms: ReadonlyMap<string, RoomMemory>;
}

/** Stands in a connection's memory for what is about no room: the account's own data. */
export const wholeAccount = '';

interface CachedConnection {
  readonly key: number;
  /** From which the client went on last, and what it was given then; the same when nothing changed since. */
  readonly base: ConnectionMemory;
  readonly latest: ConnectionMemory;
  readonly lastUsedMs: number;
}

/** How long a connection that nobody uses is kept, milliseconds. */
export const expiryMs = 7 * 24 * 3_600_000;
/** How stale the stored time of last use may be. */
const touchAfterMs = 3_600_000;
const maxPerDevice = 16;
const maxCachedRooms = 500_000;

const told = { accountData: 1, receipts: 2, typing: 4 } as const;
/** Whoever wants members with timelines wants each once. */
const lazily = { lazyLoadMembers: true, includeRedundantMembers: false };

/**
 * What each connection of a device was told, so that answers hold only what is new. Kept in the database, so that a position
 * stays good over restarts and in every process; the position before the newest stays good too, for a client that lost an answer.
 */
@Injectable()
export class SlidingConnections {
  readonly #cache: Cache<string, CachedConnection>;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly memories: LazyMemberMemories,
    private readonly invalidations: Invalidations,
    hooks: UserHooks,
    config: Config,
  ) {
    this.#cache = new Cache(config, 'sliding_sync_connections', {
      ...{ invalidation: 'on write', elsewhere: 'checked', max: 2 * maxCachedRooms },
      sizeOf: ({ latest }) => latest.rooms.size + 10,
    });
    // A position that is moved on is found in the database; one whose connection begins anew would be taken for good.
    this.invalidations.on(this.#cache.name, {
      forget: (keys) => keys.forEach((key) => this.#cache.delete(key)),
      forgetAll: () => this.#cache.clear(),
    });
    hooks.devicesDeleted.subscribe({
      inTransaction: async (tx, { userId, deviceIds }) =>
        deleteConnections(tx, await selectOfDevices(tx, userId, deviceIds)),
    });
  }

  /** A key for a connection that begins. */
  newKey(): number {
    return this.ids.integer(2 ** 47);
  }

  /** Which members a connection was sent with timelines. @param since what the client comes with; absent where it begins */
  membersOf(key: number, since: MembersPlace | undefined): DeviceMembers {
    return this.memories.of(`sliding\n${key}`, since, lazily);
  }

  /** A name for an answer, by which its arrival is known. */
  newAnswer(): number {
    return this.ids.integer(2 ** 47);
  }

  /**
   * What the connection was told when the client got this position.
   * @throws MatrixError 400 `M_UNKNOWN_POS`: it is neither of the last two, or expired; the client starts anew
   */
  async resume(identity: ConnectionIdentity, position: number): Promise<ConnectionMemory> {
    const nowMs = this.clock.nowMs();
    let connection = this.#cache.get(cacheKey(identity));
    // Another process may have moved the connection on.
    if (connection?.base.position !== position && connection?.latest.position !== position) {
      connection = await this.#load(identity);
    }
    if (connection === undefined || connection.lastUsedMs < nowMs - expiryMs) throw unknownPosition();
    const memory = [connection.latest, connection.base].find((each) => each.position === position);
    if (memory === undefined) throw unknownPosition();
    if (connection.lastUsedMs < nowMs - touchAfterMs) {
      await this.database.write((tx) => touchConnection(tx, memory.key, nowMs), {
        ...{ name: 'sliding_sync_touch', anyProcess: true },
      });
      connection = { ...connection, lastUsedMs: nowMs };
    }
    this.#cache.set(cacheKey(identity), connection);
    return memory;
  }

  /**
   * Remembers what an answer says. Without `base` the connection begins, and takes the place of one of the same name.
   * @param key of `base`, or a {@link newKey}
   * @param changes rooms of which the connection is told something new
   * @throws MatrixError 400 `M_UNKNOWN_POS` when the connection ended meanwhile
   */
  async save(
    identity: ConnectionIdentity,
    key: number,
    base: ConnectionMemory | undefined,
    changes: ReadonlyMap<string, RoomMemory>,
  ): Promise<ConnectionMemory> {
    if (base !== undefined && changes.size === 0) return base;
    const nowMs = this.clock.nowMs();
    const requiredStates = new Map<string, string>();
    const rowsAt = (position: number): ConnectionRoomRow[] =>
      [...changes].map(([roomId, memory]) => toRow(roomId, memory, position, requiredStates));
    // Whatever becomes of the transaction: the next request reads what is stored.
    this.#cache.delete(cacheKey(identity));
    const position = await this.database.write(
      async (tx) => {
        const next =
          base === undefined
            ? await insertConnection(tx, identity, { key, nowMs }, maxPerDevice)
            : await moveConnection(tx, key, base.position, nowMs);
        if (next === undefined) throw unknownPosition();
        if (base !== undefined) await deleteObsolete(tx, key, base.position, [...changes.keys()]);
        await insertRooms(tx, key, rowsAt(next), requiredStates);
        return next;
      },
      { name: 'sliding_sync_save', anyProcess: true },
    );
    if (base === undefined) this.invalidations.send(this.#cache.name, [cacheKey(identity)]);
    const latest: ConnectionMemory = { key, position, rooms: new Map([...(base?.rooms ?? []), ...changes]) };
    this.#cache.set(cacheKey(identity), { key, base: base ?? latest, latest, lastUsedMs: nowMs });
    return latest;
  }

  async #load(identity: ConnectionIdentity): Promise<CachedConnection | undefined> {
    const row = await findConnection(this.database, identity);
    if (row === undefined) return undefined;
    const key = row.connection_key;
    const [rows, states] = await Promise.all([
      selectRooms(this.database, key),
      selectRequiredStates(this.database, key),
    ]);
    const at = (position: number): ConnectionMemory => ({
      key,
      position,
      rooms: new Map(
        rows.filter((each) => each.position <= position).map((each) => [each.room_id, fromRow(each, states)]),
      ),
    });
    return { key, base: at(row.base_position), latest: at(row.position), lastUsedMs: row.last_used_ts };
  }
}

const cacheKey = ({ userId, deviceId, connId }: ConnectionIdentity): string => `${userId}\n${deviceId}\n${connId}`;

/** What a client is told that has to start anew. */
export const unknownPosition = (): MatrixError => MatrixError.unknownPos();

function toRow(
  roomId: string,
  memory: RoomMemory,
  position: number,
  requiredStates: Map<string, string>,
): ConnectionRoomRow {
  let id = requiredStates.get(memory.requiredState);
  if (id === undefined) {
    id = createHash('sha256').update(memory.requiredState).digest('base64url').slice(0, 22);
    requiredStates.set(memory.requiredState, id);
  }
  return {
    room_id: roomId,
    position,
    section: memory.section,
    sent_up_to: memory.sentUpTo ?? null,
    timeline_limit: memory.timelineLimit,
    required_state_id: id,
    told:
      (memory.accountData ? told.accountData : 0) |
      (memory.receipts ? told.receipts : 0) |
      (memory.typing ? told.typing : 0),
  };
}

function fromRow(row: ConnectionRoomRow, requiredStates: ReadonlyMap<string, string>): RoomMemory {
  return {
    section: row.section as RoomSection,
    sentUpTo: row.sent_up_to ?? undefined,
    timelineLimit: row.timeline_limit,
    requiredState: requiredStates.get(row.required_state_id) ?? '[]',
    accountData: (row.told & told.accountData) !== 0,
    receipts: (row.told & told.receipts) !== 0,
    typing: (row.told & told.typing) !== 0,
  };
}
