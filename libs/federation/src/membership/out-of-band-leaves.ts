import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { domainOf } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { EventPersister, EventStore, MembershipReader } from '@rookery/rooms';

/** Ends invites and knocks of local users in rooms in which this server has nobody: they were withdrawn or refused. */
@Injectable()
export class OutOfBandLeaves {
  constructor(
    private readonly memberships: MembershipReader,
    private readonly events: EventStore,
    private readonly persister: EventPersister,
    private readonly config: Config,
  ) {}

  /**
   * Takes an event that ends such a membership; whether it was one. An invite is withdrawn by who gave it and by nobody else,
   * since nobody here knows who else the room's power levels allow to; a knock is answered by whoever knows of it.
   * @param event its signatures were checked
   */
  async take(event: RoomEvent): Promise<boolean> {
    if (!(await this.isOne(event))) return false;
    await this.persister.receiveOutOfBand(event.rules.version, event);
    return true;
  }

  /** Whether {@link take} would take an event whose signatures turned out right. */
  async isOne(event: RoomEvent): Promise<boolean> {
    const { membership } = event.content;
    const target = event.stateKey;
    if (event.type !== 'm.room.member' || target === undefined || domainOf(target) !== this.config.serverName)
      return false;
    if (membership !== 'leave' && membership !== 'ban') return false;
    const current = await this.memberships.inRoom(target, event.roomId);
    if (current?.membership !== 'invite' && current?.membership !== 'knock') return false;
    const before = await this.events.one(current.eventId);
    if (!before?.outlier || !event.authEventIds.includes(current.eventId)) return false;
    return current.membership === 'knock' || event.sender === current.sender;
  }
}
