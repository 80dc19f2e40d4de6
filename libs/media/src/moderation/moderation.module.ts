import { Module } from '@nestjs/common';
import { MediaStorageModule } from '../storage/storage.module.js';
import { MediaRemoval } from './media-removal.service.js';
import { Quarantine } from './quarantine.service.js';

/** Files that are withheld or deleted. */
@Module({
  imports: [MediaStorageModule],
  providers: [MediaRemoval, Quarantine],
  exports: [MediaRemoval, Quarantine],
})
export class MediaModerationModule {}
