import { Module } from '@nestjs/common';
import { MediaStorageModule } from '../storage/storage.module.js';
import { ThumbnailsModule } from '../thumbnails/thumbnails.module.js';
import { UploadsModule } from '../uploads/uploads.module.js';
import { Downloads } from './downloads.service.js';
import { MediaPorts } from '../ports.js';
import { RemoteMedia } from './remote-media.service.js';

/** Files that are asked for, those of other servers among them. */
@Module({
  imports: [MediaStorageModule, ThumbnailsModule, UploadsModule],
  providers: [Downloads, MediaPorts, RemoteMedia],
  exports: [Downloads, MediaPorts],
})
export class DownloadsModule {}
