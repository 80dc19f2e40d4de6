import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids, type Requester } from '@rookery/platform';
import { AccountService, ParticipationGate } from '@rookery/users';
import type { SentEvent } from '../model/stored-event.js';
import { isLocalMember } from '../reading/local-members.query.js';

/** Who may take part in which room, and how often, before any rule of the room is asked: limits of the server, its policy, its notices. */
@Injectable()
export class Participation {
  constructor(
    private readonly gate: ParticipationGate,
    private readonly database: Database,
    private readonly config: Config,
    private readonly limiter: RateLimiter,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly accounts: AccountService,
  ) {}

  /** Whether a user's account is closed; one that there is not is not. */
  async isClosed(userId: string): Promise<boolean> {
    return (await this.accounts.find(userId))?.deactivated ?? false;
  }

  /** The user who sends the server's notices; `undefined` where there are none. */
  get noticesUserId(): string | undefined {
    const localpart = this.config.get('server_notices.system_mxid_localpart');
    return localpart === undefined ? undefined : `@${localpart}:${this.config.serverName}`;
  }

  /** @throws MatrixError 403 `M_RESOURCE_LIMIT_EXCEEDED`, `M_CONSENT_NOT_GIVEN` */
  assertMaySend(requester: Requester): Promise<void> | undefined {
    return this.gate.restricts ? this.gate.assertMaySend(requester) : undefined;
  }

  /** The same for joining: the room of notices, which tells how to agree to the policy, is open to everybody invited. */
  assertMayJoin(requester: Requester, roomId: string): Promise<void> | undefined {
    return this.gate.restricts ? this.gate.assertMaySend(requester, () => this.isNoticeRoom(roomId)) : undefined;
  }

  /** Takes from `rc_message` what an event takes. @throws MatrixError 429 `M_LIMIT_EXCEEDED` */
  takeEvent(requester: Requester): Promise<void> {
    return this.limiter.take('rc_message', requester.userId, requester);
  }

  /**
   * What somebody gets whose events go nowhere: an answer like any other, after a while.
   * @throws MatrixError 403 `M_FORBIDDEN` where they are not in the room: who cannot be there must not seem to be
   */
  async pretend(requester: Requester, roomId: string): Promise<SentEvent> {
    if (!(await isLocalMember(this.database, requester.userId, roomId))) throw MatrixError.notInRoom();
    await this.clock.sleep(1000 + this.ids.integer(9000));
    return { eventId: `$${this.ids.bytes(32).toString('base64url')}`, roomId, streamOrdering: 0 };
  }

  /**
   * Who has come into the room of notices may go; the next notice asks them in again.
   * @throws MatrixError 403 `M_CANNOT_LEAVE_SERVER_NOTICE_ROOM` for an invite to it
   * @spec client-server-api#server-notices
   */
  async assertMayReject(requester: Requester, roomId: string): Promise<void> {
    if (requester.userId !== this.noticesUserId && (await this.isNoticeRoom(roomId)))
      throw MatrixError.cannotLeaveServerNoticeRoom();
  }

  /** Whether it is a room in which the server sends notices to one of its users. */
  async isNoticeRoom(roomId: string): Promise<boolean> {
    const systemUser = this.noticesUserId;
    return systemUser !== undefined && isLocalMember(this.database, systemUser, roomId);
  }
}
