import 'reflect-metadata';
import { Global, type INestApplicationContext, Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Database } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import { OutboundHttp, RateLimiter } from '@rookery/http';
import { ModuleDispatcher } from '@rookery/module-host';
import {
  BackgroundTasks,
  Clock,
  Config,
  Ids,
  Logger,
  Metrics,
  type Requester,
  SilentLogger,
  SystemIds,
} from '@rookery/platform';
import { InProcessBus, Invalidations, Notifier, Streams } from '@rookery/replication';
import { RoomsWriterModule } from './rooms-writer.module.js';

/** What the tests of this lib bring. */
export interface RoomsFixtureParts {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly modules?: ModuleDispatcher;
  readonly logger?: Logger;
  readonly http?: OutboundHttp;
  /** Everything passes unless given. */
  readonly limiter?: RateLimiter;
}

/** The lib's own Nest module, as the app builds it, over a given database. For this lib's tests. */
export interface RoomsFixture {
  get<T>(type: abstract new (...args: never[]) => T): T;
  readonly notifier: Notifier;
  close(): Promise<void>;
}

/** The server name of fixtures. */
export const testServer = 'example.org';

/** Lets everything pass: for tests that are not about limits. */
class Unlimited extends RateLimiter {
  async take(): Promise<void> {}
  async mayTake(): Promise<boolean> {
    return true;
  }
}

export async function buildRooms(parts: RoomsFixtureParts): Promise<RoomsFixture> {
  const notifier = new Notifier(parts.clock, new InProcessBus());
  const globals = [
    { provide: Database, useValue: parts.database },
    { provide: Clock, useValue: parts.clock },
    { provide: BackgroundTasks, useValue: new BackgroundTasks(parts.clock) },
    { provide: Metrics, useValue: new Metrics(testServer) },
    { provide: Ids, useValue: new SystemIds() },
    { provide: Config, useValue: Config.fromObject({ server_name: testServer, ...parts.settings }) },
    { provide: Logger, useValue: parts.logger ?? new SilentLogger() },
    { provide: RateLimiter, useValue: parts.limiter ?? new Unlimited() },
    { provide: Notifier, useValue: notifier },
    { provide: Streams, useValue: new Streams(parts.database, notifier) },
    { provide: Invalidations, useValue: new Invalidations(notifier) },
    { provide: ModuleDispatcher, useValue: parts.modules ?? new ModuleDispatcher() },
    { provide: OutboundHttp, useValue: parts.http ?? {} },
    { provide: SigningKey, useValue: SigningKey.fromSeed('test', new Uint8Array(32).fill(7)) },
  ];
  @Global()
  @Module({ providers: globals, exports: globals.map((one) => one.provide) })
  class Globals {}
  @Module({ imports: [Globals, RoomsWriterModule] })
  class Root {}
  const context: INestApplicationContext = await NestFactory.createApplicationContext(Root, {
    logger: false,
    abortOnError: false,
  });
  return {
    get: (type) => context.get(type as Type, { strict: false }),
    notifier,
    close: () => context.close(),
  };
}

/** A requester as the HTTP layer makes it. */
export const requesterOf = (localpart: string, more: Partial<Requester> = {}): Requester => ({
  userId: `@${localpart}:${testServer}`,
  deviceId: `${localpart.toUpperCase()}DEVICE`,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  ...more,
});
