import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { type Database, databaseMigrations } from '@rookery/database';
import type { OutboundHttp } from '@rookery/http';
import type { ModuleDispatcher } from '@rookery/module-host';
import type { Clock, Requester } from '@rookery/platform';
import { replicationMigrations } from '@rookery/replication';
import { createTestModule } from '@rookery/testing/internal';
import { usersMigrations } from '@rookery/users';
import { MediaModule, MediaUpkeepModule } from './media.module.js';
import { mediaMigrations } from './migrations/index.js';
import type { MediaKey } from './records/media.js';
import { UploadService } from './uploads/upload.service.js';

/** Every table that this lib's modules need. */
export const fixtureMigrations = [
  ...databaseMigrations,
  ...replicationMigrations,
  ...usersMigrations,
  ...mediaMigrations,
];

/** The lib's own Nest modules, as the app builds them, over a given database and a folder of their own. For this lib's tests. */
export interface MediaFixture {
  readonly folder: string;
  get<T>(type: abstract new (...args: never[]) => T): T;
  /** Uploads as a user; `@alice:example.org` unless told. */
  upload(bytes: Uint8Array | string, mediaType: string, userId?: string): Promise<MediaKey>;
  /** Every file below the media store, sorted. */
  filesOnDisk(): Promise<string[]>;
  close(): Promise<void>;
}

/** A user without anything special. */
export const requesterOf = (userId: string): Requester => ({
  userId,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
});

export async function buildMedia(parts: {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly modules?: ModuleDispatcher;
  readonly outbound?: OutboundHttp;
}): Promise<MediaFixture> {
  const folder = await mkdtemp(join(tmpdir(), 'rookery-media-'));
  const { settings, ...given } = parts;
  const { get, lifecycle, close } = await createTestModule({
    imports: [MediaModule, MediaUpkeepModule],
    settings: { media_store_path: folder, ...settings },
    configDir: folder,
    ...given,
  });
  await lifecycle.start();
  let closed = false;
  return {
    folder,
    get,
    async upload(bytes, mediaType, userId = '@alice:example.org') {
      const body = Readable.from([Buffer.from(bytes)]);
      const uri = await get(UploadService).upload(requesterOf(userId), {
        ...{ body, mediaType, sizeBytes: bytes.length, uploadName: undefined },
      });
      return { origin: undefined, mediaId: uri.split('/').at(-1) ?? '' };
    },
    filesOnDisk: async () => (await filesBelow(folder)).map((path) => path.slice(folder.length + 1)).sort(),
    async close() {
      if (closed) return;
      closed = true;
      await lifecycle.stop();
      await close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Paths of the files below a folder from which something may be deleting files and folders meanwhile. */
async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  });
  const found = entries.map(async (entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
  return (await Promise.all(found)).flat();
}
