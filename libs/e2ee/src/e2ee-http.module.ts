import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { DehydratedDeviceController } from './dehydrated/dehydrated-device.controller.js';
import { KeysController } from './device-keys/keys.controller.js';
import { E2eeModule } from './e2ee.module.js';
import { KeyBackupController } from './key-backup/key-backup.controller.js';
import { FormerRendezvousController } from './rendezvous/former-rendezvous.controller.js';
import { RendezvousController } from './rendezvous/rendezvous.controller.js';
import { RendezvousSessions } from './rendezvous/rendezvous-sessions.js';
import { ToDeviceController } from './to-device/to-device.controller.js';

/** The client API of end-to-end encryption. */
@Module({
  imports: [UsersModule, RoomsModule, E2eeModule],
  providers: [RendezvousSessions],
  controllers: [
    KeysController,
    ToDeviceController,
    KeyBackupController,
    DehydratedDeviceController,
    RendezvousController,
    FormerRendezvousController,
  ],
})
export class E2eeHttpModule {}
