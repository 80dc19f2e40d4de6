import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { RoomAudience } from './common/room-audience.js';
import { InboundReceipts } from './federation/inbound-receipts.service.js';
import { InboundEphemeral } from './federation/inbound-edus.service.js';
import { EphemeralHooks } from './hooks.js';
import { ActiveSenders } from './presence/active-senders.js';
import { PresenceElsewhere } from './presence/presence-elsewhere.js';
import { PresencePublisher } from './presence/presence-publisher.js';
import { PresenceReader } from './presence/presence-reader.js';
import { PresenceRouting } from './presence/presence-routing.js';
import { PresenceService } from './presence/presence.service.js';
import { ReceiptService } from './receipts/receipt.service.js';
import { StickyEvents } from './sticky/sticky-events.service.js';
import { TypingService } from './typing/typing.service.js';

const services = [
  EphemeralHooks,
  RoomAudience,
  TypingService,
  ReceiptService,
  PresenceReader,
  PresenceService,
  StickyEvents,
  InboundEphemeral,
];

/**
 * Typing, receipts, presence, sticky events. Needs `Database`, `Clock`, `Config`, `Logger`, `Notifier`, `RateLimiter` and `ModuleDispatcher` from the app's global modules.
 */
@Module({
  imports: [UsersModule, RoomsModule],
  providers: [...services, ActiveSenders, InboundReceipts, PresenceElsewhere, PresencePublisher, PresenceRouting],
  exports: services,
})
export class EphemeralModule {}
