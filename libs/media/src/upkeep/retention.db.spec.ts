import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Database } from '@rookery/database';
import { eventually, eachDatabase, FakeClock } from '@rookery/testing';
import sharp from 'sharp';
import { MediaLibrary } from '../records/media-library.service.js';
import { buildMedia, fixtureMigrations, type MediaFixture, requesterOf } from '../media.fixture.js';
import { MediaRemoval } from '../moderation/media-removal.service.js';
import { Quarantine } from '../moderation/quarantine.service.js';
import { Thumbnails } from '../thumbnails/thumbnails.service.js';
import { placeOf } from '../storage/file-place.js';
import { UploadService } from '../uploads/upload.service.js';
import { AccessTimes } from '../records/access-times.js';
import { MediaRetention } from './retention.service.js';

const hour = 3_600_000;

eachDatabase('old media', (open) => {
  let media: MediaFixture;
  let clock: FakeClock;
  let database: Database;
  const build = async (settings: Record<string, unknown> = {}): Promise<void> => {
    const opened = await open();
    ({ database } = opened);
    await opened.migrate(fixtureMigrations);
    clock = new FakeClock();
    media = await buildMedia({ database, clock, settings });
  };
  afterEach(() => media?.close());
  const left = async (): Promise<string[]> => {
    const { media: list } = await media.get(MediaLibrary).ofUser('@alice:example.org', { offset: 0, limit: 100 });
    return list.map(({ mediaId }) => mediaId).sort();
  };

  it('goes after its time: but what is used, withheld, protected or an avatar', async () => {
    await build({ media_retention: { local_media_lifetime: '30h' } });
    const ids: Record<string, string> = {};
    for (const name of ['old', 'used', 'withheld', 'protected', 'avatar'])
      ids[name] = (await media.upload(name, 'text/plain')).mediaId;
    const quarantine = media.get(Quarantine);
    await quarantine.add([{ origin: undefined, mediaId: ids['withheld'] ?? '' }], '@admin:example.org');
    const guarded = { origin: undefined, mediaId: ids['protected'] ?? '' };
    await quarantine.protect(guarded.mediaId, true);
    expect(await quarantine.add([guarded], '@admin:example.org')).toBe(0);
    expect(await quarantine.addOfUser('@alice:example.org', '@admin:example.org')).toBe(3);
    const others = ['old', 'used', 'avatar'].map((name) => ({ origin: undefined, mediaId: ids[name] ?? '' }));
    expect(await quarantine.remove(others)).toBe(3);
    expect(await media.get(MediaLibrary).find(guarded)).toMatchObject({ safeFromQuarantine: true });
    media.get(MediaRemoval).addAvatarUses(async (uris) => {
      return new Set(uris.filter((uri) => uri === `mxc://example.org/${ids['avatar']}`));
    });
    await clock.advance(20 * hour);
    media.get(AccessTimes).note({ origin: undefined, mediaId: ids['used'] ?? '' });
    await media.get(AccessTimes).flush();
    await clock.advance(11 * hour);
    await media.get(MediaRetention).run(new AbortController().signal);
    expect(await left()).toEqual(
      Object.entries(ids)
        .filter(([name]) => name !== 'old')
        .map(([, id]) => id)
        .sort(),
    );
    // The round of the hour may have taken the row, and be about to take the file.
    await eventually(async () => (await media.filesOnDisk()).length === 4);
  });

  it('stays where the settings say nothing', async () => {
    await build();
    await media.upload('x', 'text/plain');
    await clock.advance(100 * hour);
    await media.get(MediaRetention).run(new AbortController().signal);
    expect((await left()).length).toBe(1);
  });

  it('is looked for once an hour', async () => {
    await build({ media_retention: { local_media_lifetime: '30m' } });
    await media.upload('x', 'text/plain');
    await clock.advance(3_599_000);
    expect((await left()).length).toBe(1);
    await clock.advance(2_000);
    await eventually(async () => (await left()).length === 0);
  });

  /** Nobody, root neither, can unlink a folder. */
  const block = async (mediaId: string): Promise<void> => {
    const known = await media.get(MediaLibrary).find({ origin: undefined, mediaId });
    const path = join(media.folder, placeOf(known!).path);
    await rm(path, { force: true });
    await mkdir(join(path, 'in it'), { recursive: true });
  };

  it('goes where a file cannot be removed, but for that file', async () => {
    await build({ media_retention: { local_media_lifetime: '30h' } });
    const upload = async () => (await media.upload('x', 'text/plain')).mediaId;
    const uploads = [await upload(), await upload(), await upload()].sort();
    const images = [await upload(), await upload(), await upload()].sort();
    await database.write((tx) =>
      tx.run(`UPDATE local_media_repository SET url_cache = 'https://x' WHERE ${tx.dialect.anyOf('media_id')}`, [
        images,
      ]),
    );
    await block(uploads[0]!);
    await block(images[0]!);
    await clock.advance(72 * hour);
    await media.get(MediaRetention).run(new AbortController().signal);
    const rows = await database.query<{ media_id: string }>('SELECT media_id FROM local_media_repository');
    expect(rows.map((row) => row.media_id).sort()).toEqual([uploads[0], images[0]].sort());
    await expect(media.get(MediaRemoval).deleteLocal([uploads[0]!])).rejects.toMatchObject({ status: 500 });
    expect(await left()).toContain(uploads[0]);
  });

  it('of one kind goes where that of another cannot be told', async () => {
    await build({ media_retention: { local_media_lifetime: '30h' } });
    const { mediaId } = await media.upload('x', 'text/plain');
    await media.upload('y', 'text/plain');
    await database.write((tx) =>
      tx.run(`UPDATE local_media_repository SET url_cache = 'https://x' WHERE media_id = ?`, [mediaId]),
    );
    media.get(MediaRemoval).addAvatarUses(() => Promise.reject(new Error('a mistake')));
    await clock.advance(72 * hour);
    await media.get(MediaRetention).run(new AbortController().signal);
    expect(await database.query('SELECT url_cache FROM local_media_repository')).toEqual([{ url_cache: null }]);
  });

  it('takes its thumbnails and rows along', async () => {
    await build();
    const bytes = await sharp({ create: { width: 400, height: 300, channels: 3, background: 'red' } })
      .png()
      .toBuffer();
    const { mediaId } = await media.upload(bytes, 'image/png');
    await media.get(Thumbnails).settled();
    expect((await media.filesOnDisk()).length).toBe(5);
    expect(await media.get(MediaRemoval).deleteLocal([mediaId, 'unknown', mediaId])).toEqual([mediaId]);
    expect(await media.filesOnDisk()).toEqual([]);
    expect(await database.query('SELECT * FROM local_media_repository_thumbnails')).toEqual([]);
  });

  it('may be chosen by size and age', async () => {
    await build();
    const small = await media.upload('x', 'text/plain');
    const large = await media.upload('x'.repeat(1_000), 'text/plain');
    await clock.advance(1_000);
    const all = { keepAvatars: false, includeQuarantined: true, includeProtected: true };
    const removal = media.get(MediaRemoval);
    const unusedSinceTs = clock.nowMs();
    expect(
      await removal.deleteUnusedLocal({ ...all, unusedSinceTs: unusedSinceTs - 1_000, largerThanBytes: 0 }),
    ).toEqual([]);
    expect(await removal.deleteUnusedLocal({ ...all, unusedSinceTs, largerThanBytes: 1 })).toEqual([large.mediaId]);
    expect(await left()).toEqual([small.mediaId]);
  });

  it('leaves nothing of reserved ids that were never used', async () => {
    await build({ unused_expiration_time: '1h', max_pending_media_uploads: 1 });
    const uploads = media.get(UploadService);
    const alice = requesterOf('@alice:example.org');
    const { uri, expiresTs } = await uploads.reserve(alice);
    expect(expiresTs - clock.nowMs()).toBe(3_600_000);
    await expect(uploads.reserve(alice)).rejects.toMatchObject({ status: 429, extra: { retry_after_ms: 3_600_000 } });
    await clock.advance(3_600_001);
    const late = {
      body: Readable.from([Buffer.from('x')]),
      mediaType: 'text/plain',
      sizeBytes: 1,
      uploadName: undefined,
    };
    await expect(uploads.fill(alice, 'example.org', uri.split('/').at(-1) ?? '', late)).rejects.toMatchObject({
      status: 404,
    });
    await media.get(MediaRetention).run(new AbortController().signal);
    expect(await database.query('SELECT * FROM local_media_repository')).toEqual([]);
    await uploads.reserve(alice);
  });

  it('is withheld by its owner as a whole', async () => {
    await build();
    for (let i = 0; i < 5; i++) await media.upload(`file ${i}`, 'text/plain', '@spammer:example.org');
    const other = await media.upload('fine', 'text/plain');
    const quarantine = media.get(Quarantine);
    expect(await quarantine.addOfUser('@spammer:example.org', '@admin:example.org')).toBe(5);
    expect(await quarantine.addOfUser('@spammer:example.org', '@admin:example.org')).toBe(0);
    expect((await media.get(MediaLibrary).find(other))?.quarantinedBy).toBeUndefined();
    expect(await quarantine.position()).toBe((await quarantine.changesAfter(0, 100)).at(-1)?.streamId);
    await expect(quarantine.protect('unknown', true)).rejects.toMatchObject({ status: 404 });
  });
});
