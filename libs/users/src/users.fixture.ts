import 'reflect-metadata';
import { Readable } from 'node:stream';
import { type INestApplicationContext, type Type, Global, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Database } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import {
  type InboundRequest,
  LeakyBucketRateLimiter,
  OutboundHttp,
  type OutboundRequest,
  RateLimiter,
} from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import { ModuleDispatcher } from '@rookery/module-host';
import { BackgroundTasks, Clock, Config, Ids, Logger, SilentLogger, SystemIds } from '@rookery/platform';
import { InProcessBus, Invalidations, Notifier, Streams } from '@rookery/replication';
import { Mailer, type MailRequest, Pages, pagesOptionsOf } from '@rookery/templates';
import { UsersHttpModule } from './users-http.module.js';

/** What the tests of this lib bring. */
export interface UsersFixtureParts {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly limited?: boolean;
  readonly logger?: Logger;
  /** Takes the mails that are queued; without it the server sends none. */
  readonly mails?: MailRequest[];
  /** Answers requests to other servers: status and JSON. */
  readonly outbound?: (request: OutboundRequest) => { readonly status: number; readonly body: unknown };
}

/** The lib's own Nest module, as the app builds it, over a given database. For this lib's tests. */
export interface UsersFixture {
  /** A service, or a controller. */
  get<T>(type: Type<T> | (abstract new (...args: never[]) => T)): T;
  /** A request as the HTTP layer hands it in. */
  request(
    method: string,
    path: string,
    body?: JsonObject,
    more?: { readonly token?: string; readonly ip?: string },
  ): InboundRequest;
  close(): Promise<void>;
}

/** Lets everything pass: for tests that are not about limits. */
class Unlimited extends RateLimiter {
  async take(): Promise<void> {}
  async mayTake(): Promise<boolean> {
    return true;
  }
}

export async function buildUsers({
  database,
  clock,
  settings,
  limited,
  logger = new SilentLogger(),
  mails,
  outbound,
}: UsersFixtureParts): Promise<UsersFixture> {
  const config = Config.fromObject({
    server_name: 'example.org',
    bcrypt_rounds: 4,
    enable_registration: true,
    enable_registration_without_verification: true,
    ...settings,
  });
  const limits: Readonly<Record<string, { perSecond: number; burstCount: number }>> = {
    'rc_login.failed_attempts': { perSecond: 0.01, burstCount: 3 },
    rc_ui_auth: { perSecond: 0.5, burstCount: 5 },
  };
  const ids = new SystemIds();
  const notifier = new Notifier(clock, new InProcessBus());
  const globals = [
    { provide: Database, useValue: database },
    { provide: Clock, useValue: clock },
    { provide: BackgroundTasks, useValue: new BackgroundTasks(clock) },
    { provide: Ids, useValue: ids },
    { provide: SigningKey, useValue: SigningKey.fromSeed('test', new Uint8Array(32).fill(7)) },
    { provide: Pages, useValue: new Pages(pagesOptionsOf(config), ids, logger) },
    { provide: Config, useValue: config },
    { provide: Logger, useValue: logger },
    {
      provide: RateLimiter,
      useValue: limited
        ? new LeakyBucketRateLimiter(clock, (name) => limits[name] ?? { perSecond: 100, burstCount: 100 })
        : new Unlimited(),
    },
    { provide: Notifier, useValue: notifier },
    { provide: Streams, useValue: new Streams(database, notifier) },
    { provide: Invalidations, useValue: new Invalidations(notifier) },
    {
      provide: OutboundHttp,
      useValue: {
        request: async (request: OutboundRequest) => {
          const { status, body } = outbound?.(request) ?? { status: 404, body: {} };
          return { status, body: Buffer.from(JSON.stringify(body)) };
        },
      },
    },
    {
      provide: Mailer,
      useValue: mails && {
        subject: (name: string) => name,
        queue: async (_tx: unknown, mail: MailRequest) => void mails.push(mail),
      },
    },
    { provide: ModuleDispatcher, useValue: new ModuleDispatcher() },
  ];
  @Global()
  @Module({ providers: globals, exports: globals.map((one) => one.provide) })
  class Globals {}
  @Module({ imports: [Globals, UsersHttpModule] })
  class Root {}
  const context: INestApplicationContext = await NestFactory.createApplicationContext(Root, {
    logger: false,
    abortOnError: false,
  });
  return {
    get: (type) => context.get(type as Type, { strict: false }),
    request: (method, path, body, more = {}) => ({
      requestId: 'test',
      method,
      url: path,
      query: Object.fromEntries(new URL(path, 'http://localhost').searchParams),
      headers: more.token === undefined ? {} : { authorization: `Bearer ${more.token}` },
      json: () => body,
      ip: more.ip ?? '127.0.0.1',
      userAgent: 'test',
      signal: new AbortController().signal,
      stream: Readable.from([]),
    }),
    close: () => context.close(),
  };
}
