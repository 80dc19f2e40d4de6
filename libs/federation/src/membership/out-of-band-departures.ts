import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { EventPersister, EventStore, MembershipReader } from '@rookery/rooms';

/** Ends invites and knocks of local users in rooms in which this server has nobody: they were withdrawn or refused. */
@Injectable()
export class OutOfBandDepartures {
  constructor(
    private readonly memberships: MembershipReader,
    private readonly events: EventStore,
    private readonly persister: EventPersister,
    private readonly config: Config,
  ) {}

  /**
   * Takes an event that ends such a membership; whether it was one. Only who gave the invite, or the room's server that the
   * user knocked at, is believed: nobody here knows the room's power levels.
   * @param event its signatures were checked
   */
  async take(event: RoomEvent): Promise<boolean> {
    const { membership } = event.content;
    const target = event.stateKey;
    if (event.type !== 'm.room.member' || target === undefined || domainOf(target) !== this.config.serverName)
      return false;
    if (membership !== 'leave' && membership !== 'ban') return false;
    const current = await this.memberships.inRoom(target, event.roomId);
    if (current?.membership !== 'invite' && current?.membership !== 'knock') return false;
    const before = await this.events.one(current.eventId);
    if (!before?.outlier || !event.authEventIds.includes(current.eventId)) return false;
    const isInviter = current.membership === 'invite' && domainOf(event.sender) === domainOf(current.sender);
    if (!isInviter && current.membership !== 'knock') return false;
    await this.persister.receiveOutOfBand(event.rules.version, event);
    return true;
  }
}
