import { Module } from '@nestjs/common';
import { E2eeModule } from '@rookery/e2ee';
import { EphemeralModule } from '@rookery/ephemeral';
import { RoomsModule } from '@rookery/rooms';
import { UsersModule } from '@rookery/users';
import { LazyMemberMemories } from './request/device-members.js';
import { KeptAnswers } from './request/kept-answers.js';
import { TokenPlaces } from './request/token-places.js';
import { SectionsModule } from './sections/sections.module.js';
import { SyncResponses } from './sync-responses.js';
import { SyncService } from './sync.service.js';

/** Answers of `/sync`, for its endpoint and those that are like it. */
@Module({
  imports: [SectionsModule, UsersModule, RoomsModule, EphemeralModule, E2eeModule],
  providers: [KeptAnswers, LazyMemberMemories, SyncResponses, TokenPlaces, SyncService],
  exports: [LazyMemberMemories, SyncService],
})
export class SyncAnswersModule {}
