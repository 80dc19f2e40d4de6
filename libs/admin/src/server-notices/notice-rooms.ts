import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Config, Logger, serverRequester, SingleFlight } from '@rookery/platform';
import { JoinService, MembershipService, RoomCreation } from '@rookery/rooms';
import { AccountDataService } from '@rookery/users';
import { NoticeAppearance } from './notice-appearance.js';
import { findNoticeRoom } from './server-notices.query.js';

/** The tag by which clients know a room of notices. @spec client-server-api#server-notices */
const noticeTag = 'm.server_notice';

/** Rooms of notices: one of each user who got one. The user is invited, or joined where `auto_join` says so. */
@Injectable()
export class NoticeRooms {
  /** Rooms that are being looked for or made, so that a user gets one. */
  readonly #rooms = new SingleFlight<string>();

  // Eight parameters: a room is found or made, dressed and tagged, and its user invited, brought back or joined.
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly accountData: AccountDataService,
    private readonly creation: RoomCreation,
    private readonly joins: JoinService,
    private readonly memberships: MembershipService,
    private readonly appearance: NoticeAppearance,
  ) {}

  /** The room of a user, whether or not they are in it now; `undefined` before the first notice. @param sender who sends notices */
  async find(userId: string, sender: string): Promise<string | undefined> {
    return (await findNoticeRoom(this.database, userId, sender))?.room_id;
  }

  /** Where the next notice goes: the room is made with the first one, and a user who left is asked back, or joined. */
  forNotice(sender: string, userId: string): Promise<string> {
    return this.#rooms.run(userId, () => this.#findOrMake(sender, userId));
  }

  /** Makes sure that the user's clients see what kind of room it is. */
  async tag(userId: string, roomId: string): Promise<void> {
    if ((await this.accountData.tags(userId, roomId))[noticeTag] === undefined)
      await this.accountData.setTag(userId, roomId, noticeTag, {}, {});
  }

  async #findOrMake(sender: string, userId: string): Promise<string> {
    await this.appearance.refreshSender(sender);
    const found = await findNoticeRoom(this.database, userId, sender);
    if (found) {
      await this.appearance.refreshRoom(sender, found.room_id);
      if (found.membership === 'leave') await this.#askBack(sender, userId, found.room_id);
      else if (found.membership === 'invite') await this.#join(userId, found.room_id);
      return found.room_id;
    }
    const avatar = this.config.get('server_notices.room_avatar_url') || undefined;
    // Without the preset's state: encryption by default would hide from users what the server writes.
    const { roomId } = await this.creation.create(
      serverRequester(sender),
      {
        preset: 'private_chat',
        name: this.config.get('server_notices.room_name'),
        topic: this.config.get('server_notices.room_topic') || undefined,
        initial_state: [
          { type: 'm.room.join_rules', content: { join_rule: 'invite' } },
          { type: 'm.room.history_visibility', content: { history_visibility: 'shared' } },
          { type: 'm.room.guest_access', content: { guest_access: 'can_join' } },
          ...(avatar === undefined ? [] : [{ type: 'm.room.avatar', content: { url: avatar } }]),
        ],
        power_level_content_override: { users_default: -10 },
        invite: [userId],
      },
      { bare: true, unchecked: true },
    );
    await this.tag(userId, roomId);
    await this.#join(userId, roomId);
    return roomId;
  }

  async #askBack(sender: string, userId: string, roomId: string): Promise<void> {
    await this.memberships.invite(serverRequester(sender), roomId, userId, { unchecked: true });
    await this.tag(userId, roomId);
    await this.#join(userId, roomId);
  }

  /** Where `auto_join` says so. A user who cannot be joined is invited still, and joined with a later notice. */
  async #join(userId: string, roomId: string): Promise<void> {
    if (!this.config.get('server_notices.auto_join')) return;
    try {
      await this.joins.join(serverRequester(userId), roomId, { unchecked: true });
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      this.logger.warn('A user could not join the room of server notices', { userId, roomId, reason: error.message });
    }
  }
}
