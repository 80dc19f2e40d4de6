import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Logger, Metrics } from '@rookery/platform';
import { AppserviceClient } from '../queries/appservice-client.js';
import { AppserviceQueries } from '../queries/appservice-queries.js';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import type { Registration } from '../registration/registration.js';
import { ServiceSender } from './service-sender.js';
import { TransactionBodies } from './transaction-bodies.js';
import { TransactionStore } from './transaction-store.js';

/** How often at most a service that makes requests of its own, but takes no transactions, is tried again. */
const seenRetryMs = 10_000;

/** What sends to each application service. */
@Injectable()
export class ServiceSenders {
  readonly #senders = new Map<string, ServiceSender>();

  // Nine parameters: what a sender works with, which has no constructor of Nest's, and who tells that a service shows life.
  constructor(
    private readonly store: TransactionStore,
    private readonly bodies: TransactionBodies,
    private readonly client: AppserviceClient,
    private readonly queries: AppserviceQueries,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly metrics: Metrics,
    private readonly registry: AppserviceRegistry,
  ) {}

  /** Takes up what was left over for each of the services. */
  async start(services: readonly Registration[]): Promise<void> {
    const { store, bodies, client, queries, database, clock, logger, metrics } = this;
    const down = await store.down();
    for (const service of services) {
      const parts = { store, bodies, client, queries, database, clock, logger, metrics };
      const sender = new ServiceSender(service, parts, down.has(service.id));
      this.#senders.set(service.id, sender);
      sender.start();
    }
    this.registry.watch({
      reached: (asId) => this.of(asId)?.retry(),
      seen: (asId) => this.of(asId)?.retry(seenRetryMs),
    });
  }

  /** The sender of a service, once started. */
  of(asId: string): ServiceSender | undefined {
    return this.#senders.get(asId);
  }

  /** Cuts requests under way short; they are repeated after the next start. */
  async stop(): Promise<void> {
    await Promise.all([...this.#senders.values()].map((sender) => sender.stop()));
  }
}
