import 'reflect-metadata';
import { Global, type INestApplicationContext, Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Database, databaseMigrations } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import { OutboundHttp, RateLimiter } from '@rookery/http';
import { ModuleDispatcher } from '@rookery/module-host';
import {
  BackgroundTasks,
  Clock,
  Config,
  Ids,
  Lifecycle,
  Logger,
  Metrics,
  SilentLogger,
  SystemIds,
} from '@rookery/platform';
import { InProcessBus, Invalidations, Notifier, replicationMigrations, Streams } from '@rookery/replication';
import { roomsMigrations, RoomsWriterModule } from '@rookery/rooms';
import { Mailer, type MailRequest } from '@rookery/templates';
import { usersMigrations } from '@rookery/users';
import { pushMigrations } from './migrations/index.js';
import { PushModule, PushSenderModule } from './push.module.js';

/** Every table that this lib's modules need. */
export const fixtureMigrations = [
  ...databaseMigrations,
  ...replicationMigrations,
  ...usersMigrations,
  ...roomsMigrations,
  ...pushMigrations,
];

/** The lib's own Nest modules, as the app builds them, over a given database. For this lib's tests. */
export interface PushFixture {
  get<T>(type: abstract new (...args: never[]) => T): T;
  /** Mails that were queued. */
  readonly mails: MailRequest[];
  close(): Promise<void>;
}

/** Lets everything pass: for tests that are not about limits. */
class Unlimited extends RateLimiter {
  async take(): Promise<void> {}
  async mayTake(): Promise<boolean> {
    return true;
  }
}

export async function buildPush(parts: {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
}): Promise<PushFixture> {
  const mails: MailRequest[] = [];
  const logger = new SilentLogger();
  const notifier = new Notifier(parts.clock, new InProcessBus());
  const globals = [
    { provide: Database, useValue: parts.database },
    { provide: Clock, useValue: parts.clock },
    { provide: BackgroundTasks, useValue: new BackgroundTasks(parts.clock) },
    { provide: Ids, useValue: new SystemIds() },
    { provide: Config, useValue: Config.fromObject({ server_name: 'example.org', ...parts.settings }) },
    { provide: Logger, useValue: logger },
    { provide: Lifecycle, useValue: new Lifecycle(parts.clock, logger) },
    { provide: Metrics, useValue: new Metrics('example.org') },
    { provide: RateLimiter, useValue: new Unlimited() },
    { provide: Notifier, useValue: notifier },
    { provide: Streams, useValue: new Streams(parts.database, notifier) },
    { provide: Invalidations, useValue: new Invalidations(notifier) },
    { provide: ModuleDispatcher, useValue: new ModuleDispatcher() },
    { provide: OutboundHttp, useValue: {} },
    { provide: SigningKey, useValue: SigningKey.fromSeed('test', new Uint8Array(32).fill(7)) },
    {
      provide: Mailer,
      useValue: {
        subject: (name: string, values: object) => `${name} ${JSON.stringify(values)}`,
        queue: async (_tx: unknown, mail: MailRequest) => void mails.push(mail),
      },
    },
  ];
  @Global()
  @Module({ providers: globals, exports: globals.map((one) => one.provide) })
  class Globals {}
  @Module({ imports: [Globals, RoomsWriterModule, PushModule, PushSenderModule] })
  class Root {}
  const context: INestApplicationContext = await NestFactory.createApplicationContext(Root, {
    logger: false,
    abortOnError: false,
  });
  return { get: (type) => context.get(type as Type, { strict: false }), mails, close: () => context.close() };
}
