import { Module } from '@nestjs/common';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { UpkeepModule } from '../upkeep/upkeep.module.js';
import { RemovalRedactions } from './removal-redactions.service.js';
import { UserRedactions } from './user-redactions.service.js';

/** Redacting what a user said. */
@Module({
  imports: [PipelineModule, RoomStoreModule, UpkeepModule],
  providers: [RemovalRedactions, UserRedactions],
  exports: [UserRedactions],
})
export class ModerationModule {}
