import { Injectable } from '@nestjs/common';
import { historyVisibilityIn } from '@rookery/events';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { AccountDataService, AppserviceDirectory } from '@rookery/users';
import { MembershipHistory } from '../reading/membership-history.js';
import type { ShownSoftFailed } from '../model/stored-event.js';
import type { PastMembership } from '../reading/membership-history.query.js';
import { MembershipReader } from '../reading/membership-reader.js';
import { PartialRooms } from '../store/partial-rooms.js';
import { RoomStateReader } from '../state/room-state-reader.js';

/** In which way somebody may read a room. */
export type RoomReading =
  | { readonly kind: 'joined' }
  /** The state and the timeline end with the reader's leave. */
  | { readonly kind: 'left'; readonly membership: Pick<PastMembership, 'eventId' | 'streamOrdering'> }
  /** Anybody may read. */
  | { readonly kind: 'peeking' };

/** Account data in which administrators say what their clients want to see beyond what others do. */
const adminConfigType = 'io.element.synapse.admin_client_config';

/** Decides whether somebody may read a room at all. */
@Injectable()
export class RoomAccess {
  constructor(
    private readonly memberships: MembershipReader,
    private readonly history: MembershipHistory,
    private readonly state: RoomStateReader,
    private readonly accountData: AccountDataService,
    private readonly appservices: AppserviceDirectory,
    private readonly partial: PartialRooms,
  ) {}

  /** @throws MatrixError 403 `M_FORBIDDEN`, whether or not there is such a room */
  async read(requester: Requester, roomId: string): Promise<RoomReading> {
    const membership = await this.memberships.inRoom(requester.userId, roomId);
    if (membership?.membership === 'join') return { kind: 'joined' };
    if (await this.#isOpen(roomId)) return { kind: 'peeking' };
    const isOut = membership?.membership === 'leave' || membership?.membership === 'ban';
    if (membership && isOut && !membership.forgotten) {
      // Whose invite was withdrawn, or who was banned from outside, has never seen anything of the room.
      const leave = await this.history.lastLeave(requester.userId, roomId);
      if (leave) return { kind: 'left', membership: leave };
    }
    throw MatrixError.notInRoom();
  }

  /** Whether {@link read} would let a user in. */
  async mayRead(requester: Requester, roomId: string): Promise<boolean> {
    try {
      await this.read(requester, roomId);
      return true;
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      return false;
    }
  }

  /** Waits until all members of a room are known. @throws MatrixError 503 when that takes too long */
  whole(roomId: string): Promise<void> {
    return this.partial.whole(roomId);
  }

  /** Whether somebody has given up what they could see of a room: to them it is closed as to any stranger. */
  async hasForgotten({ userId }: Requester, roomId: string): Promise<boolean> {
    const membership = await this.memberships.inRoom(userId, roomId);
    if (!membership?.forgotten || membership.membership === 'join') return false;
    return !(await this.#isOpen(roomId));
  }

  async #isOpen(roomId: string): Promise<boolean> {
    const visibility = await this.state.currentEvent(roomId, 'm.room.history_visibility');
    return visibility !== undefined && historyVisibilityIn(visibility.event.content) === 'world_readable';
  }

  /** Which soft-failed events somebody is shown as well: those that an administrator of the server has asked for. */
  async shownSoftFailed(requester: Requester): Promise<ShownSoftFailed> {
    if (!requester.isAdmin) return 'none';
    const config = await this.accountData.find(requester.userId, undefined, adminConfigType);
    if (config?.['return_soft_failed_events'] === true) return 'all';
    return config?.['return_policy_server_spammy_events'] === true ? 'spammy' : 'none';
  }

  /**
   * Checks that a requester is one of a room's members; of an application service any user will do.
   * @throws MatrixError 403 `M_FORBIDDEN`
   */
  async joined({ userId, appserviceId }: Requester, roomId: string): Promise<void> {
    if ((await this.memberships.inRoom(userId, roomId))?.membership === 'join') return;
    const service = appserviceId === undefined ? undefined : this.appservices.byId(appserviceId);
    if (service) {
      const members = (await this.memberships.joinedUserIds([roomId])).get(roomId) ?? [];
      for (const member of members) if (service.covers(member)) return;
    }
    throw MatrixError.notInRoom();
  }
}
