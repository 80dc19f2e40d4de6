import { Injectable } from '@nestjs/common';
import { domainOf } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { MembershipReader, RoomHooks } from '@rookery/rooms';
import { LRUCache } from 'lru-cache';

/** Member ids kept in all rooms together; a room counts as one more. */
const maxKept = 1_000_000;

interface Entry {
  readonly loading: Promise<Set<string>>;
  users: Set<string> | undefined;
}

/** Who of this server is in a room, from memory for rooms in use: whom typing, receipts and presence concern. */
@Injectable()
export class RoomAudience {
  readonly #rooms = new LRUCache<string, Entry>({ maxSize: maxKept });

  constructor(
    private readonly memberships: MembershipReader,
    private readonly config: Config,
    hooks: RoomHooks,
  ) {
    hooks.subscribe({
      afterCommit: ({ roomId, events, room, backfilled }) => {
        if (backfilled) return;
        for (const { event } of events)
          if (event.type === 'm.room.member' && event.stateKey !== undefined)
            this.#changed(roomId, event.stateKey, room.localMembers.has(event.stateKey));
      },
      onRoomPurged: async (tx, roomId) => {
        tx.afterCommit(() => this.#rooms.delete(roomId));
      },
    });
  }

  /** Joined users of this server. Not to be changed, nor kept. */
  localMembers(roomId: string): Promise<ReadonlySet<string>> {
    const found = this.#rooms.get(roomId);
    if (found) return found.loading;
    const entry: Entry = { loading: this.#load(roomId), users: undefined };
    this.#rooms.set(roomId, entry, { size: 1 });
    entry.loading.then(
      (users) => {
        entry.users = users;
        // A membership that changed meanwhile has dropped the entry: what was read may be older.
        if (this.#rooms.peek(roomId) === entry) this.#rooms.set(roomId, entry, { size: 1 + users.size });
      },
      () => this.#rooms.delete(roomId),
    );
    return entry.loading;
  }

  /** The union over rooms, at most about `limit` users; rooms are taken in the order given. */
  async localMembersOf(roomIds: Iterable<string>, limit: number): Promise<Set<string>> {
    const users = new Set<string>();
    for (const roomId of roomIds) {
      for (const userId of await this.localMembers(roomId)) users.add(userId);
      if (users.size >= limit) break;
    }
    return users;
  }

  async #load(roomId: string): Promise<Set<string>> {
    const users = (await this.memberships.joinedUserIds([roomId])).get(roomId) ?? new Set<string>();
    for (const userId of users) if (domainOf(userId) !== this.config.serverName) users.delete(userId);
    return users;
  }

  #changed(roomId: string, userId: string, joined: boolean): void {
    const entry = this.#rooms.peek(roomId);
    if (entry === undefined) return;
    if (entry.users === undefined) this.#rooms.delete(roomId);
    else if (joined) entry.users.add(userId);
    else entry.users.delete(userId);
  }
}
