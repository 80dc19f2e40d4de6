import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Cache, Config } from '@rookery/platform';
import { RoomHooks } from '@rookery/rooms';
import { localMembersOf } from './room-audience.query.js';

/** Member ids kept in all rooms together; a room counts as one more. */
const maxKept = 1_000_000;

interface Entry {
  readonly loading: Promise<Set<string>>;
  users: Set<string> | undefined;
}

/** Who of this server is in a room, from memory for rooms in use: whom typing, receipts and presence concern. */
@Injectable()
export class RoomAudience {
  readonly #rooms: Cache<string, Entry>;

  constructor(
    private readonly database: Database,
    hooks: RoomHooks,
    config: Config,
  ) {
    this.#rooms = new Cache(config, 'local_members', {
      invalidation: 'stream events',
      elsewhere: 'told',
      max: 2 * maxKept,
    });
    hooks.subscribe({
      afterCommit: ({ roomId, events, moves, room, backfilled }) => {
        if (backfilled) return;
        // State resolution ends and begins stays of those whom no event of the batch is about.
        for (const { userId } of moves) this.#changed(roomId, userId, room.localMembers.has(userId));
        for (const { event } of events)
          if (event.type === 'm.room.member' && event.stateKey !== undefined)
            this.#changed(roomId, event.stateKey, room.localMembers.has(event.stateKey));
      },
      onElsewhere: (news) => {
        if (news === undefined) this.#rooms.clear();
        else if (news.members.length > 0) for (const roomId of news.rooms) this.#rooms.delete(roomId);
      },
      onRoomPurged: async (tx, roomId) => {
        tx.unlessRolledBack(() => this.#rooms.delete(roomId));
      },
    });
  }

  /** Joined users of this server. Not to be changed, nor kept. */
  async localMembers(roomId: string): Promise<ReadonlySet<string>> {
    return (await this.ofRooms([roomId])).get(roomId) ?? new Set();
  }

  /** The same for many rooms, in one query for those that are not in memory. */
  async ofRooms(roomIds: Iterable<string>): Promise<Map<string, ReadonlySet<string>>> {
    const entries = new Map<string, Entry>();
    const missing: string[] = [];
    for (const roomId of roomIds) {
      const found = this.#rooms.get(roomId);
      if (found) entries.set(roomId, found);
      else missing.push(roomId);
    }
    if (missing.length > 0) {
      const loading = localMembersOf(this.database, missing);
      for (const roomId of missing) entries.set(roomId, this.#enter(roomId, loading));
    }
    const members = new Map<string, ReadonlySet<string>>();
    for (const [roomId, entry] of entries) members.set(roomId, entry.users ?? (await entry.loading));
    return members;
  }

  #enter(roomId: string, loadingAll: Promise<ReadonlyMap<string, Set<string>>>): Entry {
    const loading = loadingAll.then((rooms) => rooms.get(roomId) ?? new Set<string>());
    const entry: Entry = { loading, users: undefined };
    this.#rooms.set(roomId, entry, 1);
    loading.then(
      (users) => {
        entry.users = users;
        // A membership that changed meanwhile has dropped the entry: what was read may be older.
        if (this.#rooms.peek(roomId) === entry) this.#rooms.set(roomId, entry, 1 + users.size);
      },
      () => this.#rooms.delete(roomId),
    );
    return entry;
  }

  #changed(roomId: string, userId: string, joined: boolean): void {
    const entry = this.#rooms.peek(roomId);
    if (entry === undefined) return;
    if (entry.users === undefined) this.#rooms.delete(roomId);
    else if (joined) entry.users.add(userId);
    else entry.users.delete(userId);
  }
}
