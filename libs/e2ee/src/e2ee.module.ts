import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { E2eePorts } from './ports.js';
import { RemoteKeys } from './common/remote-keys.js';
import { ServiceKeys } from './common/service-keys.js';
import { CrossSigningService } from './cross-signing/cross-signing.service.js';
import { SignatureService } from './device-keys/signature.service.js';
import { DehydratedDeviceService } from './dehydrated/dehydrated-device.service.js';
import { DeviceKeyService } from './device-keys/device-key.service.js';
import { KeyUploads } from './device-keys/key-uploads.service.js';
import { OneTimeKeyService } from './device-keys/one-time-key.service.js';
import { DeviceListService } from './device-lists/device-list.service.js';
import { SyncPositions } from './device-lists/sync-positions.js';
import { ClosedBackups } from './key-backup/closed-backups.js';
import { KeyBackupService } from './key-backup/key-backup.service.js';
import { ToDeviceSending } from './to-device/to-device-sending.service.js';
import { ToDeviceService } from './to-device/to-device.service.js';

const services = [
  E2eePorts,
  RemoteKeys,
  ServiceKeys,
  SyncPositions,
  DeviceListService,
  DeviceKeyService,
  KeyUploads,
  OneTimeKeyService,
  CrossSigningService,
  SignatureService,
  ToDeviceService,
  ToDeviceSending,
  KeyBackupService,
  ClosedBackups,
  DehydratedDeviceService,
];

/**
 * Device lists, keys, signatures, to-device messages, key backups. Needs `Database`, `Clock`, `Ids`, `Config`, `Logger`,
 * `RateLimiter` and `Notifier` from the app's global modules.
 */
@Module({ imports: [UsersModule, RoomsModule], providers: services, exports: services })
export class E2eeModule {}
