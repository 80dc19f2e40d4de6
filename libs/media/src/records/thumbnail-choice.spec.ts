import { bestThumbnail, commonBase, fittedSize, type ThumbnailSize } from './thumbnail-choice.js';

const size = (text: string): ThumbnailSize => {
  const [, width, height, method] = /^(\d+)x(\d+) (crop|scale)$/.exec(text) ?? [];
  return { widthPx: Number(width), heightPx: Number(height), method: method === 'crop' ? 'crop' : 'scale' };
};
const usual = ['32x32 crop', '96x96 crop', '320x240 scale', '640x480 scale', '800x600 scale'];

it.each([
  ['32x32 crop', '32x32 crop'],
  ['33x20 crop', '96x96 crop'],
  ['96x96 crop', '96x96 crop'],
  ['500x500 crop', '96x96 crop'],
  ['1x1 scale', '320x240 scale'],
  ['320x240 scale', '320x240 scale'],
  ['321x241 scale', '640x480 scale'],
  ['9999x9999 scale', '800x600 scale'],
])('for %s there is %s', (wish, expected) => {
  expect(bestThumbnail(usual.map(size), size(wish))).toEqual(size(expected));
});

it('takes one of the other method where there is no other', () => {
  expect(bestThumbnail([size('320x240 scale'), size('640x480 scale')], size('400x300 crop'))).toEqual(
    size('640x480 scale'),
  );
  expect(bestThumbnail([], size('1x1 crop'))).toBeUndefined();
});

it('takes a scaled one that touches its frame on one side', () => {
  // A portrait of 3:4 scaled into 320x240 is 180x240.
  expect(bestThumbnail(['180x240 scale', '360x480 scale'].map(size), size('320x240 scale'))).toEqual(
    size('180x240 scale'),
  );
});

it('prefers the shape for cropped ones', () => {
  expect(bestThumbnail(['100x400 crop', '300x290 crop'].map(size), size('90x90 crop'))).toEqual(size('300x290 crop'));
});

it.each([
  [1000, 500, '100x100 scale', 100, 50],
  [1000, 500, '100x100 crop', 100, 100],
  [10, 5, '100x100 scale', 10, 5],
  [10, 5, '100x100 crop', 10, 5],
  [150, 50, '100x100 crop', 100, 50],
  [10_000, 1, '32x32 scale', 32, 1],
])('an image of %dx%d for %s is %dx%d', (widthPx, heightPx, wish, w, h) => {
  expect(fittedSize({ widthPx, heightPx }, size(wish))).toEqual({ widthPx: w, heightPx: h });
});

it.each([
  [4000, 3000, 800, 600],
  [3000, 4000, 450, 600],
  [100, 100, 100, 100],
  // The square needs more of a panorama than the frame does.
  [10_000, 1_000, 960, 96],
])('all usual thumbnails of %dx%d can be made of %dx%d', (widthPx, heightPx, w, h) => {
  const base = commonBase({ widthPx, heightPx }, usual.map(size));
  expect(base).toEqual({ widthPx: w, heightPx: h });
  for (const one of usual.map(size)) {
    const fitted = fittedSize({ widthPx, heightPx }, one);
    expect(fitted.widthPx <= base.widthPx && fitted.heightPx <= base.heightPx).toBe(true);
  }
});
