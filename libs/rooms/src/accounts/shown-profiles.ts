import { Injectable } from '@nestjs/common';
import { isTransient } from '@rookery/database';
import { Logger } from '@rookery/platform';
import { StateMovedOn } from '../model/drafts.js';
import { isRefusal } from '../model/refusals.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { RoomStateReader } from '../state/room-state-reader.js';

/** How often a member event is looked at that changes each time before it is replaced. */
const maxAttempts = 3;

/** Shows profiles in rooms: the member event is sent again. */
@Injectable()
export class ShownProfiles {
  constructor(
    private readonly state: RoomStateReader,
    private readonly persister: EventPersister,
    private readonly logger: Logger,
  ) {}

  /**
   * Shows a profile in one room, unless its user has left that meanwhile.
   * @returns `false` where that failed and may succeed another time; a refusal is none, and told in the log as well
   * @throws what is so of every room: the database is away
   */
  async show(userId: string, roomId: string, profile: Readonly<Record<string, unknown>>): Promise<boolean> {
    try {
      for (let attempt = 1; !(await this.#replace(userId, roomId, profile)); attempt++)
        if (attempt === maxAttempts) return false;
      return true;
    } catch (error) {
      if (isTransient(error)) throw error;
      if (isRefusal(error)) this.logger.warn('A room refuses a new profile', { userId, roomId, reason: error.message });
      else this.logger.error('A profile could not be shown in a room', { userId, roomId, err: error });
      return isRefusal(error);
    }
  }

  /** @returns `false` where the member event was another by then */
  async #replace(userId: string, roomId: string, profile: Readonly<Record<string, unknown>>): Promise<boolean> {
    const member = await this.state.currentEvent(roomId, 'm.room.member', userId);
    if (member?.event.content['membership'] !== 'join') return true;
    // Who is in needs nobody to let them in: the server of whoever did would have to sign every change.
    const { displayname: _name, avatar_url: _avatar, reason: _reason, ...more } = member.event.content;
    const { join_authorised_via_users_server: _authorizer, ...rest } = more;
    try {
      await this.persister.send({
        roomId,
        type: 'm.room.member',
        stateKey: userId,
        sender: userId,
        content: { ...rest, ...profile, membership: 'join' },
        skipUnchanged: true,
        // Who has left just now is not to be in again.
        replaces: member.event.eventId,
      });
      return true;
    } catch (error) {
      if (error instanceof StateMovedOn) return false;
      throw error;
    }
  }
}
