import { Database } from '@rookery/database';
import { rm } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { MatrixError } from '@rookery/matrix-types';
import { eventually, eachDatabase, FakeClock } from '@rookery/testing';
import { MediaLibrary } from '../records/media-library.service.js';
import { buildMedia, fixtureMigrations, type MediaFixture } from '../media.fixture.js';
import { MediaRemoval } from '../moderation/media-removal.service.js';
import { Quarantine } from '../moderation/quarantine.service.js';
import { AccessTimes } from '../records/access-times.js';
import { Downloads, type DownloadRequest } from './downloads.service.js';
import { type RemoteFile, MediaPorts, RemoteMediaFetcher, type RemoteMediaRequest } from '../ports.js';

class Fetcher extends RemoteMediaFetcher {
  readonly asked: RemoteMediaRequest[] = [];
  answer: (request: RemoteMediaRequest) => RemoteFile | undefined = () => file('contents');
  async fetch(request: RemoteMediaRequest): Promise<RemoteFile | undefined> {
    this.asked.push(request);
    return this.answer(request);
  }
}

const file = (text: string, more: Partial<RemoteFile> = {}): RemoteFile => ({
  mediaType: 'text/plain',
  uploadName: 'a.txt',
  sizeBytes: text.length,
  body: Readable.from([Buffer.from(text)]),
  ...more,
});

