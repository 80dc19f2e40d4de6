import { Injectable } from '@nestjs/common';
import { Database, type Db } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import { batchesBySize, ownTurn } from '@rookery/platform';
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
  selectRoomsOf,
  selectUserIdsIn,
  selectUsersSharingRooms,
} from './membership.query.js';
import { selectJoinedAmong, selectLocalUsersIn } from './local-members.query.js';

/** Members that are read before others get a turn. */
const membersPerTurn = 1_000;
/** Members among whom those of this server are looked for before others get a turn: of most rooms they are few. */
const localMembersPerTurn = 10_000;

/** Who is in which room. Every method takes a bounded number of queries. */
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
  joinedUserIds(roomIds: readonly string[], db: Db = this.database): Promise<Map<string, Set<string>>> {
    return this.userIdsIn(roomIds, ['join'], db);
  }

  /** Ids of those whose membership of each room is one of these, local and remote. */
  userIdsIn(
    roomIds: readonly string[],
    memberships: readonly Membership[],
    db: Db = this.database,
  ): Promise<Map<string, Set<string>>> {
    return selectUserIdsIn(db, roomIds, memberships);
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

  /** Users who share a joined room with `userId`, itself included when it has joined any. */
  usersSharingRoomsWith(userId: string): Promise<Set<string>> {
    return selectUsersSharingRooms(this.database, userId);
  }

  /** Which of `others` share a joined room with `userId`. */
  sharing(userId: string, others: readonly string[]): Promise<Set<string>> {
    return selectInRoomsOf(this.database, userId, others, ['join']);
  }

  /** Which of `others` are in, or invited to, a room that `userId` has joined. */
  inSightOf(userId: string, others: readonly string[]): Promise<Set<string>> {
    return selectInRoomsOf(this.database, userId, others, ['join', 'invite']);
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
