import { Injectable, type OnModuleInit } from '@nestjs/common';
import { isTransient } from '@rookery/database';
import { eachLimit, Logger, serverRequester } from '@rookery/platform';
import { UserHooks } from '@rookery/users';
import { MembershipReader } from '../reading/membership-reader.js';
import { LeaveService } from '../membership/leave.service.js';
import { RoomForgetting } from '../membership/room-forgetting.js';
import { isRefusal } from '../model/refusals.js';

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
   * Leaves every room, and forgets those that are left, whenever that was. A room that refuses is passed over: asking again would change
   * nothing.
   * @param reopened no further room is left once it aborts
   * @throws Error once all others are left, where something else than a refusal kept the user in a room; at once where that is so of every
   *   room. What is left is done by calling it again
   */
  async leaveAll(userId: string, reopened?: AbortSignal): Promise<void> {
    const options = { while: () => reopened?.aborted !== true };
    let failures = 0;
    const leave = async ({ roomId }: { readonly roomId: string }): Promise<void> => {
      if (!(await this.#leave(userId, roomId))) failures++;
    };
    const forget = async ({ roomId }: { readonly roomId: string }): Promise<void> => {
      await this.forgetting.forgetLeft(userId, roomId);
    };
    await eachLimit(await this.memberships.roomsOf(userId, ['join', 'invite', 'knock']), parallelRooms, leave, options);
    const left = (await this.memberships.roomsOf(userId, ['leave', 'ban'])).filter(({ forgotten }) => !forgotten);
    await eachLimit(left, parallelRooms, forget, options);
    if (failures > 0) throw new Error(`A closed account is still in ${failures} rooms`);
  }

  /** @returns `false` where that failed and may succeed another time */
  async #leave(userId: string, roomId: string): Promise<boolean> {
    try {
      await this.leaves.leave(serverRequester(userId), roomId, { unchecked: true });
      return true;
    } catch (error) {
      if (isTransient(error)) throw error;
      if (isRefusal(error))
        this.logger.warn('A closed account could not leave a room', { userId, roomId, reason: error.message });
      else this.logger.error('A closed account could not leave a room', { userId, roomId, err: error });
      return isRefusal(error);
    }
  }
}
