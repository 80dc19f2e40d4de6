import { Injectable } from '@nestjs/common';
import { MembershipReader, RoomHooks, type RoomMembership } from '@rookery/rooms';
import { LRUCache } from 'lru-cache';

const maxBytes = 64 * 1024 * 1024;
const bytesPerMembership = 300;
const maxUsersTracked = 100_000;

/** The rooms of users, kept in memory until a member event of theirs is stored. */
@Injectable()
export class MembershipCache {
  readonly #lists = new LRUCache<string, { readonly list: Promise<readonly RoomMembership[]> }>({
    maxSize: maxBytes,
    sizeCalculation: () => 1024,
  });
  /** Position of the last member event about each user, since this process runs. */
  readonly #changed = new Map<string, number>();
  /** Nothing is known about changes up to this position. */
  #knownFrom = Number.MAX_SAFE_INTEGER;

  constructor(
    private readonly memberships: MembershipReader,
    hooks: RoomHooks,
  ) {
    hooks.subscribe({
      afterCommit: (batch) => {
        for (const { event, streamOrdering } of batch.events) {
          if (event.type !== 'm.room.member' || event.stateKey === undefined) continue;
          this.drop(event.stateKey, streamOrdering);
        }
      },
    });
  }

  /** Starts to know about changes: everything after `position` will be told. */
  startAt(position: number): void {
    this.#knownFrom = position;
  }

  /** The user's rooms now. */
  of(userId: string): Promise<readonly RoomMembership[]> {
    const cached = this.#lists.get(userId);
    if (cached !== undefined) return cached.list;
    const entry = { list: this.memberships.roomsOf(userId) as Promise<readonly RoomMembership[]> };
    this.#lists.set(userId, entry, { size: 1024 });
    entry.list.then(
      (list) => {
        if (this.#lists.peek(userId) === entry) this.#lists.set(userId, entry, { size: 1024 + list.length * bytesPerMembership });
      },
      () => {
        if (this.#lists.peek(userId) === entry) this.#lists.delete(userId);
      },
    );
    return entry.list;
  }

  /** Whether a membership of the user may have changed after `position`. */
  changedSince(userId: string, position: number): boolean {
    return position < this.#knownFrom || (this.#changed.get(userId) ?? 0) > position;
  }

  /** Forgets what is known about a user, since a membership changed at `position`. */
  drop(userId: string, position: number): void {
    this.#lists.delete(userId);
    this.#changed.delete(userId);
    this.#changed.set(userId, Math.max(position, 0));
    if (this.#changed.size <= maxUsersTracked) return;
    const [oldest] = this.#changed;
    if (oldest === undefined) return;
    this.#changed.delete(oldest[0]);
    this.#knownFrom = Math.max(this.#knownFrom, oldest[1]);
  }
}
