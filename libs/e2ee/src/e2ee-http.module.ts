import { Module } from '@nestjs/common';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { DehydratedDeviceController } from './http/dehydrated-device.controller.js';
import { KeyUploadsController } from './http/key-uploads.controller.js';
import { KeysController } from './http/keys.controller.js';
import { E2eeModule } from './e2ee.module.js';
import { KeyBackupController } from './http/key-backup.controller.js';
import { FormerRendezvousController } from './http/former-rendezvous.controller.js';
import { RendezvousController } from './http/rendezvous.controller.js';
import { RendezvousSessions } from './rendezvous/rendezvous-sessions.js';
import { ToDeviceController } from './http/to-device.controller.js';

/** The client API of end-to-end encryption. */
@Module({
  imports: [UsersModule, RoomsModule, E2eeModule],
  providers: [RendezvousSessions],
  controllers: [
    KeysController,
    KeyUploadsController,
    ToDeviceController,
    KeyBackupController,
    DehydratedDeviceController,
    RendezvousController,
    FormerRendezvousController,
  ],
})
export class E2eeHttpModule {}
