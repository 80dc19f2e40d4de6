/** Typing, receipts, presence. */
export { RoomAudience } from './common/room-audience.js';
export { EphemeralHttpModule } from './ephemeral-http.module.js';
export { EphemeralModule } from './ephemeral.module.js';
export { InboundEphemeral } from './federation/inbound-edus.service.js';
export { EphemeralHooks } from './hooks.js';
export { ephemeralMigrations } from './migrations/ephemeral-01.migration.js';
export { offlineState, presenceContent, type PresenceName, type PresenceState } from './model/presence-state.js';
export type { StoredPresence } from './presence/presence.query.js';
export { PresenceReader } from './presence/presence-reader.js';
export { PresenceService } from './presence/presence.service.js';
export { presenceStream } from './presence/presence-publisher.js';
export { type Receipt, receiptContent, receiptContents, type StoredReceipt } from './model/receipt.js';
export { ReceiptService, receiptsStream } from './receipts/receipt.service.js';
export { type StickyEvent, StickyEvents } from './sticky/sticky-events.service.js';
export { TypingService } from './typing/typing.service.js';
