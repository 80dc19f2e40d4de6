import { Module } from '@nestjs/common';
import { MediaStorageModule } from '../storage/storage.module.js';
import { ThumbnailsModule } from '../thumbnails/thumbnails.module.js';
import { Arrivals } from './arrivals.js';
import { FileReceiver } from './file-receiver.js';
import { UploadLimits } from './upload-limits.js';
import { UploadService } from './upload.service.js';

/** Files that users send. */
@Module({
  imports: [MediaStorageModule, ThumbnailsModule],
  providers: [Arrivals, FileReceiver, UploadLimits, UploadService],
  exports: [Arrivals, UploadService],
})
export class UploadsModule {}
