import { Injectable, type OnModuleInit } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { eachLimit, Logger, serverRequester } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { MembershipReader } from '../reading/membership-reader.js';
import { LeaveService } from '../membership/leave.service.js';
import { RoomForgetting } from '../membership/room-forgetting.js';

const parallelRooms = 8;

/** Takes users whose accounts are closed out of their rooms, and gives up their invites and knocks. */
@Injectable()
export class LeaveOnDeactivation implements OnModuleInit {
  constructor(
    private readonly hooks: UserHooks,
    private readonly memberships: MembershipReader,
    private readonly leaves: LeaveService,
    private readonly forgetting: RoomForgetting,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.hooks.deactivated.subscribe({ afterCommit: ({ userId, reopened }) => this.leaveAll(userId, reopened) });
  }

  /**
   * Leaves every room and forgets it. A room that refuses is passed over: asking again would change nothing.
   * @param reopened no further room is left once it aborts
   * @throws what is not a refusal; what is left is done by calling it again
   */
  async leaveAll(userId: string, reopened?: AbortSignal): Promise<void> {
    const rooms = await this.memberships.roomsOf(userId, ['join', 'invite', 'knock']);
    const requester = serverRequester(userId);
    const leave = async ({ roomId }: { readonly roomId: string }): Promise<void> => {
      try {
        await this.leaves.leave(requester, roomId, { unchecked: true });
        await this.forgetting.forget(requester, roomId);
      } catch (error) {
        if (!MatrixError.is(error)) throw error;
        this.logger.warn('A closed account could not leave a room', { userId, roomId, reason: error.message });
      }
    };
    await eachLimit(rooms, parallelRooms, leave, { while: () => reopened?.aborted !== true });
  }
}
