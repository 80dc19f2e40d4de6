import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { ParticipationGate } from '@rookery/users';
import { isLocalMember } from '../reading/local-members.query.js';

/** Who may take part in which room, before any rule of the room is asked: limits of the server, its policy, its notices. */
@Injectable()
export class Participation {
  constructor(
    private readonly gate: ParticipationGate,
    private readonly database: Database,
    private readonly config: Config,
  ) {}

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
