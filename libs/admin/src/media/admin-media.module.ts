import { Module } from '@nestjs/common';
import { MediaModule } from '@rookery/media';
import { RoomsModule } from '@rookery/rooms';
import { AdminKitModule } from '../http/admin-kit.module.js';
import { MediaFilesController } from './media-files.controller.js';
import { QuarantineController } from './quarantine.controller.js';
import { RoomMedia } from './room-media.js';

/** The admin API's part about files. */
@Module({
  imports: [MediaModule, RoomsModule, AdminKitModule],
  controllers: [MediaFilesController, QuarantineController],
  providers: [RoomMedia],
})
export class AdminMediaModule {}
