import type { HttpApp } from '@rookery/http';
import type { LoadedModule, ModuleHost } from '@rookery/module-host';
import { EventStore, RoomStateReader, TimelineReader } from '@rookery/rooms';
import type { PlatformParts } from '../platform.module.js';
import { BackgroundUpdateControl } from './background-update-control.js';
import { createCapabilities } from './capabilities.js';
import { JobRunner } from './jobs.js';
import { NewEvents } from './new-events.js';
import { WebResources } from './web-resources.js';

/** Everything that runs in the server for its modules. */
export class ModuleServices {
  readonly #jobs: JobRunner;
  readonly #web: WebResources;
  readonly #updates: BackgroundUpdateControl;
  readonly #newEvents: NewEvents;

  /** @param http with the module graph, which has not begun to listen */
  constructor(
    private readonly parts: PlatformParts,
    private readonly http: HttpApp,
    private readonly host: ModuleHost,
  ) {
    const { clock, config, database, dispatcher, ids, lifecycle, metrics, notifier, backgroundUpdates } = parts;
    const logger = parts.logger.child('modules');
    this.#jobs = new JobRunner({ database, clock, ids, logger, metrics });
    this.#web = new WebResources(http, dispatcher);
    this.#updates = new BackgroundUpdateControl({
      ...{ config, clock, dispatcher, backgroundUpdates },
      stopping: lifecycle.stopping,
    });
    this.#newEvents = new NewEvents({
      ...{ database, notifier, clock, logger, dispatcher },
      timeline: http.nest.get(TimelineReader, { strict: false }),
      state: http.nest.get(RoomStateReader, { strict: false }),
      events: http.nest.get(EventStore, { strict: false }),
    });
  }

  /** Lets the modules register. @throws ModuleLoadError */
  async register(loaded: readonly LoadedModule[]): Promise<void> {
    await this.host.start(loaded, createCapabilities(this.parts, this.http, this.#jobs));
    this.#web.refresh();
    this.#updates.refresh();
  }

  /** Begins with what happens behind the requests: jobs, and telling of new events. */
  async start(): Promise<void> {
    await this.#newEvents.refresh();
    await this.#jobs.start();
  }

  /** Adapts to other modules than before. */
  async refresh(): Promise<void> {
    this.#web.refresh();
    this.#updates.refresh();
    // Where events are stored they are told.
    if (!this.parts.database.isBesideWriter) await this.#newEvents.refresh();
  }

  /** Ends what {@link start} began. */
  async stop(): Promise<void> {
    await Promise.all([this.#newEvents.stop(), this.#jobs.stop()]);
  }
}
