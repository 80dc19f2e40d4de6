/** Upload, download, thumbnails, URL previews. */
export { type DownloadWish, Downloads } from './downloads/downloads.service.js';
export {
  type RemoteFile,
  RemoteMediaFetcher,
  type RemoteMediaRequest,
  RemoteMediaSource,
} from './downloads/remote-media-fetcher.js';
export { type MediaPage, MediaLibrary } from './records/media-library.service.js';
export { MediaHttpModule, MediaModule, MediaUpkeepModule } from './media.module.js';
export { mediaMigrations } from './migrations/index.js';
export { mediaInContent } from './moderation/media-in-content.js';
export { type AvatarUses, type LocalDeletion, MediaRemoval } from './moderation/media-removal.service.js';
export type { QuarantineChange } from './moderation/quarantine.query.js';
export { Quarantine } from './moderation/quarantine.service.js';
export { formatMxc, isValidMediaId, isValidMediaServer, type Media, type MediaKey, parseMxc } from './records/media.js';
export { mediaUsageOrders, type MediaUsageRow, type MediaUsageSearch } from './records/media-usage.query.js';
export { type UserMediaOrder, userMediaOrders } from './records/media.query.js';
export { FileSystemProvider } from './storage/file-system-provider.js';
export { MediaFiles, type OpenFile } from './storage/media-files.js';
export { Thumbnails, type ThumbnailWish } from './thumbnails/thumbnails.service.js';
export { type ReservedMedia, UploadService } from './uploads/upload.service.js';
export type { IncomingFile } from './uploads/incoming-file.js';
