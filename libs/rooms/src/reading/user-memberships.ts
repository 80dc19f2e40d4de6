import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';

/** What any user, of this server or another, is and has done in rooms: for administrators. */
@Injectable()
export class UserMemberships {
  constructor(private readonly database: Database) {}

  /**
   * The current memberships of a user by room id, in the order of the ids: of a user of this server all there are; of
   * others those in rooms that this server takes part in.
   */
  async of(userId: string): Promise<Map<string, Membership>> {
    const rows = await this.database.query<{ room_id: string; membership: Membership }>(
      `SELECT room_id, membership FROM local_current_membership WHERE user_id = ?
       UNION SELECT c.room_id, c.membership FROM current_state_events c
       WHERE c.type = 'm.room.member' AND c.state_key = ? AND NOT EXISTS
         (SELECT 1 FROM local_current_membership l WHERE l.user_id = c.state_key AND l.room_id = c.room_id)
       ORDER BY 1`,
      [userId, userId],
    );
    return new Map(rows.map((row) => [row.room_id, row.membership]));
  }

  /** How many invites a user has sent that reached this server since a time, milliseconds since the epoch. */
  async invitesSentSince(userId: string, sinceTs: number): Promise<number> {
    const row = await this.database.get<{ count: number }>(
      `SELECT COUNT(*) AS count FROM room_memberships m JOIN events e ON e.event_id = m.event_id
       WHERE m.sender = ? AND m.membership = 'invite' AND e.received_ts >= ?`,
      [userId, sinceTs],
    );
    return Number(row?.count ?? 0);
  }

  /** How many rooms a user has joined since a time, those that were left again included. */
  async roomsJoinedSince(userId: string, sinceTs: number): Promise<number> {
    const row = await this.database.get<{ count: number }>(
      `SELECT COUNT(DISTINCT m.room_id) AS count FROM room_memberships m JOIN events e ON e.event_id = m.event_id
       WHERE m.user_id = ? AND m.membership = 'join' AND e.received_ts >= ?`,
      [userId, sinceTs],
    );
    return Number(row?.count ?? 0);
  }
}
