import { Injectable } from '@nestjs/common';
import { type Requester, serverRequester } from '@rookery/platform';
import { JoinService, MembershipReader, MembershipService, RoomStateReader } from '@rookery/rooms';

/** Brings users of this server into rooms. */
@Injectable()
export class RoomJoining {
  constructor(
    private readonly joins: JoinService,
    private readonly memberships: MembershipService,
    private readonly reader: MembershipReader,
    private readonly state: RoomStateReader,
  ) {}

  /**
   * Makes a user join a room. Into one that is not open to everybody the administrator, who must be in it and may have to be
   * somebody there, invites the user first.
   * @param via servers that may know the room
   * @throws MatrixError 403 `M_FORBIDDEN` when the administrator may not invite or the user may not join, 404 `M_NOT_FOUND`
   *   when no server is known that has the room
   */
  async bringIn(administrator: Requester, userId: string, roomId: string, via: readonly string[]): Promise<void> {
    const rules = await this.state.currentEvent(roomId, 'm.room.join_rules');
    const isOpen = rules === undefined || rules.event.content['join_rule'] === 'public';
    const membership = (await this.reader.inRoom(userId, roomId))?.membership;
    if (!isOpen && membership !== 'invite' && membership !== 'join')
      await this.memberships.invite(administrator, roomId, userId);
    await this.joins.join(serverRequester(userId), roomId, { via, unchecked: true });
  }
}
