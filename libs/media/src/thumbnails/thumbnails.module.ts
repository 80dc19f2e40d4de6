import { Module } from '@nestjs/common';
import { MediaStorageModule } from '../storage/storage.module.js';
import { ImageEngine } from './image-engine.js';
import { Thumbnails } from './thumbnails.service.js';

/** Smaller pictures of pictures. */
@Module({ imports: [MediaStorageModule], providers: [ImageEngine, Thumbnails], exports: [ImageEngine, Thumbnails] })
export class ThumbnailsModule {}
