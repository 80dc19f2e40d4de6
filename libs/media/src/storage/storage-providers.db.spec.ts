import { mkdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MediaFileInfo, MediaServerSettings, MediaStorageProvider } from '@rookery/module-api';
import { ModuleDispatcher, ModuleRegistry } from '@rookery/module-host';
import { SystemClock } from '@rookery/platform';
import { eachDatabase, eventually } from '@rookery/testing';
import { MediaLibrary } from '../records/media-library.service.js';
import { buildMedia, fixtureMigrations, type MediaFixture } from '../media.fixture.js';
import { MediaRemoval } from '../moderation/media-removal.service.js';
import type { MediaKey } from '../records/media.js';
import { placeOf } from './file-place.js';
import { MediaFiles } from './media-files.js';
import { StorageProviders } from './storage-providers.js';

/** Keeps files in memory, and does as it is told. */
class MemoryProvider implements MediaStorageProvider {
  readonly files = new Map<string, Buffer>();
  readonly infos: MediaFileInfo[] = [];
  delay: Promise<void> = Promise.resolve();
  failure: Error | undefined;
  fetches = 0;

  async storeFile(path: string, info: MediaFileInfo, localPath: string): Promise<void> {
    await this.delay;
    if (this.failure) throw this.failure;
    this.files.set(path, await readFile(localPath));
    this.infos.push(info);
  }
  async fetch(path: string): Promise<AsyncIterable<Uint8Array> | undefined> {
    this.fetches++;
    if (this.failure) throw this.failure;
    const found = this.files.get(path);
    return (
      found &&
      (async function* () {
        yield found;
      })()
    );
  }
  async remove(path: string): Promise<void> {
    this.files.delete(path);
  }
}

/** One that has read the file before it is slow to store it. */
function readLater(provider: MemoryProvider): { count: number } {
  const read = { count: 0 };
  provider.storeFile = async (path, _info, localPath) => {
    const contents = await readFile(localPath);
    read.count++;
    await provider.delay;
    provider.files.set(path, contents);
  };
  return read;
}

