import { Module } from '@nestjs/common';
import { UsersModule } from '@rookery/users';
import { AvatarRules } from './avatars/avatar-rules.js';
import { DownloadsModule } from './downloads/downloads.module.js';
import { MediaConfigController } from './http/config.controller.js';
import { DownloadController } from './http/download.controller.js';
import { PreviewController } from './http/preview.controller.js';
import { ThumbnailController } from './http/thumbnail.controller.js';
import { UploadController } from './http/upload.controller.js';
import { UploadLimitController } from './http/upload-limit.controller.js';
import { MediaModerationModule } from './moderation/moderation.module.js';
import { PreviewsModule } from './previews/previews.module.js';
import { MediaStorageModule } from './storage/storage.module.js';
import { ThumbnailsModule } from './thumbnails/thumbnails.module.js';
import { MediaRetention } from './upkeep/retention.service.js';
import { StrayFiles } from './upkeep/stray-files.service.js';
import { UploadsModule } from './uploads/uploads.module.js';

const activities = [
  MediaStorageModule,
  ThumbnailsModule,
  UploadsModule,
  DownloadsModule,
  MediaModerationModule,
  PreviewsModule,
];

/**
 * Files of users: storing, finding, withholding, deleting; safe in any process. Needs `Database`, `Clock`, `Ids`, `Config`,
 * `Logger`, `Lifecycle`, `Metrics`, `RateLimiter` and `ModuleDispatcher` from the app's global modules.
 */
@Module({ imports: [UsersModule, ...activities], providers: [AvatarRules], exports: activities })
export class MediaModule {}

/** The media repository's part of the client API. */
@Module({
  imports: [UsersModule, MediaModule],
  controllers: [
    UploadController,
    UploadLimitController,
    DownloadController,
    ThumbnailController,
    PreviewController,
    MediaConfigController,
  ],
})
export class MediaHttpModule {}

/** Deletes old media, and what belongs to none; for one process. */
@Module({ imports: [MediaModule], providers: [MediaRetention, StrayFiles] })
export class MediaUpkeepModule {}
