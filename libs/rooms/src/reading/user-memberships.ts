import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { Membership } from '@rookery/matrix-types';
import { countInvitesSince, countRoomsJoinedSince, selectMembershipsOfAnyUser } from './user-memberships.query.js';

/** What any user, of this server or another, is and has done in rooms: for administrators. */
@Injectable()
export class UserMemberships {
  constructor(private readonly database: Database) {}

  /**
   * The current memberships of a user by room id, in the order of the ids: of a user of this server all there are; of
   * others those in rooms that this server takes part in.
   */
  of(userId: string): Promise<Map<string, Membership>> {
    return selectMembershipsOfAnyUser(this.database, userId);
  }

  /** How many invites a user has sent that reached this server since a time, milliseconds since the epoch. */
  invitesSentSince(userId: string, sinceTs: number): Promise<number> {
    return countInvitesSince(this.database, userId, sinceTs);
  }

  /** How many rooms a user has joined since a time, those that were left again included. */
  roomsJoinedSince(userId: string, sinceTs: number): Promise<number> {
    return countRoomsJoinedSince(this.database, userId, sinceTs);
  }
}
