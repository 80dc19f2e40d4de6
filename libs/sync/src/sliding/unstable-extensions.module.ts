import { Module } from '@nestjs/common';
import { EphemeralModule } from '@rookery/ephemeral';
import { PushModule } from '@rookery/push';
import { RoomsModule } from '@rookery/rooms';
import { ProfileUpdatesModule } from '../profiles/profile-updates.module.js';
import { SectionsModule } from '../sections/sections.module.js';
import { ProfilesExtension } from './profiles-extension.js';
import { StickyUpdates } from './sticky-updates.js';
import { ThreadUpdatesReader } from './thread-updates.js';
import { UnstableExtensions } from './unstable-extensions.js';

/** Extensions of sliding sync that are not specified yet. */
@Module({
  imports: [ProfileUpdatesModule, SectionsModule, RoomsModule, PushModule, EphemeralModule],
  providers: [ThreadUpdatesReader, StickyUpdates, ProfilesExtension, UnstableExtensions],
  exports: [ThreadUpdatesReader, UnstableExtensions],
})
export class UnstableExtensionsModule {}
