import { Readable } from 'node:stream';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { eachDatabase, FakeClock } from '@rookery/testing';
import sharp, { type Sharp } from 'sharp';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { MediaLibrary } from '../records/media-library.service.js';
import { buildMedia, fixtureMigrations, type MediaFixture } from '../media.fixture.js';
import type { MediaKey } from '../records/media.js';
import { MediaRemoval } from '../moderation/media-removal.service.js';
import { MediaFiles } from '../storage/media-files.js';
import { ImageEngine } from './image-engine.js';
import { Thumbnails, type ThumbnailRequest } from './thumbnails.service.js';

const picture = (width: number, height: number, options: { alpha?: boolean } = {}): Sharp =>
  sharp({
    create: { width, height, channels: options.alpha ? 4 : 3, background: { r: 200, g: 30, b: 60, alpha: 0.5 } },
  });
const animation = async (frames: number): Promise<Buffer> =>
  sharp(
    await Promise.all(
      Array.from({ length: frames }, (_, i) =>
        sharp({ create: { width: 200, height: 100, channels: 3, background: { r: i * 20, g: 0, b: 255 - i * 20 } } })
          .png()
          .toBuffer(),
      ),
    ),
    { join: { animated: true } },
  )
    .gif()
    .toBuffer();

interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

function newGate(): Gate {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}

async function bytesOf(stream: Readable): Promise<Buffer> {
  return Buffer.concat(await stream.toArray());
}

