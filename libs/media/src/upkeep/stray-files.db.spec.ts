import { mkdir, rm, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Database } from '@rookery/database';
import { eachDatabase, eventually, FakeClock } from '@rookery/testing';
import sharp from 'sharp';
import { buildMedia, fixtureMigrations, type MediaFixture } from '../media.fixture.js';
import { upsertRemoteMedia } from '../records/media.query.js';
import { MediaFiles } from '../storage/media-files.js';
import { Thumbnails } from '../thumbnails/thumbnails.service.js';
import { StrayFiles } from './stray-files.service.js';

const day = 24 * 3_600_000;

eachDatabase('files and rows that belong to nothing', (open) => {
  let media: MediaFixture;
  let clock: FakeClock;
  let database: Database;
  beforeEach(async () => {
    const opened = await open();
    ({ database } = opened);
    await opened.migrate(fixtureMigrations);
    clock = new FakeClock();
    media = await buildMedia({ database, clock });
  });
  afterEach(() => media?.close());

  const put = async (path: string, ageMs: number): Promise<void> => {
    const file = join(media.folder, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, 'left behind');
    const written = new Date(clock.nowMs() - ageMs);
    await utimes(file, written, written);
  };
  const picture = (): Promise<Buffer> =>
    sharp({ create: { width: 400, height: 300, channels: 3, background: 'red' } })
      .png()
      .toBuffer();
  const remote = (origin: string, mediaId: string, fileId: string): Promise<void> =>
    database.write(
      (tx) =>
        upsertRemoteMedia(tx, {
          ...{ origin, mediaId, fileId, sizeBytes: 1, mediaType: 'text/plain', uploadName: undefined, createdTs: 1 },
          ...{ lastAccessTs: 1, uploader: undefined, quarantinedBy: undefined, safeFromQuarantine: false },
          ...{ authenticated: true, sha256: undefined, urlCache: undefined },
        }),
      { name: 'test' },
    );

  it('files that can be had again go when they are a week old, others stay', async () => {
    const old = 8 * day;
    const { mediaId } = await media.upload(await picture(), 'image/png');
    await media.get(Thumbnails).settled();
    const own = await media.filesOnDisk();
    await remote('other.org', 'theirs', 'aabbknown');
    const folder = `local_thumbnails/${mediaId.slice(0, 2)}/${mediaId.slice(2, 4)}/${mediaId.slice(4)}`;
    const kept = [
      'remote_content/other.org/aa/bb/known',
      'remote_content/third.org:8448/aa/bb/young',
      'local_content/zz/zz/unknown',
      // Nothing that this server would write.
      'remote_content/readme',
      'url_cache/2024-12-01/folder/file',
      `${folder}/notes.txt`,
      'lost+found/local_content/aa/bb/file',
    ];
    const strays = [
      'remote_content/third.org:8448/aa/bb/known',
      'remote_content/other.org/aa/bb/unknown',
      'remote_thumbnail/other.org/aa/bb/unknown/32-32-image-png-crop',
      'remote_thumbnail/other.org/aa/bb/known/32-32-image-png-crop',
      'local_thumbnails/zz/zz/unknown/32-32-image-png-crop',
      `${folder}/77-77-image-png-crop`,
      'url_cache/2024-12-01/image',
      'url_cache_thumbnails/2024-12-01/image/32-32-image-png-crop',
    ];
    for (const path of [...kept, ...strays]) await put(path, path.includes('young') ? 6 * day : old);

    const report = await media.get(StrayFiles).run();

    expect(await media.filesOnDisk()).toEqual([...own, ...kept].sort());
    expect(report).toEqual({
      ...{ thumbnailRows: 0, files: strays.length, missing: { files: 0, example: undefined } },
      uploads: { files: 1, sizeBytes: 11, example: 'local_content/zz/zz/unknown' },
    });
  });

  it('all go but those that the disk keeps', async () => {
    const strays = ['aa', 'bb', 'cc'].map((name) => `remote_content/other.org/zz/zz/${name}`);
    for (const path of strays) await put(path, 8 * day);
    const files = media.get(MediaFiles);
    const { remove } = files;
    let held: string | undefined;
    jest.spyOn(files, 'remove').mockImplementation((place) => {
      held ??= place.path;
      return place.path === held ? Promise.reject(new Error('EPERM')) : remove.call(files, place);
    });
    expect(await media.get(StrayFiles).run()).toMatchObject({ files: 2 });
    expect(await media.filesOnDisk()).toEqual([held]);
  });

  it('rows of thumbnails go when their file has none, with what they name', async () => {
    const kept = await media.upload(await picture(), 'image/png');
    const gone = await media.upload(await picture(), 'image/png');
    await media.get(Thumbnails).settled();
    const rows = (): Promise<{ media_id: string }[]> =>
      database.query('SELECT DISTINCT media_id FROM local_media_repository_thumbnails');
    expect(await rows()).toHaveLength(2);
    await database.write((tx) => tx.run('DELETE FROM local_media_repository WHERE media_id = ?', [gone.mediaId]), {
      name: 'test',
    });
    await database.write(
      (tx) =>
        tx.run(
          `INSERT INTO remote_media_cache_thumbnails (media_origin, media_id, thumbnail_width, thumbnail_height,
             thumbnail_method, thumbnail_type, thumbnail_length, filesystem_id)
           VALUES ('other.org', 'theirs', 32, 32, 'crop', 'image/png', 1, 'aabbtheirs')`,
        ),
      { name: 'test' },
    );
    await put('remote_thumbnail/other.org/aa/bb/theirs/32-32-image-png-crop', 0);

    expect(await media.get(StrayFiles).run()).toMatchObject({ thumbnailRows: 5, files: 0 });

    expect(await rows()).toEqual([{ media_id: kept.mediaId }]);
    expect(await database.query('SELECT 1 FROM remote_media_cache_thumbnails')).toEqual([]);
    const left = (await media.filesOnDisk()).filter((path) => path.includes('thumbnail'));
    expect(left.every((path) => path.includes(kept.mediaId.slice(4)))).toBe(true);
  });

  it('uploads whose files are not there are told of', async () => {
    const { mediaId } = await media.upload('x', 'text/plain');
    await clock.advance(1_000);
    await rm(join(media.folder, 'local_content'), { recursive: true });
    expect(await media.get(StrayFiles).run()).toMatchObject({ missing: { files: 1, example: mediaId } });
  });

  it('is looked for an hour after the start', async () => {
    await put('remote_content/other.org/aa/bb/unknown', 8 * day);
    await clock.advance(3_601_000);
    await eventually(async () => (await media.filesOnDisk()).length === 0);
  });
});
