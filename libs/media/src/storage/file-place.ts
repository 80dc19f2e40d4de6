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

const thumbnailName = /^(\d{1,5})-(\d{1,5})-([a-z]+)-([a-z0-9.+-]+)-(crop|scale)$/;

/** The thumbnail that a file in the folder of a file's thumbnails is; `undefined` for a name that none has. */
export function thumbnailNamed(name: string, sizeBytes: number): ThumbnailInfo | undefined {
  const [, width, height, type, subtype, method] = thumbnailName.exec(name) ?? [];
  if (method !== 'crop' && method !== 'scale') return undefined;
  return { widthPx: Number(width), heightPx: Number(height), type: `${type}/${subtype}`, method, sizeBytes };
}

/** A kind of files of the store, and where these lie. */
export interface StoreTree {
  /** Relative to the media store. */
  readonly folder: string;
  readonly of: 'uploads' | 'remote' | 'pages';
  /** Each entry is a folder of thumbnails, rather than a file. */
  readonly thumbnails: boolean;
}

/** Everything that the store holds, but what is arriving. */
export const storeTrees: readonly StoreTree[] = [
  { folder: 'local_content', of: 'uploads', thumbnails: false },
  { folder: 'local_thumbnails', of: 'uploads', thumbnails: true },
  { folder: 'remote_content', of: 'remote', thumbnails: false },
  { folder: 'remote_thumbnail', of: 'remote', thumbnails: true },
  { folder: 'url_cache', of: 'pages', thumbnails: false },
  { folder: 'url_cache_thumbnails', of: 'pages', thumbnails: true },
];

const dayName = /^\d{4}-\d{2}-\d{2}$/;

/**
 * What a path below a tree's folder belongs to: the other way round of {@link placeOf} and {@link thumbnailFolder}.
 * @returns `undefined` for a path that none of them makes
 */
export function ownerOf(
  tree: StoreTree,
  segments: readonly string[],
): Pick<Media, 'origin' | 'fileId' | 'urlCache'> | undefined {
  const [origin, ...rest] = tree.of === 'remote' ? segments : [undefined, ...segments];
  const [first = '', second = ''] = rest;
  const isDated = tree.of === 'pages' && dayName.test(first);
  const fileId = isDated ? `${first}_${second}` : rest.join('');
  const owner = { origin, fileId, urlCache: tree.of === 'pages' ? '' : undefined };
  return pathOf(owner, tree.thumbnails) === `${tree.folder}/${segments.join('/')}` ? owner : undefined;
}

/** How many folders lie between a tree's folder and its entries, below a folder of this name. */
export const foldersBelow = (tree: StoreTree, name: string): number =>
  tree.of === 'remote' ? 2 : tree.of === 'pages' && dayName.test(name) ? 0 : 1;
