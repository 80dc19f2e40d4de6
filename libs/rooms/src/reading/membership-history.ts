import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import { servableSql } from './servable-sql.js';

/** A user's membership of a room as it was at some position. */
export interface PastMembership {
  readonly roomId: string;
  readonly membership: Membership;
  readonly eventId: string;
  readonly sender: string;
  readonly streamOrdering: number;
}

interface PastRow {
  readonly room_id: string;
  readonly membership: Membership;
  readonly event_id: string;
  readonly sender: string;
  readonly event_stream_ordering: number;
}

/** What a user's memberships were. */
@Injectable()
export class MembershipHistory {
  constructor(private readonly database: Database) {}

  /** The last membership of the user in each room at `position`, in one query; rooms without one are absent. */
  async at(userId: string, roomIds: readonly string[], position: number): Promise<Map<string, PastMembership>> {
    if (roomIds.length === 0) return new Map();
    const rows = await this.database.query<PastRow>(
      `SELECT m.room_id, m.membership, m.event_id, m.sender, m.event_stream_ordering FROM room_memberships m
       JOIN (SELECT x.room_id, MAX(x.event_stream_ordering) AS last FROM room_memberships x
             JOIN events e ON e.event_id = x.event_id
             WHERE x.user_id = ? AND ${this.database.dialect.anyOf('x.room_id')} AND x.event_stream_ordering <= ?
               AND e.rejection_reason IS NULL AND e.soft_failed = FALSE
             GROUP BY x.room_id) AS newest
         ON newest.room_id = m.room_id AND newest.last = m.event_stream_ordering
       WHERE m.user_id = ?`,
      [userId, roomIds, position, userId],
    );
    return new Map(
      rows.map((row) => [
        row.room_id,
        {
          roomId: row.room_id,
          membership: row.membership,
          eventId: row.event_id,
          sender: row.sender,
          streamOrdering: row.event_stream_ordering,
        },
      ]),
    );
  }

  /** Where a user's last join of each room lies, profile changes included; rooms never joined are absent. */
  async lastJoins(userId: string, roomIds: readonly string[]): Promise<Map<string, number>> {
    if (roomIds.length === 0) return new Map();
    const rows = await this.database.query<{ room_id: string; last: number }>(
      `SELECT m.room_id, MAX(m.event_stream_ordering) AS last FROM room_memberships m
       JOIN events e ON e.event_id = m.event_id
       WHERE ${this.database.dialect.anyOf('m.room_id')} AND m.user_id = ? AND m.membership = 'join'
         AND e.rejection_reason IS NULL AND e.soft_failed = FALSE AND e.outlier = FALSE GROUP BY m.room_id`,
      [roomIds, userId],
    );
    return new Map(rows.map((row) => [row.room_id, row.last]));
  }

  /** Where a user's last stay in a room ended; `undefined` for one that goes on, or never was. */
  async lastLeave(
    userId: string,
    roomId: string,
  ): Promise<Pick<PastMembership, 'eventId' | 'streamOrdering'> | undefined> {
    const row = await this.database.get<{ event_id: string; event_stream_ordering: number }>(
      `SELECT m.event_id, m.event_stream_ordering FROM room_memberships m JOIN events e ON e.event_id = m.event_id
       WHERE m.room_id = ? AND m.user_id = ? AND ${servableSql('e.')} AND m.event_stream_ordering > (
         SELECT MAX(j.event_stream_ordering) FROM room_memberships j JOIN events x ON x.event_id = j.event_id
         WHERE j.room_id = ? AND j.user_id = ? AND j.membership = 'join' AND ${servableSql('x.')})
       ORDER BY m.event_stream_ordering LIMIT 1`,
      [roomId, userId, roomId, userId],
    );
    return row && { eventId: row.event_id, streamOrdering: row.event_stream_ordering };
  }
}
