import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Readable } from 'node:stream';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Cache, Clock, Config, Logger, SingleFlight } from '@rookery/platform';
import type { Media } from '../records/media.js';
import { placeOf, thumbnailFolder, thumbnailPlace } from '../storage/file-place.js';
import { MediaFiles, type OpenFile } from '../storage/media-files.js';
import { ImageEngine, type MadeThumbnail } from './image-engine.js';
import { bestThumbnail, type ThumbnailSize } from '../records/thumbnail-choice.js';
import { insertThumbnails, type StoredThumbnail, thumbnailsOf } from '../records/thumbnail.query.js';

/** What a client would like to have. */
export interface ThumbnailRequest extends ThumbnailSize {
  /** An animation, if the file is one. */
  readonly animated: boolean;
}

/** A thumbnail that is there to be read. */
interface OpenThumbnail {
  readonly thumbnail: StoredThumbnail;
  readonly file: OpenFile;
}

/** Animated thumbnails are WebP, and no others are. */
const animatedType = 'image/webp';
/** Largest side of a thumbnail that is made to order, pixels. */
const maxDynamicPx = 2_048;
/** Thumbnails of one file that are made to order; afterwards one of these has to do. */
const maxDynamicCount = 64;
/** Files whose decoding failed, or that do not move, which is not tried again for each request. */
const maxRemembered = 2_000;

/** Small images of images: of the sizes in the settings, or made to order. */
@Injectable()
export class Thumbnails implements OnModuleDestroy {
  readonly #making = new SingleFlight<readonly StoredThumbnail[]>();
  readonly #failed: Cache<string, MatrixError>;
  /** Files of which no animation can be made. */
  readonly #still: Cache<string, true>;
  readonly #background = new Set<Promise<unknown>>();

  constructor(
    private readonly config: Config,
    private readonly database: Database,
    private readonly files: MediaFiles,
    private readonly engine: ImageEngine,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.#failed = new Cache(config, 'thumbnail_failures', { invalidation: 'never', max: 2 * maxRemembered });
    this.#still = new Cache(config, 'thumbnail_stills', { invalidation: 'never', max: 2 * maxRemembered });
  }

  /** Those that are being made are finished; those that wait are left for when they are asked for. */
  onModuleDestroy(): Promise<void> {
    return this.settled();
  }

  /** Makes the thumbnails of a file that was stored just now, while nobody waits for them. What is left out is made when asked for. */
  prepare(media: Media): void {
    if (this.config.get('dynamic_thumbnails') || !isImage(media) || this.engine.busy) return;
    const work = this.#usual(media)
      .catch((err: unknown) => {
        if (!MatrixError.is(err)) this.logger.warn('Thumbnails could not be made', { media_id: media.mediaId, err });
      })
      .finally(() => this.#background.delete(work));
    this.#background.add(work);
  }

  /** Resolves when nothing is being prepared. */
  async settled(): Promise<void> {
    while (this.#background.size > 0) await Promise.all(this.#background);
  }

  /**
   * The thumbnail that fits best; one that stands still where there is no animation, or none can be made now.
   * @throws MatrixError 400 `M_UNKNOWN`: no image; 413 (502 for other servers' media) `M_TOO_LARGE`: too many pixels; 404
   *   `M_NOT_FOUND`: the file itself is gone
   */
  async open(media: Media, wanted: ThumbnailRequest): Promise<OpenThumbnail> {
    if (!isImage(media)) throw MatrixError.badRequest('There are no thumbnails of files of this kind');
    const stored = await thumbnailsOf(this.database, media);
    const moving = wanted.animated ? await this.#openAnimated(media, wanted, stored) : undefined;
    return moving ?? this.#open(media, await this.#find(media, wanted, stored));
  }

  async #openAnimated(
    media: Media,
    wanted: ThumbnailRequest,
    stored: readonly StoredThumbnail[],
  ): Promise<OpenThumbnail | undefined> {
    try {
      const thumbnail = await this.#animated(media, wanted, stored);
      return thumbnail && (await this.#open(media, thumbnail));
    } catch (error) {
      if (MatrixError.is(error)) return undefined;
      throw error;
    }
  }

  async #open(media: Media, thumbnail: StoredThumbnail): Promise<OpenThumbnail> {
    const place = thumbnailPlace(media, thumbnail);
    const found = await this.files.open(place);
    if (found !== undefined) return { thumbnail, file: found };
    // Its row is there, but the file is not: made again.
    await this.#make(media, [thumbnail], thumbnail.type === animatedType, true);
    const file = await this.files.open(place);
    if (file === undefined) throw MatrixError.noSuchMedia();
    return { thumbnail, file };
  }

  async #find(media: Media, wanted: ThumbnailRequest, stored: readonly StoredThumbnail[]): Promise<StoredThumbnail> {
    const still = stored.filter(({ type }) => type !== animatedType);
    if (this.config.get('dynamic_thumbnails')) {
      const size = toOrder(wanted);
      const exact = still.find((one) => isSameSize(one, size));
      if (exact !== undefined) return exact;
      if (still.length < maxDynamicCount) return only(await this.#make(media, [size], false, true));
    }
    const usual = still.length > 0 ? still : await this.#usual(media);
    return bestThumbnail(usual, wanted) ?? only(await this.#make(media, [toOrder(wanted)], false, true));
  }

  async #animated(
    media: Media,
    wanted: ThumbnailRequest,
    stored: readonly StoredThumbnail[],
  ): Promise<StoredThumbnail | undefined> {
    const sizes = this.config.get('thumbnail_sizes').map(sizeOf);
    const size = this.config.get('dynamic_thumbnails')
      ? toOrder(wanted)
      : (bestThumbnail(sizes, wanted) ?? toOrder(wanted));
    const animated = stored.filter(({ type }) => type === animatedType);
    const exact = animated.find((one) => isSameSize(one, size));
    if (exact !== undefined) return exact;
    if (animated.length >= maxDynamicCount) return bestThumbnail(animated, wanted);
    if (!mayBeAnimation(media) || this.#still.get(media.fileId)) return undefined;
    return (await this.#make(media, [size], true, true))[0];
  }

  /** Those of the settings. */
  #usual(media: Media): Promise<readonly StoredThumbnail[]> {
    return this.#make(media, this.config.get('thumbnail_sizes').map(sizeOf), false, false);
  }

  /**
   * Makes thumbnails, once for all who want the same at the same time.
   * @param toOrder they are recorded with the wanted size, even where a side came out smaller
   * @returns empty when an animation was asked for and the file is none
   */
  #make(
    media: Media,
    sizes: readonly ThumbnailSize[],
    animated: boolean,
    toOrder: boolean,
  ): Promise<readonly StoredThumbnail[]> {
    const names = sizes.map(({ widthPx, heightPx, method }) => `${widthPx}x${heightPx}${method}`);
    const key = `${media.origin ?? ''}/${media.fileId} ${animated} ${names.join()}`;
    return this.#making.run(key, () => this.#makeNow(media, sizes, animated, toOrder));
  }

  async #makeNow(
    media: Media,
    sizes: readonly ThumbnailSize[],
    animated: boolean,
    toOrder: boolean,
  ): Promise<readonly StoredThumbnail[]> {
    const failure = animated ? undefined : this.#failed.get(media.fileId);
    if (failure !== undefined) throw failure;
    const source = await this.files.open(placeOf(media));
    if (source === undefined) throw MatrixError.noSuchMedia();
    try {
      const image = await this.engine.describe(source.path);
      if (animated && !this.engine.mayAnimate(image)) {
        this.#still.set(media.fileId, true);
        return [];
      }
      const made = await this.engine.make(source.path, image, sizes, animated);
      return await this.#store(media, sizes, made, toOrder);
    } catch (error) {
      throw this.#remembered(media, error, animated);
    } finally {
      await source.close();
    }
  }

