import { Injectable } from '@nestjs/common';
import { Cache, Config } from '@rookery/platform';
import { type ChangedKeys, Streams } from '@rookery/replication';
import { eventsStream, MembershipHistory, MembershipReader, RoomHooks } from '@rookery/rooms';
import type { RoomMembership } from '../model/rooms.js';

const maxBytes = 64 * 1024 * 1024;
const bytesPerMembership = 500;
const bytesPerList = 1024;

/** A user's rooms, ready for look-ups. */
export interface UserRooms {
  readonly byId: ReadonlyMap<string, RoomMembership>;
  readonly joined: ReadonlySet<string>;
  /** Position of the membership that changed last. */
  readonly lastChange: number;
}

/**
 * What happened lately in rooms and to memberships, in memory, so that a sync without news asks the database nothing and a
 * quiet room costs a sync nothing.
 */
@Injectable()
export class RoomActivity {
  readonly #lists: Cache<string, { readonly rooms: Promise<UserRooms> }>;
  readonly #rooms: ChangedKeys;
  readonly #members: ChangedKeys;

  constructor(
    private readonly memberships: MembershipReader,
    private readonly history: MembershipHistory,
    streams: Streams,
    hooks: RoomHooks,
    config: Config,
  ) {
    const events = streams.of(eventsStream);
    this.#rooms = events.changes('room');
    this.#members = events.changes('member');
    this.#lists = new Cache(config, 'rooms_of_users', {
      invalidation: 'stream events',
      elsewhere: 'told',
      max: maxBytes,
    });
    hooks.subscribe({
      afterCommit: (batch) => {
        for (const { event, streamOrdering } of batch.events) {
          if (streamOrdering >= 0 && event.type === 'm.room.member' && event.stateKey !== undefined)
            this.forget(event.stateKey);
        }
        // Resolution may choose among events of long ago.
        for (const { userId } of batch.moves) this.forget(userId);
      },
      onElsewhere: (news) => {
        if (news === undefined) this.#lists.clear();
        for (const userId of news?.members ?? []) this.forget(userId);
      },
      onForgotten: (userId) => this.forget(userId),
      // Rare, and nobody says who had been in it.
      onRoomPurged: async (tx) => tx.unlessRolledBack(() => this.#lists.clear()),
    });
  }

  /** The user's rooms now, whatever the membership. */
  roomsOf(userId: string): Promise<UserRooms> {
    const cached = this.#lists.get(userId);
    if (cached !== undefined) return cached.rooms;
    const entry = { rooms: this.memberships.roomsOf(userId).then(indexed) };
    this.#lists.set(userId, entry, bytesPerList);
    entry.rooms.then(
      ({ byId }) => {
        // A membership that changed meanwhile has dropped the entry: what was read may be older.
        if (this.#lists.peek(userId) === entry)
          this.#lists.set(userId, entry, bytesPerList + byId.size * bytesPerMembership);
      },
      () => this.forget(userId),
    );
    return entry.rooms;
  }

  /** The rooms that the user was in at a position. No query unless a membership has changed behind it. */
  async joinedAt(userId: string, position: number): Promise<ReadonlySet<string>> {
    const { byId, joined, lastChange } = await this.roomsOf(userId);
    if (lastChange <= position) return joined;
    const later = [...byId.values()].filter((each) => each.streamOrdering > position).map(({ roomId }) => roomId);
    const before = await this.history.at(userId, later, position);
    const then = new Set(joined);
    for (const roomId of later) {
      if (before.get(roomId)?.membership === 'join') then.add(roomId);
      else then.delete(roomId);
    }
    return then;
  }

  /** Forgets the rooms of a user: after one was forgotten or deleted. */
  forget(userId: string): void {
    this.#lists.delete(userId);
  }

  /** Those of the rooms in which something may have happened after `position`. */
  changedRooms(roomIds: ReadonlySet<string>, position: number): string[] {
    return this.#rooms.changedSince(roomIds, position);
  }

  /** Whether a membership of the user may have changed after `position`. */
  membershipsChanged(userId: string, position: number): boolean {
    return this.#members.hasChanged(userId, position);
  }
}

function indexed(list: readonly RoomMembership[]): UserRooms {
  return {
    byId: new Map(list.map((membership) => [membership.roomId, membership])),
    joined: new Set(list.filter((entry) => entry.membership === 'join').map((entry) => entry.roomId)),
    lastChange: list.reduce((last, { streamOrdering }) => Math.max(last, streamOrdering), 0),
  };
}
