import { Module } from '@nestjs/common';
import { MediaModerationModule } from '../moderation/moderation.module.js';
import { MediaStorageModule } from '../storage/storage.module.js';
import { ThumbnailsModule } from '../thumbnails/thumbnails.module.js';
import { PageFetcher } from './page-fetcher.js';
import { PreviewCache } from './preview-cache.js';
import { PreviewImages } from './preview-images.js';
import { Previews } from './preview.service.js';

/** What a page on the web shows of itself. */
@Module({
  imports: [MediaStorageModule, ThumbnailsModule, MediaModerationModule],
  providers: [PageFetcher, PreviewCache, PreviewImages, Previews],
  exports: [PreviewCache, Previews],
})
export class PreviewsModule {}
