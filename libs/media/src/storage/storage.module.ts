import { Module } from '@nestjs/common';
import { AccessTimes } from '../records/access-times.js';
import { MediaLibrary } from '../records/media-library.service.js';
import { MediaFiles } from './media-files.js';
import { MediaIntake } from './media-intake.js';
import { StorageProviders } from './storage-providers.js';

const services = [AccessTimes, MediaFiles, MediaIntake, MediaLibrary, StorageProviders];

/** Files and what is known of them: the local folder, storage providers, records. */
@Module({ providers: services, exports: services })
export class MediaStorageModule {}
