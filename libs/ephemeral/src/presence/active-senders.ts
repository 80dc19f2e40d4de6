import { Injectable, type OnModuleInit } from '@nestjs/common';
import { type EventBatch, EventSerializer, RoomHooks } from '@rookery/rooms';
import { PresenceService } from './presence.service.js';

/**
 * Who sends a message is active, on the device that it comes from.
 * @spec client-server-api#last-active-ago
 */
@Injectable()
export class ActiveSenders implements OnModuleInit {
  constructor(
    private readonly hooks: RoomHooks,
    private readonly presence: PresenceService,
  ) {}

  onModuleInit(): void {
    this.hooks.subscribe({ afterCommit: (batch) => this.#sent(batch) });
  }

  #sent({ events }: EventBatch): void {
    for (const stored of events) {
      if (stored.transaction === undefined || !EventSerializer.isSentByHand(stored)) continue;
      const { userId, deviceId } = stored.transaction;
      this.presence.active(userId, deviceId.startsWith('as:') ? undefined : deviceId);
    }
  }
}
