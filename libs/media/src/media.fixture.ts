import 'reflect-metadata';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { Global, type INestApplicationContext, Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Database, databaseMigrations } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import { LeakyBucketRateLimiter, OutboundHttp, RateLimiter } from '@rookery/http';
import { ModuleDispatcher } from '@rookery/module-host';
import {
  BackgroundTasks,
  Clock,
  Config,
  Ids,
  Lifecycle,
  Logger,
  Metrics,
  type Requester,
  SilentLogger,
  SystemIds,
} from '@rookery/platform';
import { InProcessBus, Invalidations, Notifier, replicationMigrations, Streams } from '@rookery/replication';
import { Mailer, Pages } from '@rookery/templates';
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
  const logger = new SilentLogger();
  const lifecycle = new Lifecycle(parts.clock, logger);
  const wide = { perSecond: 1_000_000, burstCount: 1_000_000 };
  const notifier = new Notifier(parts.clock, new InProcessBus());
  const globals = [
    { provide: Database, useValue: parts.database },
    { provide: Clock, useValue: parts.clock },
    { provide: BackgroundTasks, useValue: new BackgroundTasks(parts.clock) },
    { provide: Ids, useValue: new SystemIds() },
    {
      provide: Config,
      useValue: Config.fromObject(
        { server_name: 'example.org', media_store_path: folder, ...parts.settings },
        { configDir: folder },
      ),
    },
    { provide: Logger, useValue: logger },
    { provide: Lifecycle, useValue: lifecycle },
    { provide: Metrics, useValue: new Metrics('example.org') },
    { provide: RateLimiter, useValue: new LeakyBucketRateLimiter(parts.clock, () => wide) },
    { provide: Notifier, useValue: notifier },
    { provide: Streams, useValue: new Streams(parts.database, notifier) },
    { provide: Invalidations, useValue: new Invalidations(notifier) },
    { provide: ModuleDispatcher, useValue: parts.modules ?? new ModuleDispatcher() },
    { provide: OutboundHttp, useValue: parts.outbound ?? {} },
    { provide: SigningKey, useValue: SigningKey.fromSeed('test', new Uint8Array(32).fill(7)) },
    { provide: Mailer, useValue: undefined },
    { provide: Pages, useValue: {} },
  ];
  @Global()
  @Module({ providers: globals, exports: globals.map((one) => one.provide) })
  class Globals {}
  @Module({ imports: [Globals, MediaModule, MediaUpkeepModule] })
  class Root {}
  const context: INestApplicationContext = await NestFactory.createApplicationContext(Root, {
    logger: false,
    abortOnError: false,
  });
  await lifecycle.start();
  const get = <T>(type: abstract new (...args: never[]) => T): T => context.get<T>(type as Type<T>, { strict: false });
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
    async filesOnDisk() {
      const entries = await readdir(folder, { recursive: true, withFileTypes: true });
      return entries
        .filter((entry) => entry.isFile())
        .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
        .sort();
    },
    async close() {
      if (closed) return;
      closed = true;
      await lifecycle.stop();
      await context.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
