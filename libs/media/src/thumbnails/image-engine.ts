import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { availableParallelism } from 'node:os';
import { MatrixError } from '@rookery/matrix-types';
import { Config, Logger, Semaphore } from '@rookery/platform';
import type { Sharp, SharpConstructor } from 'sharp';
import { commonBase, fittedSize, type ThumbnailSize } from '../records/thumbnail-choice.js';

/** What an image is, before it is decoded. */
export interface ImageFacts {
  /** As shown: turned as its camera says. */
  readonly widthPx: number;
  readonly heightPx: number;
  /** More than one for an animation. */
  readonly frames: number;
  readonly hasAlpha: boolean;
  /** `image/png` and so on, by the contents. */
  readonly type: string;
}

/** A thumbnail in memory. */
export interface MadeThumbnail {
  readonly widthPx: number;
  readonly heightPx: number;
  readonly type: string;
  readonly bytes: Uint8Array;
}

const typeOfFormat: Readonly<Record<string, string>> = {
  jpeg: 'image/jpeg',
  png: 'image/png',
  webp: 'image/webp',
  gif: 'image/gif',
  heif: 'image/avif',
};
/** Decoders that may see bytes from outside; all others, SVG and PDF among them, are switched off. */
const decoders = [
  'VipsForeignLoadJpeg',
  'VipsForeignLoadPng',
  'VipsForeignLoadWebp',
  'VipsForeignLoadNsgif',
  'VipsForeignLoadHeif',
];
const maxFrames = 1_000;
/** Pixels of all frames of an animation, as a multiple of those that one image may have. */
const animationFactor = 4;
/** Largest image that is kept unpacked while several thumbnails are made of it. */
const maxBasePixels = 8 * 1024 ** 2;
const limitSeconds = 30;
/** Images work on the threads that files and names are looked up on, of which there are four: some must stay free. */
const maxAtOnce = 2;
const maxWaiting = 1_000;
const retryWhenBusyMs = 2_000;

let loading: Promise<SharpConstructor> | undefined;

/** The image library costs memory and time to load: only servers that make thumbnails do. */
function loadSharp(): Promise<SharpConstructor> {
  loading ??= import('sharp').then(({ default: sharp }) => {
    sharp.block({ operation: ['VipsForeignLoad'] });
    sharp.unblock({ operation: decoders });
    sharp.cache(false);
    // Several images at once are better than several threads for one.
    sharp.concurrency(1);
    return sharp;
  });
  return loading;
}

/** Decodes images and makes small ones of them: few at a time, outside of the event loop, bounded in pixels and time. */
@Injectable()
export class ImageEngine implements OnModuleDestroy {
  #stopping = false;
  readonly #slots = new Semaphore(Math.min(maxAtOnce, availableParallelism()));

  constructor(
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  onModuleDestroy(): void {
    this.#stopping = true;
  }

  /** Whether there is so much to do that what nobody waits for should be left. */
  get busy(): boolean {
    return this.#slots.waiting > maxWaiting / 4;
  }

  /**
   * Reads what an image is.
   * @param source path, or the bytes themselves
   * @throws MatrixError 400 `M_UNKNOWN`: no image that can be decoded; 413 `M_TOO_LARGE`: too many pixels
   */
  async describe(source: string | Uint8Array): Promise<ImageFacts> {
    const metadata = await this.#run((sharp) => sharp(source, { limitInputPixels: false }).metadata());
    const type = typeOfFormat[metadata.format];
    const { width: widthPx, height } = metadata.autoOrient;
    const frames = metadata.pages ?? 1;
    const heightPx = metadata.pageHeight ?? height;
    if (type === undefined || !(widthPx > 0) || !(heightPx > 0)) throw noImage();
    if (widthPx * heightPx > this.config.get('max_image_pixels')) throw tooManyPixels();
    return { widthPx, heightPx, frames, hasAlpha: metadata.hasAlpha, type };
  }

  /** Whether all frames of an animation may be decoded. */
  mayAnimate({ widthPx, heightPx, frames }: ImageFacts): boolean {
    const pixels = widthPx * heightPx * frames;
    return frames > 1 && frames <= maxFrames && pixels <= this.config.get('max_image_pixels') * animationFactor;
  }

  /**
   * Makes thumbnails.
   * @param animated keep the frames; the result is WebP then
   * @throws MatrixError as {@link describe}; 429 `M_LIMIT_EXCEEDED` when there is too much to do
   */
  async make(
    source: string,
    image: ImageFacts,
    sizes: readonly ThumbnailSize[],
    animated: boolean,
  ): Promise<MadeThumbnail[]> {
    return this.#run(async (sharp) => {
      const open = await this.#opener(sharp, source, image, sizes, animated);
      const made: MadeThumbnail[] = [];
      // One after the other: that bounds the memory of one image.
      for (const size of sizes) made.push(await this.#makeOne(open(), image, size, animated));
      return made;
    });
  }

