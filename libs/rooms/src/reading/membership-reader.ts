import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import { batchesBySize, batchesOf, ownTurn } from '@rookery/platform';
import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  type JoinedMember,
  type MemberCounts,
  type MembershipChange,
  type RoomMembership,
  selectCurrentMembership,
  selectHosts,
  selectInRoomsOf,
  selectInvitedTo,
  selectJoinedMembers,
  selectJoinedRoomIds,
  selectLocalMembership,
  selectLocalMemberships,
  selectMemberCounts,
  selectMembershipChanges,
  selectMutualRooms,
  selectNextUsersIn,
  selectRoomsOf,
  selectStateSizes,
  selectUserIdsIn,
} from './membership.query.js';
import { selectJoinedAmong, selectLocalUsersIn } from './local-members.query.js';

/** Members that are read before others get a turn. */
const membersPerTurn = 1_000;
/** Members among whom those of this server are looked for before others get a turn: of most rooms they are few. */
const localMembersPerTurn = 10_000;
/** Users about whom it is asked before others get a turn: each of them may be in a hundred rooms, of which all are looked at in vain. */
const othersPerTurn = 200;

/** Who is in which room. Every method takes a bounded number of queries, or asks of some at a time: others get a turn in between. */
@Injectable()
export class MembershipReader {
  constructor(private readonly database: Database) {}

  /** The rooms of a user of this server; forgotten ones come too, marked. */
  roomsOf(userId: string, memberships?: readonly Membership[]): Promise<RoomMembership[]> {
    return selectRoomsOf(this.database, userId, memberships);
  }

  /** Ids of the rooms that a user of this server has joined. */
  joinedRoomIds(userId: string): Promise<string[]> {
    return selectJoinedRoomIds(this.database, userId);
  }

  /** Those of some rooms that a user of this server has joined. */
  joinedAmong(userId: string, roomIds: readonly string[]): Promise<string[]> {
    return selectJoinedAmong(this.database, userId, roomIds);
  }

  /** A local user's membership of one room; `undefined` when there never was one. */
  inRoom(userId: string, roomId: string): Promise<RoomMembership | undefined> {
    return selectLocalMembership(this.database, userId, roomId);
  }

  /** The same of some rooms, by room; those without one are absent. */
  inRooms(userId: string, roomIds: readonly string[]): Promise<Map<string, RoomMembership>> {
    return selectLocalMemberships(this.database, userId, roomIds);
  }

  /** Current membership of any user, local or remote, by the room's state. */
  currentOf(roomId: string, userId: string): Promise<Membership | undefined> {
    return selectCurrentMembership(this.database, roomId, userId);
  }

  /** Joined members with their profiles, in the order of their ids, a page at a time: others get a turn in between. */
  async *joinedMembers(roomId: string, perTurn = membersPerTurn): AsyncGenerator<readonly JoinedMember[]> {
    let page = await selectJoinedMembers(this.database, roomId, '', perTurn);
    yield page;
    while (page.length === perTurn) {
      await nextTurn();
      page = await selectJoinedMembers(this.database, roomId, page.at(-1)!.userId, perTurn);
      yield page;
    }
  }

  /** Ids of joined members of each room, local and remote. */
  joinedUserIds(roomIds: readonly string[]): Promise<Map<string, Set<string>>> {
    return this.userIdsIn(roomIds, ['join']);
  }

  /** Ids of those whose membership of each room is one of these, local and remote, some at a time; each room has an entry. */
  async userIdsIn(roomIds: readonly string[], memberships: readonly Membership[]): Promise<Map<string, Set<string>>> {
    const rooms = new Map(roomIds.map((roomId) => [roomId, new Set<string>()]));
    const sizes = roomIds.length > 1 ? await selectStateSizes(this.database, roomIds) : undefined;
    const parts = batchesBySize([...rooms.keys()], (roomId) => sizes?.get(roomId) ?? Infinity, membersPerTurn);
    for (const [index, part] of parts.entries()) {
      if (index > 0) await ownTurn();
      const [first] = part;
      // What is alone may be of any size.
      if (part.length === 1) await this.#addUsersIn(first!, new Set(memberships), rooms.get(first!)!);
      else
        for (const { roomId, userId } of await selectUserIdsIn(this.database, part, memberships))
          rooms.get(roomId)!.add(userId);
    }
    return rooms;
  }

