/** How a thumbnail fits into its size: `crop` fills it, `scale` stays inside. */
export type ThumbnailMethod = 'crop' | 'scale';

/** A size that a thumbnail has, or should have. */
export interface ThumbnailSize {
  readonly widthPx: number;
  readonly heightPx: number;
  readonly method: ThumbnailMethod;
}

const area = ({ widthPx, heightPx }: ThumbnailSize): number => widthPx * heightPx;

/** Whether nothing would have to be enlarged: a scaled one touches its frame on one side only. */
const isLargeEnough = (size: ThumbnailSize, wanted: ThumbnailSize): boolean =>
  wanted.method === 'crop'
    ? size.widthPx >= wanted.widthPx && size.heightPx >= wanted.heightPx
    : size.widthPx >= wanted.widthPx || size.heightPx >= wanted.heightPx;

const aspectDifference = (size: ThumbnailSize, wanted: ThumbnailSize): number =>
  Math.abs(Math.log((size.widthPx * wanted.heightPx) / (size.heightPx * wanted.widthPx)));

/**
 * The best of the thumbnails that there are: of the wanted method if possible; large enough and then as small as possible,
 * or else as large as possible.
 * @returns `undefined` only for an empty list
 */
export function bestThumbnail<T extends ThumbnailSize>(sizes: readonly T[], wanted: ThumbnailSize): T | undefined {
  const better = (a: T, b: T): number => {
    const method = Number(b.method === wanted.method) - Number(a.method === wanted.method);
    if (method !== 0) return method;
    const large = Number(isLargeEnough(b, wanted)) - Number(isLargeEnough(a, wanted));
    if (large !== 0) return large;
    if (!isLargeEnough(a, wanted)) return area(b) - area(a);
    const aspect = wanted.method === 'crop' ? aspectDifference(a, wanted) - aspectDifference(b, wanted) : 0;
    return Math.abs(aspect) > 0.01 ? aspect : area(a) - area(b);
  };
  return sizes.toSorted(better)[0];
}

interface Pixels {
  readonly widthPx: number;
  readonly heightPx: number;
}

/** How much smaller an image becomes for a thumbnail; never larger. */
function factorFor(image: Pixels, size: ThumbnailSize): number {
  const horizontal = size.widthPx / image.widthPx;
  const vertical = size.heightPx / image.heightPx;
  return Math.min(1, size.method === 'crop' ? Math.max(horizontal, vertical) : Math.min(horizontal, vertical));
}

/** The pixels that a thumbnail of an image gets; images are never enlarged. */
export function fittedSize(image: Pixels, size: ThumbnailSize): Pixels {
  const factor = factorFor(image, size);
  const bounded = (pixels: number, most: number): number => Math.max(1, Math.min(most, Math.round(pixels * factor)));
  return { widthPx: bounded(image.widthPx, size.widthPx), heightPx: bounded(image.heightPx, size.heightPx) };
}

/** The smallest form of an image that all of some thumbnails can be made of. */
export function commonBase(image: Pixels, sizes: readonly ThumbnailSize[]): Pixels {
  const factor = Math.max(...sizes.map((size) => factorFor(image, size)));
  const scaled = (pixels: number): number => Math.max(1, Math.ceil(pixels * factor));
  return { widthPx: scaled(image.widthPx), heightPx: scaled(image.heightPx) };
}