  /** Works when it is its turn; what fails is no image. */
  async #run<T>(work: (sharp: SharpConstructor) => Promise<T>): Promise<T> {
    if (this.#slots.waiting >= maxWaiting) throw MatrixError.limitExceeded(retryWhenBusyMs);
    const sharp = await loadSharp();
    return this.#slots.run(async () => {
      if (this.#stopping) throw MatrixError.limitExceeded(retryWhenBusyMs);
      try {
        return await work(sharp);
      } catch (error) {
        if (error instanceof Error && error.message.includes('pixel limit')) throw tooManyPixels();
        this.logger.debug('An image could not be decoded', { err: error });
        throw noImage();
      }
    });
  }

  /** What thumbnails begin with: where there are several, an image that was decoded and made smaller once for all. */
  async #opener(
    sharp: SharpConstructor,
    source: string,
    image: ImageFacts,
    sizes: readonly ThumbnailSize[],
    animated: boolean,
  ): Promise<() => Sharp> {
    const limitInputPixels = this.config.get('max_image_pixels') * (animated ? animationFactor : 1);
    const open = (): Sharp =>
      sharp(source, { limitInputPixels, animated, failOn: 'truncated', sequentialRead: true })
        .autoOrient()
        .timeout({ seconds: limitSeconds });
    if (animated || sizes.length < 2) return open;
    const { widthPx: width, heightPx: height } = commonBase(image, sizes);
    if (width * height > maxBasePixels) return open;
    const { data, info } = await open()
      .resize({ width, height, fit: 'fill' })
      .toColorspace('srgb')
      .raw()
      .toBuffer({ resolveWithObject: true });
    return () => sharp(data, { raw: { width: info.width, height: info.height, channels: info.channels } });
  }

  async #makeOne(from: Sharp, image: ImageFacts, size: ThumbnailSize, animated: boolean): Promise<MadeThumbnail> {
    const { widthPx, heightPx } = fittedSize(image, size);
    const type = animated ? 'image/webp' : stillType(image);
    const pipeline = from.resize({ width: widthPx, height: heightPx, fit: size.method === 'crop' ? 'cover' : 'fill' });
    return { widthPx, heightPx, type, bytes: await encoded(pipeline, type).toBuffer() };
  }
}

/** A PNG is often text or a drawing, which JPEG blurs; and it stays what its sender said it is. */
const stillType = ({ type, hasAlpha }: ImageFacts): string =>
  type === 'image/png' || (hasAlpha && type !== 'image/jpeg') ? 'image/png' : 'image/jpeg';

function encoded(pipeline: Sharp, type: string): Sharp {
  if (type === 'image/webp') return pipeline.webp({ quality: 75, effort: 2 });
  return type === 'image/png' ? pipeline.png({ compressionLevel: 7 }) : pipeline.jpeg({ quality: 80 });
}

const noImage = (): MatrixError => MatrixError.badRequest('This file is no image that thumbnails can be made of');
const tooManyPixels = (): MatrixError => MatrixError.tooLarge('The image has too many pixels');
