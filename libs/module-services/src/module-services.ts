import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type LoadedModule, ModuleHost } from '@rookery/module-host';
import { BackgroundUpdateControl } from './background-update-control.js';
import { ServerCapabilities } from './capabilities.js';
import { JobRunner } from './jobs/jobs.js';
import { NewEvents } from './new-events.js';
import { WebResources } from './web/web-resources.js';

/** Everything that runs in the server for its modules. */
@Injectable()
export class ModuleServices {
  constructor(
    private readonly database: Database,
    private readonly host: ModuleHost,
    private readonly capabilities: ServerCapabilities,
    private readonly jobs: JobRunner,
    private readonly web: WebResources,
    private readonly updates: BackgroundUpdateControl,
    private readonly newEvents: NewEvents,
  ) {}

  /** Lets the modules register. @throws ModuleLoadError */
  async register(loaded: readonly LoadedModule[]): Promise<void> {
    await this.host.start(loaded, this.capabilities);
    this.web.refresh();
    this.updates.refresh();
  }

  /** Begins with what happens behind the requests: jobs, and telling of new events. */
  async start(): Promise<void> {
    await this.newEvents.refresh();
    await this.jobs.start();
  }

  /** Adapts to other modules than before. */
  async refresh(): Promise<void> {
    this.web.refresh();
    this.updates.refresh();
    // Where events are stored they are told.
    if (!this.database.isBesideWriter) await this.newEvents.refresh();
  }

  /** Ends what {@link start} began. */
  async stop(): Promise<void> {
    await Promise.all([this.newEvents.stop(), this.jobs.stop()]);
  }
}
