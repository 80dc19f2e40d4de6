import { Injectable } from '@nestjs/common';
import type { Membership } from '@rookery/matrix-types';
import { MembershipHistory, MembershipReader, type MembershipChange, type RoomMembership } from '@rookery/rooms';
import type { SyncContext } from '../sync-context.js';
import { MembershipCache } from './membership-cache.js';

/** Where a room stands in the answer. */
export type RoomSectionName = 'join' | 'invite' | 'knock' | 'leave';

/** A room that may have something to say. */
export interface RoomEntry {
  readonly roomId: string;
  readonly section: RoomSectionName;
  /** The user's member event that puts it there. */
  readonly membership: CurrentMembership;
  /** The user was not in the room at `since`: everything is new. */
  readonly fresh: boolean;
  /** Events after this position are news. */
  readonly after: number;
  /** ... up to this one. */
  readonly upTo: number;
}

/** The parts of a membership that a sync needs. */
export type CurrentMembership = Pick<RoomMembership, 'roomId' | 'membership' | 'eventId' | 'sender' | 'streamOrdering'>;

const sectionOf: Readonly<Record<Membership, RoomSectionName>> = {
  join: 'join',
  invite: 'invite',
  knock: 'knock',
  leave: 'leave',
  ban: 'leave',
};

/** Decides which rooms a sync is about. */
@Injectable()
export class RoomList {
  constructor(
    private readonly cache: MembershipCache,
    private readonly memberships: MembershipReader,
    private readonly history: MembershipHistory,
  ) {}

  /**
   * The user's rooms: for an initial sync all of them (left ones only where the filter asks), for an incremental one
   * those that the user is in and those whose membership changed.
   * @param ignored users whose invites are not shown
   */
  async entries(context: SyncContext, ignored: ReadonlySet<string>): Promise<RoomEntry[]> {
    const { filter, since, now } = context;
    const wanted = (roomId: string): boolean =>
      !filter.room.notRooms.has(roomId) && (filter.room.rooms === undefined || filter.room.rooms.has(roomId));
    const current = (await this.#membershipsAt(context.userId, now.events)).filter((entry) => wanted(entry.roomId));
    if (since === undefined) return current.flatMap((entry) => this.#initial(entry, context, ignored));

    const changes = this.cache.changedSince(context.userId, since.events)
      ? await this.memberships.changesOf(context.userId, since.events, now.events)
      : [];
    const changesByRoom = Map.groupBy(changes, (change) => change.roomId);
    const before = await this.history.at(context.userId, [...changesByRoom.keys()], since.events);
    const entries: RoomEntry[] = [];
    for (const membership of current) {
      const changed = changesByRoom.get(membership.roomId);
      const entry = this.#incremental(membership, changed, before.get(membership.roomId)?.membership, context, ignored);
      if (entry !== undefined) entries.push(entry);
    }
    return entries;
  }

  #initial(membership: CurrentMembership & { forgotten?: boolean }, context: SyncContext, ignored: ReadonlySet<string>): RoomEntry[] {
    const section = sectionOf[membership.membership];
    if (section === 'leave' && (!context.filter.room.includeLeave || membership.forgotten === true)) return [];
    if (section === 'invite' && ignored.has(membership.sender)) return [];
    return [this.#entry(membership, section, true, 0, context)];
  }

  #incremental(
    membership: CurrentMembership & { forgotten?: boolean },
    changes: readonly MembershipChange[] | undefined,
    before: Membership | undefined,
    context: SyncContext,
    ignored: ReadonlySet<string>,
  ): RoomEntry | undefined {
    const since = context.since?.events ?? 0;
    const section = sectionOf[membership.membership];
    if (section === 'join') {
      const stayed = changes === undefined || (before === 'join' && changes.every((change) => change.membership === 'join'));
      return this.#entry(membership, section, !stayed, stayed ? since : 0, context);
    }
    if (changes === undefined) return undefined;
    if (section === 'invite' && ignored.has(membership.sender)) return undefined;
    if (section === 'leave') {
      if (membership.forgotten === true) return undefined;
      const wasIn = before === 'join' || changes.some((change) => change.membership === 'join');
      return this.#entry(membership, section, before !== 'join' && wasIn, before === 'join' ? since : 0, context);
    }
    return this.#entry(membership, section, true, 0, context);
  }

  #entry(membership: CurrentMembership, section: RoomSectionName, fresh: boolean, after: number, context: SyncContext): RoomEntry {
    const upTo = section === 'leave' ? membership.streamOrdering : context.now.events;
    return { roomId: membership.roomId, section, membership, fresh, after, upTo };
  }

  /** Memberships as they were at `position`, although the cache may already know later ones. */
  async #membershipsAt(userId: string, position: number): Promise<readonly (CurrentMembership & { forgotten?: boolean })[]> {
    const current = await this.cache.of(userId);
    const later = current.filter((entry) => entry.streamOrdering > position).map((entry) => entry.roomId);
    if (later.length === 0) return current;
    const past = await this.history.at(userId, later, position);
    return [...current.filter((entry) => entry.streamOrdering <= position), ...past.values()];
  }
}
