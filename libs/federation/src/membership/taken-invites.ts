import { Injectable } from '@nestjs/common';
import { type RoomEvent, stripped, strippedStateFrom } from '@rookery/events';
import { MatrixError, type StrippedState } from '@rookery/matrix-types';
import {
  EventPersister,
  EventStore,
  InboundEvents,
  MembershipReader,
  PrejoinState,
  RoomServers,
  RoomStateReader,
} from '@rookery/rooms';

/** Stores invites of other servers that were found good. */
@Injectable()
export class TakenInvites {
  constructor(
    private readonly servers: RoomServers,
    private readonly memberships: MembershipReader,
    private readonly persister: EventPersister,
    private readonly inbound: InboundEvents,
    private readonly state: RoomStateReader,
    private readonly prejoin: PrejoinState,
    private readonly events: EventStore,
  ) {}

  /**
   * Through the room where this server is in it, else beside it, with what it shows of the room.
   * @param event with this server's signature
   * @throws MatrixError 400 `M_INVALID_PARAM`, 403 `M_FORBIDDEN` where the room does not allow it
   */
  async store(origin: string, event: RoomEvent, target: string, roomState: unknown): Promise<void> {
    const { roomId, rules } = event;
    if (await this.servers.isHere(roomId)) {
      if ((await this.state.versions([roomId])).get(roomId) !== rules.version)
        throw MatrixError.invalidParam('The room has another version');
      const current = await this.memberships.currentOf(roomId, target);
      if (current === 'join' || current === 'ban')
        throw MatrixError.forbidden(`The user cannot be invited: their membership is ${current}`);
      const shown = await this.#ownView(roomId, event.sender);
      // What leads to it may still be on its way: nobody is told of an invite that the room was not asked about.
      const verdict = await this.inbound.receive(origin, roomId, { event: withRoomState(event, shown) });
      if (verdict.kind === 'rejected') throw MatrixError.forbidden(verdict.reason);
      if (verdict.kind === 'softFailed') throw MatrixError.forbidden('The room does not allow this now');
      if (verdict.kind === 'unjudged') throw MatrixError.internal('A module of this server failed');
      if (verdict.kind === 'missingAncestors')
        throw MatrixError.forbidden('The invite builds upon events that are not known here');
      return;
    }
    // Of a room that was left, this server may know better.
    const create = (await this.state.currentEvent(roomId, 'm.room.create'))?.event;
    if (create && create.rules.version !== rules.version)
      throw MatrixError.invalidParam('The room has another version');
    await this.persister.receiveOutOfBand(rules.version, withRoomState(event, strippedStateFrom(roomState)));
  }

  /** What somebody who is invited may see of a room that this server knows better than to believe others. */
  async #ownView(roomId: string, inviter: string): Promise<StrippedState[]> {
    const ids = await this.state.currentIds(roomId, { types: this.prejoin.types(inviter) });
    return (await this.events.inOrder(this.prejoin.idsAmong(ids, inviter))).map(({ event }) => stripped(event));
  }
}

/** An invite with what its target may see of the room. */
const withRoomState = (event: RoomEvent, roomState: readonly StrippedState[]): RoomEvent =>
  Object.freeze({ ...event, pdu: { ...event.pdu, unsigned: { invite_room_state: roomState } } });
