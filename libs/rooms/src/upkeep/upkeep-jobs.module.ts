import { Module } from '@nestjs/common';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { ChainCovers } from './chain-covers.service.js';
import { DummyEvents } from './dummy-events.service.js';
import { ExtremityFigures } from './extremity-figures.js';
import { ForgottenRooms } from './forgotten-rooms.service.js';
import { MessageExpiry } from './message-expiry.service.js';
import { RedactionCensor } from './redaction-censor.js';
import { Retention } from './retention.service.js';
import { SpaceReclaimer } from './space-reclaimer.js';
import { StateGroupCollector } from './state-group-collector.js';
import { UpkeepModule } from './upkeep.module.js';

/** What is done about rooms in the background, by the process that writes their events. */
@Module({
  imports: [PipelineModule, ReadingModule, RoomStoreModule, UpkeepModule],
  providers: [
    ChainCovers,
    DummyEvents,
    ExtremityFigures,
    ForgottenRooms,
    MessageExpiry,
    RedactionCensor,
    Retention,
    SpaceReclaimer,
    StateGroupCollector,
  ],
})
export class UpkeepJobsModule {}