eachDatabase('thumbnails', (open) => {
  let media: MediaFixture;
  const build = async (settings: Record<string, unknown> = {}): Promise<void> => {
    const { database, migrate } = await open();
    await migrate(fixtureMigrations);
    media = await buildMedia({ database, clock: new FakeClock(), settings });
  };
  afterEach(() => media?.close());

  const get = async (
    key: MediaKey,
    wanted: Partial<ThumbnailRequest> = {},
  ): Promise<{ type: string; width: number; height: number; pages: number; format: string; path: string }> => {
    const found = await media.get(MediaLibrary).find(key);
    if (!found) throw new Error('unknown');
    const opened = await media
      .get(Thumbnails)
      .open(found, { widthPx: 96, heightPx: 96, method: 'crop', animated: false, ...wanted });
    const bytes = await bytesOf(opened.file.stream());
    expect(bytes.length).toBe(opened.thumbnail.sizeBytes);
    const { width, height, pageHeight, pages = 1, format } = await sharp(bytes).metadata();
    return { type: opened.thumbnail.type, width, height: pageHeight ?? height, pages, format, path: opened.file.path };
  };

  it('are made when an image arrives, and lie where the field has them', async () => {
    await build();
    const { mediaId } = await media.upload(await picture(1000, 500).jpeg().toBuffer(), 'image/jpeg');
    await media.get(Thumbnails).settled();
    const at = `${mediaId.slice(0, 2)}/${mediaId.slice(2, 4)}/${mediaId.slice(4)}`;
    expect(await media.filesOnDisk()).toEqual(
      [
        `local_content/${at}`,
        `local_thumbnails/${at}/32-32-image-jpeg-crop`,
        `local_thumbnails/${at}/96-96-image-jpeg-crop`,
        `local_thumbnails/${at}/320-160-image-jpeg-scale`,
        `local_thumbnails/${at}/640-320-image-jpeg-scale`,
        `local_thumbnails/${at}/800-400-image-jpeg-scale`,
      ].sort(),
    );
  });

  it('the size that fits what is wanted is served', async () => {
    await build();
    const key = await media.upload(await picture(1000, 500).jpeg().toBuffer(), 'image/jpeg');
    expect(await get(key)).toMatchObject({ type: 'image/jpeg', format: 'jpeg', width: 96, height: 96 });
    expect(await get(key, { widthPx: 700, heightPx: 700, method: 'scale' })).toMatchObject({ width: 800, height: 400 });
  });

  it('keep transparency, and are never larger than the image', async () => {
    await build();
    const key = await media.upload(await picture(50, 20, { alpha: true }).png().toBuffer(), 'image/png');
    const wanted = { widthPx: 800, heightPx: 600, method: 'scale' } as const;
    expect(await get(key, wanted)).toMatchObject({ type: 'image/png', width: 50, height: 20 });
    expect(await get(key)).toMatchObject({ type: 'image/png', width: 50, height: 20 });
  });

  it('show what the image shows, whatever its colors are made of', async () => {
    await build();
    const halves = async (width: number, height: number): Promise<Sharp> => {
      const right = await sharp({ create: { width: width / 2, height, channels: 3, background: 'blue' } })
        .png()
        .toBuffer();
      const left = sharp({ create: { width, height, channels: 3, background: 'red' } });
      return sharp(
        await left
          .composite([{ input: right, left: width / 2, top: 0 }])
          .png()
          .toBuffer(),
      );
    };
    // What other colors cannot show quite as red and as blue is still more red than blue, or the other way round.
    const colorOf = ([red = 0, , blue = 0]: readonly number[]): string =>
      red > blue + 60 ? 'red' : blue > red + 60 ? 'blue' : `${red} ${blue}`;
    const images: [Buffer, string][] = [
      [await (await halves(1000, 500)).jpeg().toBuffer(), 'image/jpeg'],
      [await (await halves(1000, 500)).toColorspace('rgb16').png().toBuffer(), 'image/png'],
      [await (await halves(1000, 500)).webp({ lossless: true }).toBuffer(), 'image/webp'],
      [await (await halves(1000, 500)).toColorspace('cmyk').jpeg().toBuffer(), 'image/jpeg'],
      [await (await halves(1000, 500)).png({ palette: true }).toBuffer(), 'image/png'],
    ];
    for (const [bytes, type] of images) {
      const key = await media.upload(bytes, type);
      await media.get(Thumbnails).settled();
      for (const [widthPx, method] of [
        [96, 'crop'],
        [320, 'scale'],
      ] as const) {
        const { path, width, height } = await get(key, { widthPx, heightPx: widthPx, method });
        const raw = await sharp(path).removeAlpha().toColorspace('srgb').raw().toBuffer();
        const pixel = (x: number): number[] => [
          ...raw.subarray((Math.floor(height / 2) * width + x) * 3).subarray(0, 3),
        ];
        expect([type, method, colorOf(pixel(4)), colorOf(pixel(width - 4))]).toEqual([type, method, 'red', 'blue']);
      }
    }
    const grey = await media.upload(await picture(1000, 500).greyscale().png().toBuffer(), 'image/png');
    expect(await get(grey)).toMatchObject({ width: 96, height: 96 });
  });

  it('are turned as the camera was held', async () => {
    await build();
    const key = await media.upload(
      await picture(1000, 500).withMetadata({ orientation: 6 }).jpeg().toBuffer(),
      'image/jpeg',
    );
    expect(await get(key, { widthPx: 640, heightPx: 480, method: 'scale' })).toMatchObject({ width: 240, height: 480 });
  });

  it('move only when asked to', async () => {
    await build();
    const key = await media.upload(await animation(5), 'image/gif');
    expect(await get(key)).toMatchObject({ type: 'image/png', pages: 1 });
    expect(await get(key, { animated: true })).toMatchObject({ type: 'image/webp', pages: 5, width: 96, height: 96 });
    // From the store, the second time.
    expect(await get(key, { animated: true })).toMatchObject({ type: 'image/webp', pages: 5 });
    expect(await get(key)).toMatchObject({ type: 'image/png', pages: 1 });
    const still = await media.upload(await picture(200, 100).jpeg().toBuffer(), 'image/jpeg');
    expect(await get(still, { animated: true })).toMatchObject({ type: 'image/jpeg', pages: 1 });
  });

  it('are made to order where the settings say so, but not without end', async () => {
    await build({ dynamic_thumbnails: true });
    const key = await media.upload(await picture(1000, 500).jpeg().toBuffer(), 'image/jpeg');
    await media.get(Thumbnails).settled();
    expect((await media.filesOnDisk()).length).toBe(1);
    expect(await get(key, { widthPx: 123, heightPx: 45 })).toMatchObject({ width: 123, height: 45 });
    for (let i = 1; i < 64; i++) await get(key, { widthPx: i, heightPx: 10 });
    expect((await media.filesOnDisk()).length).toBe(65);
    // From here on one of these has to do.
    expect((await get(key, { widthPx: 900, heightPx: 400 })).width).toBe(123);
    expect((await media.filesOnDisk()).length).toBe(65);
  });

  it('are made again when their files are gone, and once for all who want them', async () => {
    await build();
    const key = await media.upload(await picture(1000, 500).jpeg().toBuffer(), 'image/jpeg');
    await media.get(Thumbnails).settled();
    const { path } = await get(key, { widthPx: 320, heightPx: 240, method: 'scale' });
    await unlink(path);
    const all = await Promise.all(
      Array.from({ length: 5 }, () => get(key, { widthPx: 320, heightPx: 240, method: 'scale' })),
    );
    expect(all.map(({ width, height }) => [width, height])).toEqual(Array(5).fill([320, 160]));
  });

  const refusal = async (bytes: Uint8Array | string, type: string): Promise<unknown> => {
    const key = await media.upload(bytes, type);
    await media.get(Thumbnails).settled();
    const failure = await get(key).then(
      () => undefined,
      (error: unknown) => error,
    );
    // The file itself is not touched, and nothing is left of the attempt.
    expect((await media.filesOnDisk()).length).toBe(1);
    return failure;
  };
  const svg = '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><rect width="5" height="5"/></svg>';
  it.each([
    ['text', 'just text', 'text/plain'],
    ['text that is said to be an image', 'just text', 'image/png'],
    ['SVG', svg, 'image/svg+xml'],
    ['SVG that is said to be PNG', svg, 'image/png'],
    ['HTML behind the head of a GIF', 'GIF89a<html><script>alert(1)</script>', 'image/gif'],
    ['nothing', '', 'image/png'],
    ['PDF', '%PDF-1.4 1 0 obj', 'image/png'],
  ])('are refused of %s', async (_, bytes, type) => {
    await build();
    expect(await refusal(bytes, type)).toMatchObject({ status: 400, errcode: 'M_UNKNOWN' });
  });

  it('are refused of an image that is cut off', async () => {
    await build();
    const whole = await picture(1000, 500).png({ compressionLevel: 0 }).toBuffer();
    expect(await refusal(whole.subarray(0, 20_000), 'image/png')).toMatchObject({ status: 400 });
  });

  it('are refused of TIFF, whose decoder is off', async () => {
    await build();
    expect(await refusal(Buffer.from('49492a0008000000', 'hex'), 'image/tiff')).toMatchObject({ status: 400 });
  });

  it('come from decoders that are meant to see bytes from outside, and from no others', async () => {
    await build();
    await refusal(svg, 'image/png');
    // For the whole process: nothing else in it opens them by accident.
    await expect(sharp(Buffer.from(svg)).metadata()).rejects.toThrow('unsupported');
    const tiff = await picture(10, 10).tiff().toBuffer();
    await expect(sharp(tiff).metadata()).rejects.toThrow('unsupported');
    const avif = await media.upload(await picture(300, 200).avif({ effort: 0 }).toBuffer(), 'image/avif');
    expect(await get(avif)).toMatchObject({ type: 'image/jpeg', width: 96, height: 96 });
  });

  it('are refused of images that unfold to too many pixels', async () => {
    await build({ max_image_pixels: '100K' });
    const bomb = await picture(4_000, 4_000).png({ compressionLevel: 9 }).toBuffer();
    expect(bomb.length).toBeLessThan(100_000);
    const startedMs = performance.now();
    expect(await refusal(bomb, 'image/png')).toMatchObject({ status: 413, errcode: 'M_TOO_LARGE' });
    expect(performance.now() - startedMs).toBeLessThan(10_000);
  });

  it('of a PNG are PNGs, also where nothing shines through', async () => {
    await build();
    const key = await media.upload(await picture(200, 100).png().toBuffer(), 'image/png');
    expect(await get(key)).toMatchObject({ type: 'image/png', format: 'png' });
  });

  it.each(['made', 'recorded'] as const)(
    'that are %s while their image is deleted leave nothing behind',
    async (when) => {
      await build();
      const [engine, files] = [media.get(ImageEngine), media.get(MediaFiles)];
      // Holds one of the two until the other is through.
      const held = { reached: newGate(), go: newGate() };
      const hold = async (): Promise<void> => {
        held.reached.open();
        await held.go.opened;
      };
      if (when === 'made') {
        const make = engine.make.bind(engine);
        engine.make = async (...args) => {
          const made = await make(...args);
          await hold();
          return made;
        };
      } else {
        const remove = files.remove.bind(files);
        files.remove = async (place) => {
          await hold();
          await remove(place);
        };
        engine.make = (
          (make) =>
          async (...args: Parameters<typeof make>) => {
            const made = await make(...args);
            await held.reached.opened;
            return made;
          }
        )(engine.make.bind(engine));
      }
      const { mediaId } = await media.upload(await picture(300, 200).png().toBuffer(), 'image/png');
      const remove = (): Promise<unknown> => media.get(MediaRemoval).deleteLocal([mediaId]);
      if (when === 'made') {
        await held.reached.opened;
        await remove();
        held.go.open();
        await media.get(Thumbnails).settled();
      } else {
        const removing = remove();
        await media.get(Thumbnails).settled();
        held.go.open();
        await removing;
      }
      expect(await media.filesOnDisk()).toEqual([]);
      expect(await media.get(Database).query('SELECT media_id FROM local_media_repository_thumbnails')).toEqual([]);
    },
  );

  it('stand still where an animation is too large to be moved', async () => {
    await build({ max_image_pixels: 25_000 });
    const key = await media.upload(await animation(9), 'image/gif');
    expect(await get(key, { animated: true })).toMatchObject({ type: 'image/png', pages: 1 });
  });

  it('are not made of a file anew to see whether it moves', async () => {
    await build();
    const key = await media.upload(await picture(200, 100).png().toBuffer(), 'image/png');
    await media.get(Thumbnails).settled();
    const engine = media.get(ImageEngine);
    const describe = engine.describe.bind(engine);
    let looks = 0;
    engine.describe = (source) => {
      looks++;
      return describe(source);
    };
    for (let n = 0; n < 3; n++) expect(await get(key, { animated: true })).toMatchObject({ type: 'image/png' });
    expect(looks).toBe(1);
  });

  it.each([
    ['ever', MatrixError.badRequest('no'), 'image/png'],
    ['just now', MatrixError.limitExceeded(1), 'image/webp'],
  ])('stand still where no animation can be made %s, in all sizes', async (_, failure, then) => {
    await build({ dynamic_thumbnails: true });
    const key = await media.upload(await animation(5), 'image/gif');
    const engine = media.get(ImageEngine);
    const make = engine.make.bind(engine);
    engine.make = (source, image, sizes, animated) =>
      animated ? Promise.reject(failure) : make(source, image, sizes, animated);
    expect(await get(key, { animated: true })).toMatchObject({ type: 'image/png', pages: 1 });
    expect(await get(key, { widthPx: 50, heightPx: 50 })).toMatchObject({ type: 'image/png', width: 50 });
    engine.make = make;
    expect(await get(key, { animated: true })).toMatchObject({ type: then });
  });

  it('that wait when the server stops are left for later', async () => {
    await build();
    const bytes = await picture(2_000, 1_500).png().toBuffer();
    for (let i = 0; i < 30; i++) await media.upload(Buffer.concat([bytes, Buffer.from([i])]), 'image/png');
    const startedMs = performance.now();
    await media.close();
    expect(performance.now() - startedMs).toBeLessThan(8_000);
  });

  it('are recorded under the names of the field', async () => {
    await build();
    const { mediaId } = await media.upload(await picture(40, 40).jpeg().toBuffer(), 'image/jpeg');
    await media.get(Thumbnails).settled();
    const names = await media.filesOnDisk();
    expect(names.some((name) => name.endsWith(join(mediaId.slice(4), '32-32-image-jpeg-crop')))).toBe(true);
  });
});
