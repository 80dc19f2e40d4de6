import { type DynamicModule, Global, Module, type Provider } from '@nestjs/common';
import { BackgroundUpdates, Database } from '@rookery/database';
import { SigningKey } from '@rookery/events';
import { NameResolver, OwnKeys, ServerSoftware } from '@rookery/federation-client';
import { OutboundHttp } from '@rookery/http';
import { ModuleDispatcher, ModuleHost } from '@rookery/module-host';
import { BackgroundTasks, Clock, Config, Ids, Lifecycle, Logger, Metrics } from '@rookery/platform';
import { Bus, Invalidations, Notifier, Roles, Rpc, Streams } from '@rookery/replication';
import { Mailer, Pages } from '@rookery/templates';

/** What every part of a server may ask for; made before the module graph is. */
export interface PlatformParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly lifecycle: Lifecycle;
  readonly database: Database;
  readonly backgroundUpdates: BackgroundUpdates;
  readonly backgroundTasks: BackgroundTasks;
  readonly bus: Bus;
  readonly notifier: Notifier;
  readonly streams: Streams;
  readonly rpc: Rpc;
  readonly roles: Roles;
  readonly invalidations: Invalidations;
  readonly outboundHttp: OutboundHttp;
  readonly modules: ModuleHost;
  readonly pages: Pages;
  /** Absent when the server sends no mail. */
  readonly mailer: Mailer | undefined;
  /** The keys of this server; the first one signs. */
  readonly ownKeys: OwnKeys;
  /** The way from names of other servers to their addresses. */
  readonly nameResolver: NameResolver;
  /** What this program is called. */
  readonly software: ServerSoftware;
}

/** The platform as providers, by their classes. */
@Global()
@Module({})
export class PlatformModule {
  static with(parts: PlatformParts): DynamicModule {
    const providers = [
      { provide: Config, useValue: parts.config },
      { provide: Clock, useValue: parts.clock },
      { provide: Ids, useValue: parts.ids },
      { provide: Logger, useValue: parts.logger },
      { provide: Metrics, useValue: parts.metrics },
      { provide: Lifecycle, useValue: parts.lifecycle },
      { provide: Database, useValue: parts.database },
      { provide: BackgroundUpdates, useValue: parts.backgroundUpdates },
      { provide: BackgroundTasks, useValue: parts.backgroundTasks },
      { provide: Bus, useValue: parts.bus },
      { provide: Notifier, useValue: parts.notifier },
      { provide: Streams, useValue: parts.streams },
      { provide: Rpc, useValue: parts.rpc },
      { provide: Roles, useValue: parts.roles },
      { provide: Invalidations, useValue: parts.invalidations },
      { provide: OutboundHttp, useValue: parts.outboundHttp },
      { provide: ModuleHost, useValue: parts.modules },
      { provide: ModuleDispatcher, useValue: parts.modules.dispatcher },
      { provide: OwnKeys, useValue: parts.ownKeys },
      { provide: SigningKey, useValue: parts.ownKeys.current },
      { provide: NameResolver, useValue: parts.nameResolver },
      { provide: ServerSoftware, useValue: parts.software },
      { provide: Pages, useValue: parts.pages },
      { provide: Mailer, useValue: parts.mailer },
    ] satisfies Provider[];
    return { module: PlatformModule, providers, exports: providers.map(({ provide }) => provide) };
  }
}
