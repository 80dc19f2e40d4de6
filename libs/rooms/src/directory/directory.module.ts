import { Module } from '@nestjs/common';
import { PipelineModule } from '../pipeline/pipeline.module.js';
import { ReadingModule } from '../reading/reading.module.js';
import { ServersModule } from '../servers/servers.module.js';
import { RoomStateModule } from '../state/state.module.js';
import { RoomStoreModule } from '../store/store.module.js';
import { AliasClaims } from './alias-claims.js';
import { AliasService } from './alias.service.js';
import { CanonicalAliases } from './canonical-aliases.js';
import { RemoteLookups } from './remote-lookups.js';
import { RoomDirectory } from './directory.service.js';
import { PublicationRules } from './publication-rules.js';
import { RoomSummaries } from './room-summaries.service.js';
import { SpaceHierarchy } from './space-hierarchy.service.js';

/** Aliases, the public rooms, spaces. */
@Module({
  imports: [PipelineModule, ReadingModule, RoomStateModule, RoomStoreModule, ServersModule],
  providers: [
    AliasClaims,
    AliasService,
    CanonicalAliases,
    PublicationRules,
    RemoteLookups,
    RoomDirectory,
    RoomSummaries,
    SpaceHierarchy,
  ],
  exports: [AliasClaims, AliasService, PublicationRules, RemoteLookups, RoomDirectory, RoomSummaries, SpaceHierarchy],
})
export class DirectoryModule {}
