import { Injectable, type OnModuleInit } from '@nestjs/common';
import { type EventBatch, RoomHooks } from '@rookery/rooms';
import { PresenceService } from './presence.service.js';

/**
 * Who sends something from a device is active there.
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
    for (const { transaction } of events) {
      if (transaction !== undefined) this.presence.active(transaction.userId, transaction.deviceId);
    }
  }
}
