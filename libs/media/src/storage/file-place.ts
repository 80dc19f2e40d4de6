import type { MediaFileInfo, ThumbnailInfo } from '@rookery/module-api';
import type { Media } from '../records/media.js';

/** Where a file lies, and what it is. */
export interface FilePlace {
  /** Relative to the media store, `/` between segments; holds nothing that was not checked. */
  readonly path: string;
  readonly info: MediaFileInfo;
}

/** Ids of previews' images begin with the day they were made: they lie in folders by day, which go as a whole. */
const datedId = /^(\d{4}-\d{2}-\d{2})_([A-Za-z0-9_-]+)$/;

/** `aabbrest` becomes `aa/bb/rest`, as the field's stores have it. */
const spread = (id: string): string => `${id.slice(0, 2)}/${id.slice(2, 4)}/${id.slice(4)}`;

function pathOf(media: Pick<Media, 'origin' | 'fileId' | 'urlCache'>, thumbnails: boolean): string {
  const { origin, fileId, urlCache } = media;
  if (urlCache !== undefined) {
    const [, day, rest] = datedId.exec(fileId) ?? [];
    const folder = thumbnails ? 'url_cache_thumbnails' : 'url_cache';
    return day === undefined ? `${folder}/${spread(fileId)}` : `${folder}/${day}/${rest}`;
  }
  if (origin === undefined) return `${thumbnails ? 'local_thumbnails' : 'local_content'}/${spread(fileId)}`;
  return `${thumbnails ? 'remote_thumbnail' : 'remote_content'}/${origin}/${spread(fileId)}`;
}

const infoOf = (media: Pick<Media, 'origin' | 'fileId' | 'urlCache'>): MediaFileInfo => ({
  serverName: media.origin,
  fileId: media.fileId,
  urlCache: media.urlCache !== undefined,
});

/** Where a file itself lies. */
export const placeOf = (media: Pick<Media, 'origin' | 'fileId' | 'urlCache'>): FilePlace => ({
  path: pathOf(media, false),
  info: infoOf(media),
});

/** The folder of a file's thumbnails. */
export const thumbnailFolder = (media: Pick<Media, 'origin' | 'fileId' | 'urlCache'>): string => pathOf(media, true);

/** Where one of a file's thumbnails lies. */
export function thumbnailPlace(
  media: Pick<Media, 'origin' | 'fileId' | 'urlCache'>,
  thumbnail: ThumbnailInfo,
): FilePlace {
  const { widthPx, heightPx, type, method } = thumbnail;
  return {
    path: `${thumbnailFolder(media)}/${widthPx}-${heightPx}-${type.replace('/', '-')}-${method}`,
    info: { ...infoOf(media), thumbnail },
  };
}
