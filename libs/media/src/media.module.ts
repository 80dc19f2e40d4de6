import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { AvatarRules } from './avatars/avatar-rules.js';
import { MediaConfigController } from './config.controller.js';
import { DownloadController } from './downloads/download.controller.js';
import { Downloads } from './downloads/downloads.service.js';
import { RemoteMediaSource } from './downloads/remote-media-fetcher.js';
import { RemoteMedia } from './downloads/remote-media.service.js';
import { MediaLibrary } from './media-library.service.js';
import { MediaRemoval } from './moderation/media-removal.service.js';
import { Quarantine } from './moderation/quarantine.service.js';
import { PageFetcher } from './previews/page-fetcher.js';
import { PreviewCache } from './previews/preview-cache.js';
import { PreviewController } from './previews/preview.controller.js';
import { Previews } from './previews/preview.service.js';
import { MediaFiles } from './storage/media-files.js';
import { MediaIntake } from './storage/media-intake.js';
import { StorageProviders } from './storage/storage-providers.js';
import { ImageEngine } from './thumbnails/image-engine.js';
import { ThumbnailController } from './thumbnails/thumbnail.controller.js';
import { Thumbnails } from './thumbnails/thumbnails.service.js';
import { AccessTimes } from './upkeep/access-times.js';
import { MediaRetention } from './upkeep/retention.service.js';
import { Arrivals } from './uploads/arrivals.js';
import { UploadController } from './uploads/upload.controller.js';
import { UploadLimits } from './uploads/upload-limits.js';
import { UploadService } from './uploads/upload.service.js';

const face = [
  Downloads,
  MediaFiles,
  MediaLibrary,
  MediaRemoval,
  PreviewCache,
  Previews,
  Quarantine,
  RemoteMediaSource,
  Thumbnails,
  UploadService,
];

/**
 * Files of users: storing, finding, withholding, deleting; safe in any process. Needs `Database`, `Clock`, `Ids`, `Config`,
 * `Logger`, `Lifecycle`, `Metrics`, `RateLimiter` and `ModuleDispatcher` from the app's global modules.
 */
@Module({
  imports: [UsersModule],
  providers: [
    ...face,
    AccessTimes,
    Arrivals,
    AvatarRules,
    ImageEngine,
    MediaIntake,
    PageFetcher,
    RemoteMedia,
    StorageProviders,
    UploadLimits,
  ],
  exports: face,
})
export class MediaModule {}

/** The media repository's part of the client API. */
@Module({
  imports: [MediaModule],
  controllers: [UploadController, DownloadController, ThumbnailController, PreviewController, MediaConfigController],
})
export class MediaHttpModule {}

/** Deletes old media; for one process. */
@Module({ imports: [MediaModule], providers: [MediaRetention] })
export class MediaUpkeepModule {}
