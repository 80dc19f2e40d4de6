import 'reflect-metadata';
import { Global, type INestApplicationContext, Module, type ModuleMetadata, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Database, DataStores } from '@rookery/database';
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
import {
  Bus,
  FollowerSharing,
  InProcessBus,
  InProcessRpc,
  Invalidations,
  LocalRoles,
  Notifier,
  Roles,
  Rpc,
  Streams,
  WorkSharing,
} from '@rookery/replication';
import { Mailer, Pages, pagesOptionsOf } from '@rookery/templates';

/** What a test brings, and what it wants other than usual. */
export interface TestModuleOptions {
  /** The lib's own Nest modules, as the app builds them. */
  readonly imports: NonNullable<ModuleMetadata['imports']>;
  /** With the tables that the modules need. */
  readonly database: Database;
  /** Where state lies, if not there. */
  readonly state?: Database | undefined;
  readonly clock: Clock;
  /** Beside the server's name, `example.org`. */
  readonly settings?: Readonly<Record<string, unknown>> | undefined;
  /** Where relative paths of the settings begin. */
  readonly configDir?: string | undefined;
  readonly modules?: ModuleDispatcher | undefined;
  readonly logger?: Logger | undefined;
  /** Everything passes unless given. */
  readonly limiter?: RateLimiter | undefined;
  /** Answers requests to the outside; without it there is nobody. */
  readonly outbound?: Pick<OutboundHttp, 'request'> | OutboundHttp | undefined;
  /** Takes the mails of the server; without it the server sends none. */
  readonly mailer?: Pick<Mailer, 'subject' | 'queue'> | undefined;
}

/** A module graph without HTTP. */
export interface TestModule {
  /** A service, or a controller, by its class. @throws Error when no module has it */
  get<T>(type: { readonly prototype: T }): T;
  readonly config: Config;
  readonly notifier: Notifier;
  /** Starts nothing by itself. */
  readonly lifecycle: Lifecycle;
  close(): Promise<void>;
}

/** Lets everything pass: for tests that are not about limits. */
class Unlimited extends RateLimiter {
  async take(): Promise<void> {}
  async mayTake(): Promise<boolean> {
    return true;
  }
}

/** The name of the server in tests of single libs. */
const serverName = 'example.org';

/**
 * Builds a lib's Nest modules over a given database, with everything that the app's global modules provide: for tests of services
 * from inside. Tests from outside use `createTestHomeserver`.
 */
export async function createTestModule(options: TestModuleOptions): Promise<TestModule> {
  const { imports, database, clock, settings, configDir, logger = new SilentLogger() } = options;
  const config = Config.fromObject(
    { server_name: serverName, ...settings },
    configDir === undefined ? {} : { configDir },
  );
  const ids = new SystemIds();
  const bus = new InProcessBus();
  const notifier = new Notifier(clock, bus);
  const lifecycle = new Lifecycle(clock, logger);
  const rpc = new InProcessRpc();
  const roles = new LocalRoles(rpc);
  const streams = new Streams(database, notifier, { rpc });
  const invalidations = new Invalidations(notifier);
  const sharing = new WorkSharing({ roles, rpc, bus, streams, invalidations, clock, ids, logger });
  const following = new FollowerSharing({ roles, rpc, database, notifier, clock, logger });
  const providers = [
    { provide: Config, useValue: config },
    { provide: Clock, useValue: clock },
    { provide: Ids, useValue: ids },
    { provide: Logger, useValue: logger },
    { provide: Metrics, useValue: new Metrics(serverName) },
    { provide: Lifecycle, useValue: lifecycle },
    { provide: BackgroundTasks, useValue: new BackgroundTasks(clock) },
    { provide: Database, useValue: database },
    { provide: DataStores, useValue: new DataStores(database, options.state) },
    { provide: Bus, useValue: bus },
    { provide: Notifier, useValue: notifier },
    { provide: Streams, useValue: streams },
    { provide: Rpc, useValue: rpc },
    { provide: Roles, useValue: roles },
    { provide: Invalidations, useValue: invalidations },
    { provide: WorkSharing, useValue: sharing },
    { provide: FollowerSharing, useValue: following },
    { provide: RateLimiter, useValue: options.limiter ?? new Unlimited() },
    { provide: OutboundHttp, useValue: options.outbound ?? {} },
    { provide: ModuleDispatcher, useValue: options.modules ?? new ModuleDispatcher() },
    { provide: SigningKey, useValue: SigningKey.fromSeed('test', new Uint8Array(32).fill(7)) },
    { provide: Pages, useValue: new Pages(pagesOptionsOf(config), ids, logger) },
    { provide: Mailer, useValue: options.mailer },
  ];
  @Global()
  @Module({ providers, exports: providers.map((one) => one.provide) })
  class Platform {}
  @Module({ imports: [Platform, ...imports] })
  class Root {}
  const context: INestApplicationContext = await NestFactory.createApplicationContext(Root, {
    logger: false,
    abortOnError: false,
  });
  return {
    get: <T>(type: { readonly prototype: T }): T => context.get<T>(type as Type<T>, { strict: false }),
    config,
    notifier,
    lifecycle,
    close: () => context.close(),
  };
}