eachDatabase('media of other servers', (open) => {
  let media: MediaFixture;
  let clock: FakeClock;
  let fetcher: Fetcher;
  const build = async (settings: Record<string, unknown> = {}): Promise<void> => {
    const { database, migrate } = await open();
    await migrate(fixtureMigrations);
    clock = new FakeClock();
    media = await buildMedia({ database, clock, settings });
    fetcher = new Fetcher();
    media.get(MediaPorts).remoteMedia.replace(fetcher);
  };
  afterEach(() => media?.close());

  const download = (more: Partial<DownloadRequest> = {}): DownloadRequest => ({
    server: 'other.example:8448',
    mediaId: 'abc-1',
    authenticated: true,
    timeoutMs: 1_000,
    ip: '192.0.2.1',
    signal: new AbortController().signal,
    ...more,
  });
  const get = async (more: Partial<DownloadRequest> = {}): Promise<string> => {
    const downloads = media.get(Downloads);
    const found = await downloads.find(download(more));
    const opened = await downloads.open(found, download(more));
    return Buffer.concat(await opened.stream().toArray()).toString();
  };
  const key = { origin: 'other.example:8448', mediaId: 'abc-1' };

  it('are fetched once, kept, and given to all', async () => {
    await build();
    expect(await Promise.all([get(), get(), get()])).toEqual(['contents', 'contents', 'contents']);
    expect(await get()).toBe('contents');
    expect(fetcher.asked).toEqual([{ ...key, maxBytes: 50 * 1024 ** 2, timeoutMs: 1_000 }]);
    expect(await media.get(MediaLibrary).find(key)).toMatchObject({
      ...{ mediaType: 'text/plain', uploadName: 'a.txt', sizeBytes: 8, authenticated: true, uploader: undefined },
    });
    expect(await media.filesOnDisk()).toEqual([
      expect.stringMatching(/^remote_content\/other\.example:8448\/[A-Za-z]{2}\/[A-Za-z]{2}\/[A-Za-z]{20}$/),
    ]);
  });

  it('are fetched again when their file is gone', async () => {
    await build();
    await get();
    await rm(`${media.folder}/remote_content`, { recursive: true });
    fetcher.answer = () => file('again');
    expect(await get()).toBe('again');
  });

  it('cannot be had while nobody reaches other servers', async () => {
    const { database, migrate } = await open();
    await migrate(fixtureMigrations);
    media = await buildMedia({ database, clock: new FakeClock() });
    await expect(get()).rejects.toMatchObject({ status: 404, errcode: 'M_NOT_FOUND' });
  });

  it('are not fetched for those who may not see them, or do not want them fetched', async () => {
    await build({ prevent_media_downloads_from: ['bad.example'] });
    await expect(get({ authenticated: false })).rejects.toMatchObject({ status: 404 });
    await expect(get({ allowRemote: false })).rejects.toMatchObject({ status: 404 });
    await expect(get({ server: 'bad.example' })).rejects.toMatchObject({ status: 404 });
    await expect(get({ server: '..' })).rejects.toMatchObject({ status: 404 });
    await expect(get({ mediaId: '../x' })).rejects.toMatchObject({ status: 404 });
    expect(fetcher.asked).toEqual([]);
  });

  const broken = async function* (): AsyncIterable<Uint8Array> {
    yield Buffer.from('half');
    throw new Error('the line was cut');
  };
  it.each([
    ['has no such file', () => undefined, 404, 'M_NOT_FOUND'],
    ['has it not yet', () => thrown(new MatrixError(504, 'M_NOT_YET_UPLOADED', 'x')), 504, 'M_NOT_YET_UPLOADED'],
    ['cannot be reached', () => thrown(new Error('no route')), 502, 'M_UNKNOWN'],
    ['breaks off', () => file('', { body: broken(), sizeBytes: undefined }), 502, 'M_UNKNOWN'],
    ['announces too much', () => file('x', { sizeBytes: 200_000 }), 502, 'M_TOO_LARGE'],
    ['sends too much', () => file('x'.repeat(200_000), { sizeBytes: undefined }), 502, 'M_TOO_LARGE'],
    ['sends more than announced', () => file('x'.repeat(200_000), { sizeBytes: 5 }), 502, 'M_TOO_LARGE'],
  ])('of a server that %s: nothing is kept', async (_, answer, status, errcode) => {
    await build({ max_upload_size: '100K' });
    fetcher.answer = answer;
    await expect(get()).rejects.toMatchObject({ status, errcode });
    expect(await media.filesOnDisk()).toEqual([]);
    expect(await media.get(MediaLibrary).find(key)).toBeUndefined();
    fetcher.answer = () => file('better now');
    expect(await get()).toBe('better now');
  });

  it('have a type and a name that mean no harm', async () => {
    await build();
    fetcher.answer = () => file('x', { mediaType: 'text/html\r\nx: y', uploadName: 'a\0\r\nb'.repeat(1_000) });
    await get();
    const found = await media.get(MediaLibrary).find(key);
    expect(found).toMatchObject({ mediaType: 'application/octet-stream', uploadName: 'ab'.repeat(500) });
  });

  it('count against what an address may fetch', async () => {
    await build({ remote_media_download_per_second: 100, remote_media_download_burst_count: '1K' });
    fetcher.answer = () => file('x'.repeat(800));
    await get({ mediaId: 'a' });
    await expect(get({ mediaId: 'b' })).rejects.toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    // Others, and what is here already, are not concerned.
    expect((await get({ mediaId: 'a' })).length).toBe(800);
    expect((await get({ mediaId: 'b', ip: '192.0.2.2' })).length).toBe(800);
    await clock.advance(8_000);
    expect((await get({ mediaId: 'c' })).length).toBe(800);
    // More than the whole share at once takes all of it.
    fetcher.answer = () => file('x'.repeat(5_000));
    expect((await get({ mediaId: 'd', ip: '192.0.2.3' })).length).toBe(5_000);
    await expect(get({ mediaId: 'e', ip: '192.0.2.3' })).rejects.toMatchObject({ status: 429 });
  });

  it('count by what came, whatever was announced and however it ended', async () => {
    await build({ remote_media_download_per_second: 100, remote_media_download_burst_count: '1K' });
    fetcher.answer = () => file('x'.repeat(900), { sizeBytes: 1 });
    expect((await get({ mediaId: 'small' })).length).toBe(900);
    fetcher.answer = () => file('x'.repeat(800));
    await expect(get({ mediaId: 'next' })).rejects.toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    const broken = async function* (): AsyncIterable<Uint8Array> {
      yield Buffer.from('x'.repeat(1_000));
      throw new Error('gone');
    };
    fetcher.answer = () => file('', { body: broken(), sizeBytes: undefined });
    await expect(get({ mediaId: 'broken', ip: '192.0.2.2' })).rejects.toMatchObject({ status: 502 });
    fetcher.answer = () => file('x'.repeat(800));
    await expect(get({ mediaId: 'next', ip: '192.0.2.2' })).rejects.toMatchObject({ status: 429 });
  });

  it('count a little where they cannot be had', async () => {
    await build({ remote_media_download_per_second: 1, remote_media_download_burst_count: 10 });
    fetcher.answer = () => undefined;
    for (let n = 0; n < 5; n++) await expect(get({ mediaId: `m${n}` })).rejects.toMatchObject({ status: 404 });
    fetcher.answer = () => {
      throw new Error('nobody there');
    };
    for (let n = 5; n < 10; n++) await expect(get({ mediaId: `m${n}` })).rejects.toMatchObject({ status: 502 });
    await expect(get({ mediaId: 'm10' })).rejects.toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    await expect(get({ mediaId: 'm10', ip: '192.0.2.2' })).rejects.toMatchObject({ status: 502 });
    await clock.advance(1_000);
    await expect(get({ mediaId: 'm10' })).rejects.toMatchObject({ status: 502 });
  });

  it('may be withheld before they are here, and stay withheld when they come', async () => {
    await build();
    const quarantine = media.get(Quarantine);
    expect(await quarantine.add([key], '@admin:example.org')).toBe(1);
    await expect(get()).rejects.toMatchObject({ status: 404 });
    expect(fetcher.asked).toEqual([]);
    expect(await quarantine.remove([key])).toBe(1);
    expect(await get()).toBe('contents');
    // As all that is fetched, it is for those who are logged in.
    await expect(get({ authenticated: false })).rejects.toMatchObject({ status: 404 });
    // What equals a withheld file of ours is withheld at once.
    const { mediaId } = await media.upload('bad', 'text/plain');
    await quarantine.add([{ origin: undefined, mediaId }], '@admin:example.org');
    fetcher.answer = () => file('bad');
    await expect(get({ mediaId: 'copy' })).rejects.toMatchObject({ status: 404 });
    expect((await quarantine.changesAfter(0, 10)).map(({ origin, quarantined }) => [origin, quarantined])).toEqual([
      [key.origin, true],
      [key.origin, false],
      [undefined, true],
    ]);
  });

  it('of one slow server do not keep those of others out', async () => {
    await build();
    const { promise, resolve } = Promise.withResolvers<void>();
    const asked: string[] = [];
    fetcher.fetch = async (request) => {
      asked.push(request.mediaId);
      if (request.origin === 'slow.example') await promise;
      return file(request.mediaId);
    };
    const users = ['@a:example.org', '@b:example.org', '@c:example.org', '@d:example.org'];
    const slow = users.flatMap((userId) =>
      Array.from({ length: 10 }, (_, i) => get({ server: 'slow.example', mediaId: `${userId[1]}${i}`, userId })),
    );
    await eventually(() => asked.length === 24);
    expect(await get({ mediaId: 'fine' })).toBe('fine');
    expect(asked.length).toBe(25);
    resolve();
    expect(await Promise.all(slow)).toHaveLength(40);
    expect(await get({ server: 'slow.example', mediaId: 'more' })).toBe('more');
  });

  it.each(['a user', 'a network'])(
    'that %s asks for many of do not keep others out, and come one after another',
    async (who) => {
      await build({ remote_media_downloads_per_user: 3 });
      const { promise, resolve } = Promise.withResolvers<void>();
      const asked: string[] = [];
      fetcher.fetch = async ({ mediaId }) => {
        asked.push(mediaId);
        if (mediaId.startsWith('slow')) await promise;
        return file(mediaId);
      };
      const one = (n: number): Partial<DownloadRequest> =>
        who === 'a user' ? { userId: '@a:example.org', ip: `192.0.2.${n}` } : { ip: `2001:db8::${n + 1}` };
      const slow = Array.from({ length: 40 }, (_, n) => get({ ...one(n), mediaId: `slow${n}` }));
      await eventually(() => asked.length === 3);
      expect(await get({ mediaId: 'fine', userId: '@b:example.org', ip: '192.0.2.1' })).toBe('fine');
      expect(asked.length).toBe(4);
      resolve();
      expect(await Promise.all(slow)).toEqual(slow.map((_, n) => `slow${n}`));
    },
  );

  it('for which there is no place are waited for, though neither too long nor by too many', async () => {
    await build({ remote_media_downloads_per_user: 1 });
    const { promise, resolve } = Promise.withResolvers<void>();
    const asked: string[] = [];
    fetcher.fetch = async ({ mediaId }) => {
      asked.push(mediaId);
      await promise;
      return file(mediaId);
    };
    const first = get({ mediaId: 'first' });
    await eventually(() => asked.length === 1);
    const refused: unknown[] = [];
    const waiting = Array.from({ length: 201 }, (_, n) =>
      get({ mediaId: `m${n}` }).catch((error: unknown) => void refused.push(error)),
    );
    await eventually(() => refused.length === 1);
    expect(refused[0]).toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    await clock.advance(30_000);
    await Promise.all(waiting);
    expect(refused).toHaveLength(201);
    expect(refused.at(-1)).toMatchObject({ status: 429, errcode: 'M_LIMIT_EXCEEDED' });
    resolve();
    expect(await first).toBe('first');
    expect(await get({ mediaId: 'm1' })).toBe('m1');
  });

  it('that are refused before they are read free their connection', async () => {
    await build({ remote_media_download_per_second: 1, remote_media_download_burst_count: 10 });
    let freed = false;
    const body = async function* (): AsyncIterable<Uint8Array> {
      try {
        yield Buffer.from('0123456');
        yield Buffer.from('789');
      } finally {
        freed = true;
      }
    };
    await get();
    fetcher.answer = () => file('0123456789', { body: body() });
    await expect(get({ mediaId: 'next' })).rejects.toMatchObject({ status: 429 });
    await eventually(() => freed);
  });

  it('are noted as used before whoever waits for that goes on, though it had begun already', async () => {
    await build();
    await get({ mediaId: 'used' });
    const database = media.get(Database);
    const write = database.write.bind(database);
    const held = Promise.withResolvers<void>();
    database.write = async (fn, options) => {
      if (options?.name === 'media_access_times') await held.promise;
      return write(fn, options);
    };
    const used = media.get(AccessTimes);
    used.note({ origin: key.origin, mediaId: 'used' });
    const begun = used.flush();
    let isOver = false;
    const waiting = used.flush().then(() => (isOver = true));
    await new Promise((resolve) => setImmediate(resolve));
    expect(isOver).toBe(false);
    held.resolve();
    await Promise.all([begun, waiting]);
    database.write = write;
  });

  it('go when nobody has used them for long', async () => {
    await build();
    await get({ mediaId: 'old' });
    await get({ mediaId: 'used' });
    await clock.advance(200_000);
    await get({ mediaId: 'used' });
    await media.get(AccessTimes).flush();
    const options = { includeQuarantined: true };
    expect(await media.get(MediaRemoval).deleteUnusedRemote(clock.nowMs() - 100_000, options)).toBe(1);
    expect((await media.filesOnDisk()).length).toBe(1);
    expect(await media.get(MediaLibrary).find({ ...key, mediaId: 'old' })).toBeUndefined();
    expect(await media.get(MediaLibrary).find({ ...key, mediaId: 'used' })).toBeDefined();
  });
});

function thrown(error: Error): never {
  throw error;
}
