import { Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Logger, SingleFlight, serverRequester } from '@rookery/platform';
import { EventPersister, JoinService, MembershipService, Participation, RoomCreation } from '@rookery/rooms';
import { AccountDataService, AccountService, isLocalUser } from '@rookery/users';
import { NoticeAppearance } from './notice-appearance.js';
import { findNoticeRoom } from './server-notices.query.js';

/** The tag by which clients know a room of notices. @spec client-server-api#server-notices */
export const noticeTag = 'm.server_notice';

/** What else a notice may be than a message. */
export interface NoticeOptions {
  /** Default `m.room.message`. */
  readonly type?: string | undefined;
  /** Makes it a state event. */
  readonly stateKey?: string | undefined;
  /** The same notice may be sent again with it: the user gets one. At most 255 characters. */
  readonly transactionId?: string | undefined;
}

/**
 * What the server itself has to tell single users, in a room that only it speaks in (`server_notices`). The room is made
 * with the first notice; the user is invited, or joined where `auto_join` says so.
 */
@Injectable()
export class ServerNotices implements OnApplicationBootstrap {
  /** Rooms that are being looked for or made, so that a user gets one. */
  readonly #rooms = new SingleFlight<string>();

  // Eleven parameters: a notice may have to make its room, bring its user back and dress its sender before it is sent.
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly accounts: AccountService,
    private readonly accountData: AccountDataService,
    private readonly persister: EventPersister,
    private readonly creation: RoomCreation,
    private readonly joins: JoinService,
    private readonly memberships: MembershipService,
    private readonly participation: Participation,
    private readonly appearance: NoticeAppearance,
  ) {}

  /** Whoever has an account with the sender's name could speak in everybody's room of notices. */
  async onApplicationBootstrap(): Promise<void> {
    const userId = this.participation.noticesUserId;
    if (userId === undefined || this.database.isBesideWriter) return;
    const account = await this.accounts.find(userId);
    if (account && !account.deactivated)
      this.logger.warn('server_notices.system_mxid_localpart is the name of an account: choose another one', {
        userId,
      });
  }

  /** Whether the server sends notices. */
  get enabled(): boolean {
    return this.participation.noticesUserId !== undefined;
  }

  /**
   * Sends a notice.
   * @returns the event's id
   * @throws MatrixError 400 `M_UNKNOWN` where notices are off, 400 `M_INVALID_PARAM` for a user of another server, 404
   *   `M_NOT_FOUND` for an account that is not there or closed
   */
  async send(userId: string, content: Readonly<JsonObject>, options: NoticeOptions = {}): Promise<string> {
    const sender = this.#systemUser();
    if (!isLocalUser(userId, this.config.serverName)) throw MatrixError.invalidParam('Only local users get notices');
    const account = await this.accounts.find(userId);
    if (!account || account.deactivated) throw MatrixError.noSuchUser();
    const roomId = await this.#roomFor(sender, userId);
    const { transactionId } = options;
    const { eventId } = await this.persister.send({
      roomId,
      type: options.type ?? 'm.room.message',
      stateKey: options.stateKey,
      sender,
      content,
      unchecked: true,
      ...(transactionId !== undefined && { transaction: { userId: sender, deviceId: '', txnId: transactionId } }),
    });
    return eventId;
  }

  /** The room in which a user gets notices, whether or not they are in it now; `undefined` before the first one. */
  async roomOf(userId: string): Promise<string | undefined> {
    const sender = this.participation.noticesUserId;
    return sender === undefined ? undefined : (await findNoticeRoom(this.database, userId, sender))?.room_id;
  }

  /** Makes sure that the user's clients see what kind of room it is. */
  async tag(userId: string, roomId: string): Promise<void> {
    if ((await this.accountData.tags(userId, roomId))[noticeTag] === undefined)
      await this.accountData.setTag(userId, roomId, noticeTag, {}, {});
  }

  #systemUser(): string {
    const userId = this.participation.noticesUserId;
    if (userId === undefined) throw MatrixError.serverNoticesDisabled();
    return userId;
  }

  #roomFor(sender: string, userId: string): Promise<string> {
    return this.#rooms.run(userId, () => this.#findOrMake(sender, userId));
  }

  async #findOrMake(sender: string, userId: string): Promise<string> {
    await this.appearance.refreshSender(sender);
    const found = await findNoticeRoom(this.database, userId, sender);
    if (found) {
      await this.appearance.refreshRoom(sender, found.room_id);
      if (found.membership === 'leave') await this.#askBack(sender, userId, found.room_id);
      return found.room_id;
    }
    const avatar = this.config.get('server_notices.room_avatar_url');
    // Without the preset's state: encryption by default would hide from users what the server writes.
    const { roomId } = await this.creation.create(
      serverRequester(sender),
      {
        preset: 'private_chat',
        name: this.config.get('server_notices.room_name'),
        topic: this.config.get('server_notices.room_topic'),
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
    if (this.config.get('server_notices.auto_join')) await this.#join(userId, roomId);
    return roomId;
  }

  async #askBack(sender: string, userId: string, roomId: string): Promise<void> {
    await this.memberships.invite(serverRequester(sender), roomId, userId, { unchecked: true });
    await this.tag(userId, roomId);
    if (this.config.get('server_notices.auto_join')) await this.#join(userId, roomId);
  }

  /** A user who cannot be joined is invited still. */
  async #join(userId: string, roomId: string): Promise<void> {
    try {
      await this.joins.join(serverRequester(userId), roomId, { unchecked: true });
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      this.logger.warn('A user could not join the room of server notices', { userId, roomId, reason: error.message });
    }
  }
}
