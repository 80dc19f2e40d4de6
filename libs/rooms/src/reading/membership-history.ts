import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import { selectLastStays } from './membership-history.query.js';
import { membershipsOfUserSql } from './membership-reader.js';

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
    const stays = await selectLastStays(this.database, userId, roomIds, Number.MAX_SAFE_INTEGER);
    return new Map(stays.map((row) => [row.room_id, row.ended ?? Infinity]));
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
