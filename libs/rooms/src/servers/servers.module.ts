import { Module } from '@nestjs/common';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { EventGraph } from './event-graph.js';
import { MembershipTemplates } from './membership-templates.js';
import { RoomServers } from './room-servers.js';
import { ServerVisibility } from './server-visibility.js';

/** What other servers may see of rooms, and which take part. */
@Module({
  imports: [PipelineModule, ReadingModule, RoomStateModule, RoomStoreModule],
  providers: [EventGraph, MembershipTemplates, RoomServers, ServerVisibility],
  exports: [EventGraph, MembershipTemplates, RoomServers, ServerVisibility],
})
export class ServersModule {}
