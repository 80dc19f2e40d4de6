import 'reflect-metadata';
import { Global, type INestApplicationContext, Module, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Database, databaseMigrations, type Migration } from '@rookery/database';
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
import { InProcessBus, Invalidations, Notifier, replicationMigrations, Streams } from '@rookery/replication';
import { EventCreation, JoinService, RoomCreation, roomsMigrations, RoomsWriterModule } from '@rookery/rooms';
import { usersMigrations } from '@rookery/users';
import { EphemeralModule } from './ephemeral.module.js';
import { ephemeralMigrations } from './migrations/ephemeral-01.migration.js';

/** What the tests of this lib bring. */
export interface EphemeralFixtureParts {
  readonly database: Database;
  readonly clock: Clock;
  readonly settings?: Readonly<Record<string, unknown>>;
  readonly modules?: ModuleDispatcher;
}

/** The lib's own Nest module over a given database, with rooms to be in. For this lib's tests. */
export interface EphemeralFixture {
  get<T>(type: abstract new (...args: never[]) => T): T;
  readonly notifier: Notifier;
  /** Makes a public room, which the others join. */
  room(creator: Requester, ...others: Requester[]): Promise<string>;
  /** Sends a message. @returns its event id */
  say(sender: Requester, roomId: string, content?: Readonly<Record<string, unknown>>): Promise<string>;
  close(): Promise<void>;
}

/** Every table that the lib needs. */
export const fixtureMigrations: readonly Migration[] = [
  ...databaseMigrations,
  ...replicationMigrations,
  ...usersMigrations,
  ...roomsMigrations,
  ...ephemeralMigrations,
];

/** Lets everything pass: for tests that are not about limits. */
class Unlimited extends RateLimiter {
  async take(): Promise<void> {}
  async mayTake(): Promise<boolean> {
    return true;
  }
}

export async function buildEphemeral(parts: EphemeralFixtureParts): Promise<EphemeralFixture> {
  const notifier = new Notifier(parts.clock, new InProcessBus());
  const globals = [
    { provide: Database, useValue: parts.database },
    { provide: Clock, useValue: parts.clock },
    { provide: BackgroundTasks, useValue: new BackgroundTasks(parts.clock) },
    { provide: Ids, useValue: new SystemIds() },
    { provide: Config, useValue: Config.fromObject({ server_name: 'example.org', ...parts.settings }) },
    { provide: Logger, useValue: new SilentLogger() },
    { provide: Metrics, useValue: new Metrics('example.org') },
    { provide: RateLimiter, useValue: new Unlimited() },
    { provide: Notifier, useValue: notifier },
    { provide: Streams, useValue: new Streams(parts.database, notifier) },
    { provide: Invalidations, useValue: new Invalidations(notifier) },
    { provide: ModuleDispatcher, useValue: parts.modules ?? new ModuleDispatcher() },
    { provide: OutboundHttp, useValue: {} },
    { provide: SigningKey, useValue: SigningKey.fromSeed('test', new Uint8Array(32).fill(7)) },
  ];
  @Global()
  @Module({ providers: globals, exports: globals.map((one) => one.provide) })
  class Globals {}
  @Module({ imports: [Globals, RoomsWriterModule, EphemeralModule] })
  class Root {}
  const context: INestApplicationContext = await NestFactory.createApplicationContext(Root, {
    logger: false,
    abortOnError: false,
  });
  const get = <T>(type: abstract new (...args: never[]) => T): T => context.get<T>(type as Type<T>, { strict: false });
  return {
    get,
    notifier,
    async room(creator, ...others) {
      const { roomId } = await get(RoomCreation).create(creator, { preset: 'public_chat' });
      for (const other of others) await get(JoinService).join(other, roomId);
      return roomId;
    },
    async say(sender, roomId, content = {}) {
      const message = { roomId, type: 'm.room.message', content: { msgtype: 'm.text', body: 'hello', ...content } };
      return (await get(EventCreation).send(sender, message)).eventId;
    },
    close: () => context.close(),
  };
}

/** A requester as the HTTP layer makes it. */
export const requesterOf = (localpart: string, more: Partial<Requester> = {}): Requester => ({
  userId: `@${localpart}:example.org`,
  deviceId: `${localpart.toUpperCase()}DEVICE`,
  isGuest: false,
  isAdmin: false,
  shadowBanned: false,
  suspended: false,
  locked: false,
  ...more,
});
