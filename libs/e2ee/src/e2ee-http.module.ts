import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { DehydratedDeviceController } from './dehydrated/dehydrated-device.controller.js';
import { KeysController } from './device-keys/keys.controller.js';
import { E2eeModule } from './e2ee.module.js';
import { KeyBackupController } from './key-backup/key-backup.controller.js';
import { ToDeviceController } from './to-device/to-device.controller.js';

/** The client API of end-to-end encryption. */
@Module({
  imports: [UsersModule, RoomsModule, E2eeModule],
  controllers: [KeysController, ToDeviceController, KeyBackupController, DehydratedDeviceController],
})
export class E2eeHttpModule {}