eachDatabase('storage providers', (open) => {
  let media: MediaFixture;
  let first: MemoryProvider;
  let second: MemoryProvider;
  let made: { readonly name: string; readonly config: unknown; readonly server: MediaServerSettings }[];

  const build = async (settings: Record<string, unknown>): Promise<void> => {
    first = new MemoryProvider();
    second = new MemoryProvider();
    made = [];
    const modules = new ModuleDispatcher();
    const factories = new Map(
      Object.entries({ first, second }).map(([name, provider]) => {
        const create = (config: unknown, server: MediaServerSettings): MediaStorageProvider => {
          made.push({ name, config, server });
          return provider;
        };
        return [name, { module: name, create }];
      }),
    );
    modules.install({
      ...new ModuleRegistry(() => {}).seal(),
      providers: { mediaStorage: factories, oidcMapping: new Map(), samlMapping: new Map() },
    });
    const { database, migrate } = await open();
    await migrate(fixtureMigrations);
    media = await buildMedia({ database, clock: new SystemClock(), settings, modules });
  };
  afterEach(() => media?.close());

  const read = async (key: MediaKey): Promise<string | undefined> => {
    const found = await media.get(MediaLibrary).find(key);
    const opened = found && (await media.get(MediaFiles).open(placeOf(found)));
    return opened && Buffer.concat(await opened.stream().toArray()).toString();
  };
  const pathOf = ({ mediaId }: MediaKey): string =>
    `local_content/${mediaId.slice(0, 2)}/${mediaId.slice(2, 4)}/${mediaId.slice(4)}`;
  const both = { store_local: true, store_remote: true };

  it('get the files they want, and give them back when the disk has lost them', async () => {
    await build({
      media_storage_providers: [
        { module: 'first', store_remote: true },
        { module: 'second', store_local: true, store_synchronous: true },
      ],
    });
    const key = await media.upload('contents', 'text/plain');
    expect([...second.files.keys()]).toEqual([pathOf(key)]);
    expect(second.infos).toEqual([{ serverName: undefined, fileId: key.mediaId, urlCache: false }]);
    expect(first.files.size).toBe(0);
    await rm(join(media.folder, pathOf(key)));
    expect(await Promise.all([read(key), read(key), read(key)])).toEqual(['contents', 'contents', 'contents']);
    // Asked in order, and once for all three.
    expect([first.fetches, second.fetches]).toEqual([1, 1]);
    expect(await media.filesOnDisk()).toEqual([pathOf(key)]);
    await media.get(MediaRemoval).deleteLocal([key.mediaId]);
    expect(second.files.size).toBe(0);
    expect(await media.filesOnDisk()).toEqual([]);
  });

  it('are made from settings of their own, and told what the server’s say of media', async () => {
    const config = { container: 'tapes' };
    await build({
      public_baseurl: 'https://matrix.example.org',
      enable_local_media_storage: true,
      max_upload_size: '10M',
      max_image_pixels: '1M',
      thumbnail_sizes: [{ width: 32, height: 16, method: 'crop' }],
      media_upload_limits: [{ time_period: '1d', max_size: '100M', info_uri: 'https://example.org/more' }],
      media_retention: { remote_media_lifetime: '90d' },
      media_storage_providers: [
        { module: 'first', ...both, config },
        { module: 'second', ...both },
      ],
    });
    const server: MediaServerSettings = {
      serverName: 'example.org',
      publicBaseurl: 'https://matrix.example.org/',
      configDir: media.folder,
      mediaStorePath: media.folder,
      keepsLocalFiles: true,
      maxUploadBytes: 10 * 1024 ** 2,
      maxImagePixels: 1024 ** 2,
      dynamicThumbnails: false,
      thumbnailSizes: [{ widthPx: 32, heightPx: 16, method: 'crop' }],
      uploadLimits: [
        {
          maxBytes: 100 * 1024 ** 2,
          timePeriodMs: 86_400_000,
          infoUri: 'https://example.org/more',
          canUpgrade: undefined,
        },
      ],
      localMediaLifetimeMs: undefined,
      remoteMediaLifetimeMs: 90 * 86_400_000,
    };
    expect(made).toEqual([
      { name: 'first', config, server },
      { name: 'second', config: undefined, server },
    ]);
  });

  it('are not waited for where nobody says so, and may fail', async () => {
    await build({
      media_storage_providers: [
        { module: 'first', ...both },
        { module: 'second', ...both },
      ],
    });
    let go = (): void => {};
    first.delay = new Promise((resolve) => (go = resolve));
    second.failure = new Error('no space');
    const key = await media.upload('contents', 'text/plain');
    expect(first.files.size).toBe(0);
    go();
    await media.get(StorageProviders).settled();
    expect(first.files.size).toBe(1);
    expect(await read(key)).toBe('contents');
  });

  it('that are to be waited for let an upload fail, and nothing is kept', async () => {
    await build({ media_storage_providers: [{ module: 'first', store_local: true, store_synchronous: true }] });
    first.failure = new Error('no space');
    await expect(media.upload('contents', 'text/plain')).rejects.toThrow('no space');
    expect(await media.filesOnDisk()).toEqual([]);
    expect((await media.get(MediaLibrary).ofUser('@alice:example.org', { offset: 0, limit: 1 })).total).toBe(0);
    // One that fails is passed over when a file is looked for.
    first.failure = undefined;
    const key = await media.upload('contents', 'text/plain');
    first.failure = new Error('unplugged');
    expect(await read(key)).toBe('contents');
    await rm(join(media.folder, pathOf(key)));
    expect(await read(key)).toBe(undefined);
  });

  it('keep nothing of what was deleted while they were still storing it', async () => {
    await build({ media_storage_providers: [{ module: 'first', store_local: true }] });
    const { promise, resolve } = Promise.withResolvers<void>();
    first.delay = promise;
    const read = readLater(first);
    const key = await media.upload('contents', 'text/plain');
    await eventually(() => read.count === 1);
    expect(await media.get(MediaRemoval).deleteLocal([key.mediaId])).toEqual([key.mediaId]);
    resolve();
    await media.get(StorageProviders).settled();
    expect(first.files.size).toBe(0);
  });

  it('keep everything where the disk is to keep nothing', async () => {
    await build({
      enable_local_media_storage: false,
      media_storage_providers: [
        { module: 'first', ...both },
        { module: 'second', store_local: true },
      ],
    });
    const key = await media.upload('contents', 'text/plain');
    // There is no other copy: both were waited for.
    expect([first.files.size, second.files.size]).toEqual([1, 1]);
    await media.get(StorageProviders).settled();
    expect(await media.filesOnDisk()).toEqual([]);
    first.failure = new Error('unplugged');
    expect(await read(key)).toBe('contents');
    await new Promise((resolve) => setTimeout(resolve, 50));
    await eventually(async () => (await media.filesOnDisk()).length === 0);
  });

  it('leftovers of a crash go, what is arriving stays', async () => {
    await build({});
    const folder = join(media.folder, 'tmp');
    await mkdir(folder);
    for (const name of ['old', 'new']) await writeFile(join(folder, name), 'x');
    await utimes(join(folder, 'old'), new Date(), new Date(Date.now() - 90_000_000));
    const key = await media.upload('contents', 'text/plain');
    expect(await media.filesOnDisk()).toEqual([pathOf(key), 'tmp/new']);
  });

  it('may be another folder', async () => {
    await build({
      media_storage_providers: [
        { module: 'file_system', store_local: true, store_synchronous: true, config: { directory: 'elsewhere' } },
      ],
    });
    const key = await media.upload('contents', 'text/plain');
    expect(await media.filesOnDisk()).toEqual([`elsewhere/${pathOf(key)}`, pathOf(key)]);
    await rm(join(media.folder, pathOf(key)));
    expect(await read(key)).toBe('contents');
  });

  it.each([
    [{ module: 'unknown' }, 'no module provides a media storage of this name'],
    [{ module: 'file_system' }, "'config.directory' must name a folder"],
  ])('that do not exist stop the start: %j', async (setting, problem) => {
    await expect(build({ media_storage_providers: [setting] })).rejects.toThrow(problem);
  });
});