  async #store(
    media: Media,
    sizes: readonly ThumbnailSize[],
    made: readonly MadeThumbnail[],
    toOrder: boolean,
  ): Promise<StoredThumbnail[]> {
    const stored = new Map<string, StoredThumbnail>();
    for (const [index, size] of sizes.entries()) {
      const one = made[index];
      if (one === undefined) continue;
      const thumbnail: StoredThumbnail = {
        ...(toOrder || size.method === 'crop'
          ? size
          : { method: size.method, widthPx: one.widthPx, heightPx: one.heightPx }),
        type: one.type,
        sizeBytes: one.bytes.length,
      };
      const place = thumbnailPlace(media, thumbnail);
      // Several sizes come to the same for a small image.
      if (stored.has(place.path)) continue;
      const staged = await this.files.stage();
      try {
        await staged.writeAll(Readable.from([one.bytes]), this.clock, {
          maxBytes: Infinity,
          tooLarge: () => new RangeError(),
        });
        await staged.finish();
        await this.files.keep(staged, place);
      } catch (error) {
        await staged.discard();
        throw error;
      }
      stored.set(place.path, thumbnail);
    }
    const thumbnails = [...stored.values()];
    // All at once: a set that is half recorded would never be completed.
    const isThere = await this.database.write((tx) => insertThumbnails(tx, media, thumbnails), {
      // Whoever is asked first makes them; the same that two make at once are recorded once.
      ...{ name: 'store_thumbnails', anyProcess: true },
    });
    if (isThere) return thumbnails;
    // Deleted while they were made: whoever did that did not know of them.
    await this.files.removeThumbnails(
      thumbnailFolder(media),
      thumbnails.map((one) => thumbnailPlace(media, one)),
    );
    throw MatrixError.noSuchMedia();
  }

  #remembered(media: Media, error: unknown, animated: boolean): unknown {
    if (!MatrixError.is(error) || error.status === 429 || error.status === 404) return error;
    if (animated) {
      // Its first frame may well make a thumbnail.
      this.#still.set(media.fileId, true);
      return error;
    }
    const failure =
      error.status === 413 && media.origin !== undefined ? MatrixError.remoteTooLarge(error.message) : error;
    this.#failed.set(media.fileId, failure);
    return failure;
  }
}

const isImage = ({ mediaType }: Media): boolean => /^image\//i.test(mediaType);
const mayBeAnimation = ({ mediaType }: Media): boolean => /^image\/(?:gif|webp|png|apng)\b/i.test(mediaType);

const sizeOf = (setting: { width: number; height: number; method: string }): ThumbnailSize => ({
  widthPx: setting.width,
  heightPx: setting.height,
  method: setting.method === 'crop' ? 'crop' : 'scale',
});

const toOrder = ({ widthPx, heightPx, method }: ThumbnailSize): ThumbnailSize => ({
  widthPx: Math.min(widthPx, maxDynamicPx),
  heightPx: Math.min(heightPx, maxDynamicPx),
  method,
});

const isSameSize = (a: ThumbnailSize, b: ThumbnailSize): boolean =>
  a.widthPx === b.widthPx && a.heightPx === b.heightPx && a.method === b.method;

function only<T>(list: readonly T[]): T {
  const [first] = list;
  if (first === undefined) throw new Error('No thumbnail was made');
  return first;
}
