import { Module } from '@nestjs/common';
import { CreationModule } from '../creation/creation.module.js';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { SendingModule } from '../sending/sending.module.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { RoomUpgrade } from './room-upgrade.service.js';

/** Replacing a room by one of another version. */
@Module({
  imports: [CreationModule, PipelineModule, ReadingModule, RoomStateModule, RoomStoreModule, SendingModule],
  providers: [RoomUpgrade],
  exports: [RoomUpgrade],
})
export class UpgradeModule {}
