import { Injectable } from '@nestjs/common';
import { Database, type SqlBool } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import { membershipsOfUserSql } from './membership-reader.js';
import { servableSql } from '../model/servable-sql.js';

/** A user's membership of a room as it was at some position. */
export interface PastMembership {
  readonly roomId: string;
  readonly membership: Membership;
  readonly eventId: string;
  readonly sender: string;
  readonly streamOrdering: number;
}

/** The event with which a user's stay in a room ended. */
export type StayEnd = Pick<PastMembership, 'eventId' | 'streamOrdering'>;

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

  /** The membership of the user in each room at `position`, in one query; rooms without one are absent. */
  async at(userId: string, roomIds: readonly string[], position: number): Promise<Map<string, PastMembership>> {
    if (roomIds.length === 0) return new Map();
    const { dialect } = this.database;
    const rows = await this.database.query<PastRow>(
      `SELECT * FROM (
         SELECT a.*, ROW_NUMBER() OVER (PARTITION BY a.room_id ORDER BY a.event_stream_ordering DESC) AS place FROM (
           ${membershipsOfUserSql(
             ` AND ${dialect.anyOf('d.room_id')} AND d.stream_id <= ?`,
             ` AND ${dialect.anyOf('m.room_id')} AND m.event_stream_ordering <= ?`,
           )}) AS a) AS ranked
       WHERE place = 1`,
      [userId, roomIds, position, userId, roomIds, position],
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

  /**
   * Up to which position a user was in each room: without end for one who is in it, else up to where the last stay ended.
   * Rooms that the user never was in are absent. One query.
   */
  async lastStays(userId: string, roomIds: readonly string[]): Promise<Map<string, number>> {
    if (roomIds.length === 0) return new Map();
    const rows = await this.database.query<{ room_id: string; is_in: SqlBool; ended: number | null }>(
      `SELECT j.room_id, COALESCE(l.membership, '') = 'join' AS is_in,
         (SELECT MIN(m.event_stream_ordering) FROM room_memberships m JOIN events x ON x.event_id = m.event_id
          WHERE m.room_id = j.room_id AND m.user_id = ? AND m.event_stream_ordering > j.last
            AND ${servableSql('x.')}) AS ended
       FROM (SELECT m.room_id, MAX(m.event_stream_ordering) AS last FROM room_memberships m
             JOIN events e ON e.event_id = m.event_id
             WHERE ${this.database.dialect.anyOf('m.room_id')} AND m.user_id = ? AND m.membership = 'join'
               AND ${servableSql('e.')} GROUP BY m.room_id) AS j
       LEFT JOIN local_current_membership l ON l.room_id = j.room_id AND l.user_id = ?`,
      [userId, roomIds, userId, userId],
    );
    return new Map(rows.map((row) => [row.room_id, row.is_in ? Infinity : (row.ended ?? Infinity)]));
  }

  /**
   * Where a user's last stay in each room ended, as it was at a position; rooms in which it goes on, or never was one, are
   * absent. One query.
   */
  async endsOfStays(userId: string, roomIds: readonly string[], upTo?: number): Promise<Map<string, StayEnd>> {
    if (roomIds.length === 0) return new Map();
    const position = upTo ?? Number.MAX_SAFE_INTEGER;
    const rows = await this.database.query<{ room_id: string; event_id: string; event_stream_ordering: number }>(
      `SELECT m.room_id, m.event_id, m.event_stream_ordering FROM (
         SELECT j.room_id,
           (SELECT MIN(n.event_stream_ordering) FROM room_memberships n JOIN events x ON x.event_id = n.event_id
            WHERE n.room_id = j.room_id AND n.user_id = ? AND n.event_stream_ordering > j.last
              AND n.event_stream_ordering <= ? AND ${servableSql('x.')}) AS ended
         FROM (SELECT r.room_id, MAX(r.event_stream_ordering) AS last FROM room_memberships r
               JOIN events e ON e.event_id = r.event_id
               WHERE ${this.database.dialect.anyOf('r.room_id')} AND r.user_id = ? AND r.membership = 'join'
                 AND r.event_stream_ordering <= ? AND ${servableSql('e.')} GROUP BY r.room_id) AS j) AS s
       JOIN room_memberships m ON m.room_id = s.room_id AND m.user_id = ? AND m.event_stream_ordering = s.ended`,
      [userId, position, roomIds, userId, position, userId],
    );
    return new Map(
      rows.map((row) => [row.room_id, { eventId: row.event_id, streamOrdering: row.event_stream_ordering }]),
    );
  }

  /** Where a user's last stay in a room ended; `undefined` for one that goes on, or never was. */
  async lastLeave(userId: string, roomId: string): Promise<StayEnd | undefined> {
    return (await this.endsOfStays(userId, [roomId])).get(roomId);
  }
}
