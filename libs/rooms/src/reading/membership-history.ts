import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { selectJoinedAmong } from './local-members.query.js';
import { type PastMembership, selectLastStays, selectMembershipsAt } from './membership-history.query.js';

/** The event with which a user's stay in a room ended. */
export type StayEnd = Pick<PastMembership, 'eventId' | 'streamOrdering'>;

/** What a user's memberships were. */
@Injectable()
export class MembershipHistory {
  constructor(private readonly database: Database) {}

  /** The membership of the user in each room at `position`, in one query; rooms without one are absent. */
  at(userId: string, roomIds: readonly string[], position: number): Promise<Map<string, PastMembership>> {
    return selectMembershipsAt(this.database, userId, roomIds, position);
  }

  /** The same of what was before the user was invited, however often. */
  beforeInvites(userId: string, roomIds: readonly string[], position: number): Promise<Map<string, PastMembership>> {
    return selectMembershipsAt(this.database, userId, roomIds, position, 'invite');
  }

  /**
   * Up to which position a user was in each room: without end for one who is in it, else up to where the last stay ended.
   * Rooms that the user never was in are absent. One query, and one more for rooms that the user is not in.
   */
  async lastStays(userId: string, roomIds: readonly string[]): Promise<Map<string, number>> {
    const stays = new Map<string, number>();
    for (const roomId of await selectJoinedAmong(this.database, userId, roomIds)) stays.set(roomId, Infinity);
    const others = roomIds.filter((roomId) => !stays.has(roomId));
    const ended = await selectLastStays(this.database, userId, others, Number.MAX_SAFE_INTEGER);
    for (const row of ended) stays.set(row.room_id, row.ended ?? Infinity);
    return stays;
  }

  /**
   * Where a user's last stay in each room ended, as it was at a position; rooms in which it goes on, or never was one, are
   * absent. One query.
   */
  async endsOfStays(
    userId: string,
    roomIds: readonly string[],
    upTo = Number.MAX_SAFE_INTEGER,
  ): Promise<Map<string, StayEnd>> {
    const stays = await selectLastStays(this.database, userId, roomIds, upTo);
    return new Map(
      stays.flatMap(({ room_id: roomId, event_id: eventId, ended }) =>
        eventId === null || ended === null ? [] : [[roomId, { eventId, streamOrdering: ended }]],
      ),
    );
  }

  /** Where a user's last stay in a room ended; `undefined` for one that goes on, or never was. */
  async lastLeave(userId: string, roomId: string): Promise<StayEnd | undefined> {
    return (await this.endsOfStays(userId, [roomId])).get(roomId);
  }
}
