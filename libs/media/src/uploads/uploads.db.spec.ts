import { Database, DatabaseBesideWriter } from '@rookery/database';
import { statSync } from 'node:fs';
import { mkdtemp, readdir, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { OnlyAtWriterError } from '@rookery/platform';
import { eachDatabase, FakeClock } from '@rookery/testing';
import { AvatarRules } from '../avatars/avatar-rules.js';
import { Downloads } from '../downloads/downloads.service.js';
import { buildMedia, fixtureMigrations, type MediaFixture, requesterOf } from '../media.fixture.js';
import { Quarantine } from '../moderation/quarantine.service.js';
import { MediaLibrary } from '../records/media-library.service.js';
import { placeOf } from '../storage/file-place.js';
import { MediaFiles } from '../storage/media-files.js';
import type { IncomingFile } from './incoming-file.js';
import { UploadService } from './upload.service.js';

const alice = requesterOf('@alice:example.org');

const memory = '/dev/shm';
const hasOtherDisk = statSync(memory, { throwIfNoEntry: false })?.dev !== statSync(tmpdir()).dev;
const withOtherDisk = hasOtherDisk && statSync(memory, { throwIfNoEntry: false })?.isDirectory() ? it : it.skip;

eachDatabase('uploads', (open) => {
  let media: MediaFixture;
  let clock: FakeClock;
  const build = async (settings: Record<string, unknown> = {}): Promise<void> => {
    const { database, migrate } = await open();
    await migrate(fixtureMigrations);
    clock = new FakeClock();
    media = await buildMedia({ database, clock, settings });
  };
  afterEach(() => media?.close());
  const file = (body: Readable, sizeBytes?: number): IncomingFile => ({
    ...{ body, sizeBytes, mediaType: 'text/plain', uploadName: undefined },
  });

  it('are held to limits by period, of which each counts', async () => {
    await build({
      media_upload_limits: [
        { time_period: '1h', max_size: 100 },
        { time_period: '1d', max_size: 150 },
      ],
    });
    const upload = (size: number): Promise<unknown> => media.upload('x'.repeat(size), 'text/plain');
    await upload(60);
    await expect(upload(41)).rejects.toMatchObject({ status: 403, errcode: 'M_USER_LIMIT_EXCEEDED' });
    await upload(40);
    await media.upload('x'.repeat(100), 'text/plain', '@bob:example.org');
    await clock.advance(3_600_001);
    await expect(upload(51)).rejects.toMatchObject({ status: 403 });
    await upload(50);
    await clock.advance(86_400_001);
    await upload(100);
  });

  it('cannot pass the limit side by side', async () => {
    await build({ media_upload_limits: [{ time_period: '1h', max_size: 100 }] });
    const results = await Promise.allSettled(
      Array.from({ length: 10 }, () => media.upload('x'.repeat(40), 'text/plain')),
    );
    expect(results.filter(({ status }) => status === 'fulfilled').length).toBe(2);
    expect((await media.filesOnDisk()).length).toBe(2);
  });

  it('are added up by one process of several, and read by none before', async () => {
    await build({ media_upload_limits: [{ time_period: '1h', max_size: 100 }] });
    const beside = await buildMedia({
      ...{ database: new DatabaseBesideWriter(media.get(Database)), clock },
      settings: { media_upload_limits: [{ time_period: '1h', max_size: 100 }] },
    });
    const free = await buildMedia({ database: new DatabaseBesideWriter(media.get(Database)), clock });
    try {
      const body = Readable.from([Buffer.alloc(40)]);
      await expect(beside.get(UploadService).upload(alice, file(body, 40))).rejects.toThrow(OnlyAtWriterError);
      expect(body.readableDidRead).toBe(false);
      await free.upload('x'.repeat(40), 'text/plain');
    } finally {
      await beside.close();
      await free.close();
    }
  });

  it('to ids that were reserved long before count when they come', async () => {
    await build({ media_upload_limits: [{ time_period: '1h', max_size: 100 }] });
    const uploads = media.get(UploadService);
    const ids: string[] = [];
    for (let n = 0; n < 3; n++) ids.push((await uploads.reserve(alice)).uri.split('/').at(-1)!);
    await clock.advance(3_600_001);
    const fill = (mediaId: string): Promise<void> =>
      uploads.fill(alice, 'example.org', mediaId, file(Readable.from([Buffer.alloc(40)]), 40));
    await fill(ids[0]!);
    await fill(ids[1]!);
    await expect(fill(ids[2]!)).rejects.toMatchObject({ status: 403, errcode: 'M_USER_LIMIT_EXCEEDED' });
  });

  it('to a reserved id are waited for no longer than they are taken', async () => {
    await build({ unused_expiration_time: '1h' });
    const { uri, expiresTs } = await media.get(UploadService).reserve(alice);
    expect(expiresTs - clock.nowMs()).toBe(3_600_000);
    const asked = { server: 'example.org', mediaId: uri.split('/').at(-1)!, authenticated: true, timeoutMs: 0, ip: '' };
    const find = (): Promise<unknown> => media.get(Downloads).find({ ...asked, signal: new AbortController().signal });
    await clock.jump(3_599_999);
    await expect(find()).rejects.toMatchObject({ status: 504, errcode: 'M_NOT_YET_UPLOADED' });
    await clock.jump(1);
    await expect(find()).rejects.toMatchObject({ status: 404, errcode: 'M_NOT_FOUND' });
  });

  it('to a reserved id never take the place of one that came first', async () => {
    await build();
    const uploads = media.get(UploadService);
    const mediaId = (await uploads.reserve(alice)).uri.split('/').at(-1)!;
    const database = media.get(Database);
    const get = database.get.bind(database);
    const fill = (text: string): Promise<void> =>
      uploads.fill(alice, 'example.org', mediaId, file(Readable.from([Buffer.from(text)]), text.length));
    // The second has looked before the first came, and hears of it only now.
    let first: Promise<void> | undefined;
    database.get = async <Row>(...query: Parameters<typeof get>) => {
      const row = await get<Row>(...query);
      if (first === undefined) {
        first = Promise.resolve();
        first = fill('first');
        await first;
      }
      return row;
    };
    await expect(fill('second')).rejects.toMatchObject({ status: 409, errcode: 'M_CANNOT_OVERWRITE_MEDIA' });
    await first;
    expect((await media.filesOnDisk()).length).toBe(1);
  });

  withOtherDisk('go to another disk, where their folder is a link to one', async () => {
    await build();
    const other = await mkdtemp(join(memory, 'rookery-media-'));
    try {
      await symlink(other, join(media.folder, 'local_content'));
      const key = await media.upload('contents', 'text/plain');
      const found = await media.get(MediaLibrary).find(key);
      const opened = found && (await media.get(MediaFiles).open(placeOf(found)));
      expect(Buffer.concat((await opened?.stream().toArray()) ?? []).toString()).toBe('contents');
      const names = (await readdir(other, { recursive: true, withFileTypes: true })).filter((one) => one.isFile());
      expect(names.map(({ name }) => name)).toEqual([key.mediaId.slice(4)]);
      expect(await readdir(join(media.folder, 'tmp'))).toEqual([]);
    } finally {
      await rm(other, { recursive: true });
    }
  });

  it('are listed with what has no value last', async () => {
    await build();
    const uploads = media.get(UploadService);
    for (const uploadName of ['b', undefined, 'a'])
      await uploads.upload(alice, { ...file(Readable.from([Buffer.from('x')]), 1), uploadName });
    const names = async (descending: boolean): Promise<unknown> => {
      const page = { offset: 0, limit: 10, orderBy: 'upload_name', descending } as const;
      return (await media.get(MediaLibrary).ofUser(alice.userId, page)).media.map((one) => one.uploadName);
    };
    expect(await names(false)).toEqual(['a', 'b', undefined]);
    expect(await names(true)).toEqual([undefined, 'b', 'a']);
  });

  it('keep their file where nobody can say whether they were recorded', async () => {
    await build();
    const uploads = media.get(UploadService);
    const database = media.get(Database);
    const { write } = database;
    const happened: boolean[] = [];
    const unanswered = (isThere: boolean): void => {
      database.write = async (fn, options) => {
        if (options?.name !== 'store_media') return write.call(database, fn, options) as ReturnType<typeof fn>;
        await write.call(
          database,
          async (tx) => {
            const result = await fn(tx);
            if (!isThere) throw new Error('Connection terminated');
            return result;
          },
          options,
        );
        happened.push((await options.happened?.(database)) ?? false);
        throw new Error('Connection terminated');
      };
    };
    const reserved = (await uploads.reserve(alice)).uri.split('/').at(-1)!;
    const each = [
      (): Promise<unknown> => media.upload('one', 'text/plain'),
      () => uploads.fill(alice, 'example.org', reserved, file(Readable.from([Buffer.from('two')]), 3)),
    ];
    unanswered(false);
    for (const upload of each) await expect(upload()).rejects.toThrow('terminated');
    expect(await media.filesOnDisk()).toEqual([]);
    unanswered(true);
    for (const upload of each) await expect(upload()).rejects.toThrow('terminated');
    database.write = write;
    expect(happened).toEqual([true, true]);
    expect(await media.filesOnDisk()).toHaveLength(2);
  });

  it('are withheld where what equals them becomes so while they are stored', async () => {
    await build();
    const database = media.get(Database);
    const files = media.get(MediaFiles);
    const quarantine = media.get(Quarantine);
    const { keep } = files;
    const reserved = (await media.get(UploadService).reserve(alice)).uri.split('/').at(-1)!;
    const others: Record<string, () => Promise<string>> = {
      upload: async () => (await media.upload('upload', 'text/plain')).mediaId,
      fill: async () => {
        const body = file(Readable.from([Buffer.from('fill')]), 4);
        await media.get(UploadService).fill(alice, 'example.org', reserved, body);
        return reserved;
      },
    };
    for (const [text, upload] of Object.entries(others)) {
      const first = await media.upload(text, 'text/plain');
      files.keep = async (...file) => {
        await keep.apply(files, file);
        await quarantine.add([first], '@admin:example.org');
      };
      const mediaId = await upload();
      files.keep = keep;
      const found = await media.get(MediaLibrary).find({ origin: undefined, mediaId });
      expect([text, found?.quarantinedBy]).toEqual([text, 'system']);
    }
    // One that is recorded before the quarantine has ended waits for it.
    const first = await media.upload('side by side', 'text/plain');
    const { write } = database;
    const withholding = Promise.withResolvers<void>();
    const second = withholding.promise.then(() => media.upload('side by side', 'text/plain'));
    database.write = async (fn, options) =>
      write.call(
        database,
        async (tx) => {
          const result = await fn(tx);
          if (options?.name === 'quarantine_media') {
            withholding.resolve();
            await Promise.race([second, new Promise((resolve) => setTimeout(resolve, 500))]);
          }
          return result;
        },
        options,
      ) as ReturnType<typeof fn>;
    await quarantine.add([first], '@admin:example.org');
    database.write = write;
    expect((await media.get(MediaLibrary).find(await second))?.quarantinedBy).toBeDefined();
  });

  it('that trickle are cut off', async () => {
    await build();
    const body = new Readable({ read: () => {} });
    let settled = false;
    const uploading = media.get(UploadService).upload(alice, file(body, 1_000_000));
    const refused = expect(uploading.finally(() => (settled = true))).rejects.toMatchObject({ status: 408 });
    for (let i = 0; i < 2_000 && !settled; i++) {
      body.push('slow');
      await new Promise((resolve) => setTimeout(resolve, 2));
      await clock.advance(10_000);
    }
    await refused;
    expect(await media.filesOnDisk()).toEqual([]);
  });

  it('of one user are so many at once, and no more', async () => {
    await build();
    const uploads = media.get(UploadService);
    const bodies = Array.from({ length: 50 }, () => new Readable({ read: () => {} }));
    const running = bodies.map((body) => uploads.upload(alice, file(body)));
    await expect(media.upload('x', 'text/plain')).rejects.toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    await media.upload('x', 'text/plain', '@bob:example.org');
    for (const body of bodies) body.push(null);
    await Promise.all(running);
    await media.upload('x', 'text/plain');
  });

  it('that break off leave nothing', async () => {
    await build();
    const body = new Readable({ read: () => {} }).on('error', () => {});
    const uploading = media.get(UploadService).upload(alice, file(body));
    const refused = expect(uploading).rejects.toMatchObject({ status: 400, errcode: 'M_UNKNOWN' });
    body.push('half');
    for (let i = 0; i < 500 && (await media.filesOnDisk()).length === 0; i++)
      await new Promise((resolve) => setTimeout(resolve, 5));
    body.destroy(Object.assign(new Error('aborted'), { code: 'ECONNRESET' }));
    await refused;
    expect(await media.filesOnDisk()).toEqual([]);
  });

  it('that are too large are given up without a rest', async () => {
    await build({ max_upload_size: 10 });
    const body = Readable.from([Buffer.alloc(8), Buffer.alloc(8)]);
    await expect(media.get(UploadService).upload(alice, file(body))).rejects.toMatchObject({ status: 413 });
    expect(await media.filesOnDisk()).toEqual([]);
  });

  it('may be avatars where the settings say so', async () => {
    await build({ max_avatar_size: 10, allowed_avatar_mimetypes: ['image/png'] });
    const check = async (bytes: string, type: string): Promise<void> => {
      const { mediaId } = await media.upload(bytes, type);
      return media.get(AvatarRules).check(`mxc://example.org/${mediaId}`);
    };
    await check('small', 'IMAGE/png; x=y');
    await expect(check('small', 'image/jpeg')).rejects.toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
    await expect(check('much too large', 'image/png')).rejects.toMatchObject({ status: 403 });
    const rules = media.get(AvatarRules);
    await expect(rules.check('mxc://example.org/unknown')).rejects.toMatchObject({ status: 403 });
    await expect(rules.check('https://example.org/x.png')).rejects.toMatchObject({ status: 403 });
    await rules.check(undefined);
  });

  it('may all be avatars where they say nothing', async () => {
    await build();
    await media.get(AvatarRules).check('mxc://elsewhere.example/unknown');
  });
});
