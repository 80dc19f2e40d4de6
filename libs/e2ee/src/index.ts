/** Device lists, to-device messages, keys, cross-signing, key backup. */
export { limits as e2eeLimits } from './common/limits.js';
export { CrossSigningService } from './cross-signing/cross-signing.service.js';
export { DehydratedDeviceService } from './dehydrated/dehydrated-device.service.js';
export { DeviceKeyService, type LocalKeys } from './device-keys/device-key.service.js';
export { OneTimeKeyService } from './device-keys/one-time-key.service.js';
export { reviveKeys } from './device-keys/restored-keys.query.js';
export type { DeviceListChange } from './device-lists/device-list.query.js';
export { DeviceListService, deviceListsStream } from './device-lists/device-list.service.js';
export { E2eeHttpModule } from './e2ee-http.module.js';
export { E2eeModule } from './e2ee.module.js';
export {
  type ClaimedKeys,
  E2eePorts,
  type KeyRoom,
  type KnownRemoteKeys,
  type RemoteDeviceKeys,
  type RemoteKeysAnswer,
  type RemoteKeySource,
  type ServiceDeviceKeys,
} from './ports.js';
export { e2eeMigrations } from './migrations/e2ee-01.migration.js';
export { deleteInboxEntries, inboxEntries, type InboxEntry, type OutboxMessage } from './to-device/to-device.query.js';
export { ToDeviceSending } from './to-device/to-device-sending.service.js';
export { ToDeviceService } from './to-device/to-device.service.js';
