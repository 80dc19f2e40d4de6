import { Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';
import { EventPersister, Participation } from '@rookery/rooms';
import { AccountService, isLocalUser } from '@rookery/users';
import { NoticeRooms } from './notice-rooms.js';

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
 * What the server itself has to tell single users, in a room that only it speaks in (`server_notices`).
 */
@Injectable()
export class ServerNotices implements OnApplicationBootstrap {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly accounts: AccountService,
    private readonly persister: EventPersister,
    private readonly participation: Participation,
    private readonly rooms: NoticeRooms,
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
    const roomId = await this.rooms.forNotice(sender, userId);
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
    return sender === undefined ? undefined : this.rooms.find(userId, sender);
  }

  #systemUser(): string {
    const userId = this.participation.noticesUserId;
    if (userId === undefined) throw MatrixError.serverNoticesDisabled();
    return userId;
  }
}
