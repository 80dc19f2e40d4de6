/** Device lists, to-device messages, keys, cross-signing, key backup. */
export { limits as e2eeLimits } from './common/limits.js';
export {
  type ClaimedKeys,
  type RemoteDeviceKeys,
  type RemoteFailures,
  RemoteKeys,
  type RemoteKeySource,
} from './common/remote-keys.js';
export { type ServiceDeviceKeys, ServiceKeys, type ServiceKeySource } from './common/service-keys.js';
export type { CrossSigningRow, CrossSigningType } from './cross-signing/cross-signing.query.js';
export { CrossSigningService } from './cross-signing/cross-signing.service.js';
export { type SignatureFailures, SignatureService } from './device-keys/signature.service.js';
export { DehydratedDeviceService } from './dehydrated/dehydrated-device.service.js';
export { type DeviceKeysAnswer, DeviceKeyService, type LocalKeys } from './device-keys/device-key.service.js';
export { type KeyCounts, OneTimeKeyService } from './device-keys/one-time-key.service.js';
export type { DeviceListChange } from './device-lists/device-list.query.js';
export {
  type DeviceListNews,
  type DeviceListPosition,
  type DeviceListQuery,
  DeviceListService,
  deviceListsStream,
} from './device-lists/device-list.service.js';
export { SyncPositions, type SyncTokenReader } from './device-lists/sync-positions.js';
export { E2eeHttpModule } from './e2ee-http.module.js';
export { E2eeModule } from './e2ee.module.js';
export { type BackupState, KeyBackupService } from './key-backup/key-backup.service.js';
export { e2eeMigrations } from './migrations/e2ee-01.migration.js';
export { deleteInboxEntries, inboxEntries, type InboxEntry, type OutboxMessage } from './to-device/to-device.query.js';
export { type ToDevicePage, ToDeviceService } from './to-device/to-device.service.js';
