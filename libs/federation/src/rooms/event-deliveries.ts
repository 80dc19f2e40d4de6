import { Injectable, type OnModuleInit } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import type { FederatedEventDeliveryMethod } from '@rookery/module-api';
import { callbackContext, ModuleDispatcher, toModuleEvent } from '@rookery/module-host';
import { Logger } from '@rookery/platform';
import { EventStore } from '@rookery/rooms';
import { FederationSender } from '../sender/federation-sender.js';

/** Tells modules which events other servers got. Nobody waits for them, and without such a module it costs nothing. */
@Injectable()
export class EventDeliveries implements OnModuleInit {
  constructor(
    private readonly modules: ModuleDispatcher,
    private readonly events: EventStore,
    private readonly sender: FederationSender,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    this.sender.onTaken((server, eventIds) => {
      if (this.isWanted) void this.#tellTaken(server, eventIds);
    });
  }

  /** Whether any module wants to know. */
  get isWanted(): boolean {
    return this.modules.has('onEventDeliveredOverFederation');
  }

  /** A server got these events. */
  tell(serverName: string, method: FederatedEventDeliveryMethod, events: readonly RoomEvent[]): void {
    if (!this.isWanted || events.length === 0) return;
    const context = callbackContext(undefined, { source: 'federation', origin: serverName });
    const delivery = { serverName, method, events: events.map((event) => toModuleEvent(event)) };
    void this.modules.notify('onEventDeliveredOverFederation', context, delivery);
  }

  async #tellTaken(server: string, eventIds: readonly string[]): Promise<void> {
    try {
      const stored = await this.events.inOrder(eventIds);
      this.tell(
        server,
        '/send',
        stored.map(({ event }) => event),
      );
    } catch (error) {
      this.logger.warn('Modules could not be told which events another server took', {
        destination: server,
        err: error,
      });
    }
  }
}
