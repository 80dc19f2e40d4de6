import { Injectable } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import type { EventToSend, ModuleEvent, RoomApi } from '@rookery/module-api';
import { ModuleDispatcher, toModuleEvent } from '@rookery/module-host';
import { EventPersister, EventStore } from '@rookery/rooms';
import { LocalAccounts } from '../accounts/local-accounts.js';
import { plainJson } from '../plain-json.js';
import { ModuleMembershipChanges } from './membership-changes.js';

/** How modules send events. */
@Injectable()
export class ModuleRoomEvents {
  constructor(
    private readonly local: LocalAccounts,
    private readonly persister: EventPersister,
    private readonly events: EventStore,
    private readonly memberships: ModuleMembershipChanges,
    private readonly modules: ModuleDispatcher,
  ) {}

  async createAndSendEventIntoRoom(event: EventToSend): Promise<ModuleEvent> {
    const { roomId, type, stateKey } = event;
    if (typeof type !== 'string' || type === '') throw MatrixError.invalidParam('An event needs a type');
    const content = plainJson(event.content, 'The content of an event');
    if (type === 'm.room.member' && stateKey !== undefined) {
      const { membership, ...rest } = content;
      return this.updateRoomMembership(event.sender, stateKey, roomId, membership as 'join', rest);
    }
    const requester = await this.local.actingAs(event.sender);
    const sent = await this.persister.send({
      roomId,
      type,
      stateKey,
      sender: requester.userId,
      content,
      ...(type === 'm.room.redaction' && typeof content['redacts'] === 'string' ? { redacts: content['redacts'] } : {}),
      skipUnchanged: stateKey !== undefined,
      unchecked: this.modules.chains.actor ?? true,
    });
    return this.#stored(sent.eventId);
  }

  async updateRoomMembership(...change: Parameters<RoomApi['updateRoomMembership']>): Promise<ModuleEvent> {
    return this.#stored(await this.memberships.change(...change));
  }

  async #stored(eventId: string): Promise<ModuleEvent> {
    const stored = await this.events.one(eventId);
    if (!stored) throw new Error(`The event ${eventId} is not there after it was stored`);
    return toModuleEvent(stored.event);
  }
}
