/** Upload, download, thumbnails, URL previews. */
export { type DownloadRequest, Downloads } from './downloads/downloads.service.js';
export { MediaPorts, type RemoteFile, RemoteMediaFetcher, type RemoteMediaRequest } from './ports.js';
export { type MediaPage, MediaLibrary } from './records/media-library.service.js';
export { MediaHttpModule, MediaModule, MediaUpkeepModule } from './media.module.js';
export { mediaMigrations } from './migrations/index.js';
export { mediaInContent } from './moderation/media-in-content.js';
export { MediaRemoval } from './moderation/media-removal.service.js';
export { Quarantine } from './moderation/quarantine.service.js';
export { formatMxc, isValidMediaId, isValidMediaServer, type Media, type MediaKey, parseMxc } from './records/media.js';
export { mediaUsageOrders } from './records/media-usage.query.js';
export { userMediaOrders } from './records/media.query.js';
export { servesMedia } from './serves-media.js';
export { madeStorageProvider } from './storage/made-storage-provider.js';
export { type OpenFile } from './storage/media-files.js';
export { Thumbnails } from './thumbnails/thumbnails.service.js';
export { UploadService } from './uploads/upload.service.js';
