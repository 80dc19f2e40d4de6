import { Injectable } from '@nestjs/common';
import type { Membership } from '@rookery/matrix-types';
import { InvitePermissions, MembershipHistory, MembershipReader, PartialRooms } from '@rookery/rooms';
import type { SyncContext } from '../sync-context.js';
import { RoomActivity, type UserRooms } from '../caches/room-activity.js';
import type { MembershipChange, RoomMembership, StayEnd } from '../model/rooms.js';

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
  /**
   * Of a room that was left: where the stay ended that the client is told of. Without one the user has seen nothing of the
   * room since, if ever, and is told only what became of its own membership.
   */
  readonly stay: StayEnd | undefined;
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
    private readonly activity: RoomActivity,
    private readonly memberships: MembershipReader,
    private readonly history: MembershipHistory,
    private readonly partial: PartialRooms,
    private readonly permissions: InvitePermissions,
  ) {}

  /**
   * The rooms to look at, without those of which not all members are known where the client wants to have them all: these come
   * as new once they are.
   * @param joined rooms that the user is in at the end of this sync
   * @param otherNews those of them with news that are not events
   */
  async entries(context: SyncContext, joined: ReadonlySet<string>, otherNews: readonly string[]): Promise<RoomEntry[]> {
    const entries = await this.#all(context, joined, otherNews);
    if (entries.length === 0 || context.filter.room.state.lazyLoadMembers) return entries;
    const shown = entries.filter(({ section }) => section === 'join').map(({ roomId }) => roomId);
    const { since, now } = context;
    const completed = await this.partial.completed(shown, since?.events ?? now.events, now.events);
    return entries
      .filter(({ section, roomId }) => section !== 'join' || !this.partial.has(roomId))
      .map((entry) => (completed.has(entry.roomId) ? { ...entry, fresh: true, after: 0 } : entry));
  }

  /**
   * The rooms to look at: for an initial sync all of the user's (left ones only where the filter asks), for an incremental
   * one those with news and those whose membership changed. A quiet room costs nothing.
   */
  async #all(context: SyncContext, joined: ReadonlySet<string>, otherNews: readonly string[]): Promise<RoomEntry[]> {
    const { filter, since, now, userId } = context;
    const wanted = (roomId: string): boolean =>
      !filter.room.notRooms.has(roomId) && (filter.room.rooms === undefined || filter.room.rooms.has(roomId));
    const rooms = await this.activity.roomsOf(userId);
    if (since === undefined) {
      const current = await this.#asOf(context, rooms, [...rooms.byId.keys()].filter(wanted));
      const isHidden = await this.#hidesInvites(userId, current);
      const shown = current.filter(
        (each) =>
          !isHidden(each) &&
          (sectionOf[each.membership] !== 'leave' || (filter.room.includeLeave && each.forgotten !== true)),
      );
      const stays = await this.#stays(shown, context);
      return shown.map((each) =>
        this.#entry(each, sectionOf[each.membership], true, 0, stays.get(each.roomId), context),
      );
    }
    const changes = this.activity.membershipsChanged(userId, since.events)
      ? (await this.memberships.changesOf(userId, since.events, now.events)).filter((change) => wanted(change.roomId))
      : [];
    const active = context.fullState
      ? [...rooms.byId.values()]
          .filter((each) => sectionOf[each.membership] !== 'leave' || each.streamOrdering > now.events)
          .map(({ roomId }) => roomId)
      : this.activity.changedRooms(joined, since.events);
    if (active.length + otherNews.length + changes.length === 0) return [];
    const roomIds = new Set([...active, ...otherNews].filter(wanted));
    for (const change of changes) roomIds.add(change.roomId);
    if (roomIds.size === 0) return [];
    const changesByRoom = Map.groupBy(changes, (change) => change.roomId);
    const before = await this.history.at(userId, [...changesByRoom.keys()], since.events);
    const current = await this.#asOf(context, rooms, [...roomIds]);
    const isHidden = await this.#hidesInvites(userId, current);
    const shown = current.flatMap((each) =>
      isHidden(each)
        ? (behindInvite(each, changesByRoom.get(each.roomId), before.get(each.roomId)?.membership) ?? [])
        : [each],
    );
    const stays = await this.#stays(shown, context);
    return shown.flatMap((membership) => {
      const { roomId } = membership;
      const was = before.get(roomId)?.membership;
      return this.#incremental(membership, changesByRoom.get(roomId), was, stays.get(roomId), context) ?? [];
    });
  }

  /** Which memberships are invites that the user does not want to see. */
  async #hidesInvites(
    userId: string,
    memberships: readonly CurrentMembership[],
  ): Promise<(each: CurrentMembership) => boolean> {
    const isInvite = ({ membership }: CurrentMembership): boolean => membership === 'invite';
    if (!memberships.some(isInvite)) return () => false;
    const judge = await this.permissions.of(userId);
    return (each) => isInvite(each) && judge(each.sender) !== 'allow';
  }

  /** Where the stays in rooms that were left ended. */
  async #stays(memberships: readonly CurrentMembership[], { userId, now }: SyncContext): Promise<Map<string, StayEnd>> {
    const left = memberships.filter(({ membership }) => sectionOf[membership] === 'leave').map(({ roomId }) => roomId);
    return this.history.endsOfStays(userId, left, now.events);
  }

  #incremental(
    membership: CurrentMembership & { forgotten?: boolean },
    changes: readonly MembershipChange[] | undefined,
    before: Membership | undefined,
    stay: StayEnd | undefined,
    context: SyncContext,
  ): RoomEntry | undefined {
    const since = context.since?.events ?? 0;
    const section = sectionOf[membership.membership];
    if (section === 'join') {
      const stayed =
        changes === undefined || (before === 'join' && changes.every((change) => change.membership === 'join'));
      return this.#entry(membership, section, !stayed, stayed ? since : 0, undefined, context);
    }
    // An invite that was told, or how it ended, may come to be part of the state of its room: that is no news.
    const isNews = changes !== undefined && membership.streamOrdering > since;
    if (!isNews && !context.fullState) return undefined;
    if (section === 'leave') {
      if (!isNews) return undefined;
      // What the client still shows has to go, also where another device has forgotten it at once.
      const isShown = before !== undefined && sectionOf[before] !== 'leave';
      if (membership.forgotten === true && !isShown) return undefined;
      if (before === 'join') return this.#entry(membership, section, false, since, stay, context);
      const wasIn = changes.some((change) => change.membership === 'join');
      return this.#entry(membership, section, wasIn, wasIn ? 0 : since, wasIn ? stay : undefined, context);
    }
    return this.#entry(membership, section, true, 0, undefined, context);
  }

  #entry(
    membership: CurrentMembership,
    section: RoomSectionName,
    fresh: boolean,
    after: number,
    stay: StayEnd | undefined,
    context: SyncContext,
  ): RoomEntry {
    const upTo = section === 'leave' ? membership.streamOrdering : context.now.events;
    return { roomId: membership.roomId, section, membership, fresh, after, upTo, stay };
  }

  /** Memberships of the rooms as they were at the end of this sync, although later ones may be known already. */
  async #asOf(
    context: SyncContext,
    rooms: UserRooms,
    roomIds: readonly string[],
  ): Promise<(CurrentMembership & { forgotten?: boolean })[]> {
    const { userId, now } = context;
    const result: (CurrentMembership & { forgotten?: boolean })[] = [];
    const uncertain: string[] = [];
    for (const roomId of roomIds) {
      const membership = rooms.byId.get(roomId);
      if (membership !== undefined && membership.streamOrdering <= now.events) result.push(membership);
      else uncertain.push(roomId);
    }
    return [...result, ...(await this.history.at(userId, uncertain, now.events)).values()];
  }
}

/** What is told in place of an invite that is not shown: that the room was left before it, where that is news. */
function behindInvite(
  invite: CurrentMembership,
  changes: readonly MembershipChange[] | undefined,
  before: Membership | undefined,
): CurrentMembership | undefined {
  const leave = changes?.findLast(({ membership }) => sectionOf[membership] === 'leave');
  if (leave !== undefined) return leave;
  // Without an event of its own the stay was ended by state resolution.
  return before === 'join' ? { ...invite, membership: 'leave' } : undefined;
}