  async #addUsersIn(roomId: string, memberships: ReadonlySet<Membership>, users: Set<string>): Promise<void> {
    for (let after: string | undefined = ''; after !== undefined;) {
      if (after !== '') await ownTurn();
      const page = await selectNextUsersIn(this.database, roomId, after, membersPerTurn);
      for (const { userId, membership } of page) if (memberships.has(membership)) users.add(userId);
      after = page.length < membersPerTurn ? undefined : page.at(-1)!.userId;
    }
  }

  /** Users of this server who have joined any of some rooms; rooms of a few thousand members in a turn of the event loop. */
  async localUserIds(roomIds: readonly string[]): Promise<Set<string>> {
    const users = new Set<string>();
    const counts = roomIds.length > 1 ? await this.counts(roomIds) : undefined;
    for (const [index, some] of batchesBySize(
      roomIds,
      (roomId) => counts?.get(roomId)?.joined ?? 1,
      localMembersPerTurn,
    ).entries()) {
      if (index > 0) await ownTurn();
      for (const userId of await selectLocalUsersIn(this.database, some)) users.add(userId);
    }
    return users;
  }

  /** Numbers of joined and invited members, per room. */
  counts(roomIds: readonly string[]): Promise<Map<string, MemberCounts>> {
    return selectMemberCounts(this.database, roomIds);
  }

  /**
   * What became of a user's memberships with `after < stream ordering <= upTo`, oldest first: by events and by state
   * resolution, and out of band in rooms in which this server has nobody. Member events that never counted are not among them.
   */
  changesOf(userId: string, after: number, upTo: number): Promise<MembershipChange[]> {
    return selectMembershipChanges(this.database, userId, after, upTo);
  }

  /** Users who share a joined room with a user of this server, itself included when it has joined any. */
  async usersSharingRoomsWith(userId: string): Promise<Set<string>> {
    const rooms = await this.joinedUserIds(await this.joinedRoomIds(userId));
    return new Set([...rooms.values()].flatMap((users) => [...users]));
  }

  /** Which of `others` share a joined room with `userId`. */
  sharing(userId: string, others: readonly string[]): Promise<Set<string>> {
    return this.#inRoomsOf(userId, others, ['join']);
  }

  /** Which of `others` are in, or invited to, a room that `userId` has joined. */
  inSightOf(userId: string, others: readonly string[]): Promise<Set<string>> {
    return this.#inRoomsOf(userId, others, ['join', 'invite']);
  }

  async #inRoomsOf(
    userId: string,
    others: readonly string[],
    memberships: readonly Membership[],
  ): Promise<Set<string>> {
    const found = new Set<string>();
    for (const [index, part] of batchesOf(others, othersPerTurn).entries()) {
      if (index > 0) await ownTurn();
      for (const other of await selectInRoomsOf(this.database, userId, part, memberships)) found.add(other);
    }
    return found;
  }

  /** Ids of the rooms that both users have joined. */
  mutualRooms(userId: string, otherId: string): Promise<string[]> {
    return selectMutualRooms(this.database, userId, otherId);
  }

  /** Servers with a joined member, and those that are said to have one while not all members are known, per room. */
  hostsIn(roomIds: readonly string[]): Promise<Map<string, Set<string>>> {
    return selectHosts(this.database, roomIds);
  }

  /** Those of some rooms to which a user of a server is invited. */
  invitedTo(roomIds: readonly string[], serverName: string): Promise<Set<string>> {
    return selectInvitedTo(this.database, roomIds, serverName);
  }
}
