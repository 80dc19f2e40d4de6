import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Lifecycle, Logger, Metrics } from '@rookery/platform';
import { cursorOf, forgetCursors } from '@rookery/replication';
import { AppserviceClient } from '../queries/appservice-client.js';
import { AppserviceQueries } from '../queries/appservice-queries.js';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import { DeviceFeed } from './device-feed.js';
import { EphemeralFeed } from './ephemeral-feed.js';
import { eventCursor, AppserviceEventFeed } from './event-feed.js';
import { RoomInterest } from './room-interest.js';
import { ServiceSender } from './service-sender.js';
import { TransactionBodies } from './transaction-bodies.js';
import { TransactionStore } from './transaction-store.js';

/** How often at most a service that makes requests of its own, but takes no transactions, is tried again. */
const seenRetryMs = 10_000;

/** Brings services what concerns them. Costs nothing where there is none. */
@Injectable()
export class AppserviceDelivery implements OnModuleInit {
  readonly #senders = new Map<string, ServiceSender>();

  constructor(
    private readonly lifecycle: Lifecycle,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly metrics: Metrics,
    private readonly registry: AppserviceRegistry,
    private readonly interest: RoomInterest,
    private readonly store: TransactionStore,
    private readonly bodies: TransactionBodies,
    private readonly client: AppserviceClient,
    private readonly queries: AppserviceQueries,
    private readonly events: AppserviceEventFeed,
    private readonly ephemeral: EphemeralFeed,
    private readonly devices: DeviceFeed,
  ) {}

  onModuleInit(): void {
    this.lifecycle.on('streams', {
      name: 'application services',
      start: () => this.start(),
      stop: () => this.stop(),
    });
  }

  /**
   * Takes up what was left over and follows what comes.
   * @throws DatabaseError when the sequence of transaction ids stands before a transaction that is stored
   */
  async start(): Promise<void> {
    if (this.interest.services.length === 0) {
      await this.store.check();
      return this.#forgetPosition();
    }
    await this.store.open();
    const { store, bodies, client, queries, database, clock, logger, metrics } = this;
    const down = await store.down();
    for (const service of this.interest.services) {
      const parts = { store, bodies, client, queries, database, clock, logger, metrics };
      const sender = new ServiceSender(service, parts, down.has(service.id));
      this.#senders.set(service.id, sender);
      sender.start();
    }
    this.registry.watch({
      reached: (asId) => this.#senders.get(asId)?.retry(),
      seen: (asId) => this.#senders.get(asId)?.retry(seenRetryMs),
    });
    const wake = (asId: string): void => this.#senders.get(asId)?.wake();
    await this.ephemeral.start((asId, edu) => this.#senders.get(asId)?.offer(edu));
    await this.devices.start(wake);
    await this.events.start(wake);
  }

  /** Cuts requests under way short; they are repeated after the next start. */
  async stop(): Promise<void> {
    await Promise.all([this.events.stop(), this.ephemeral.stop(), this.devices.stop()]);
    await Promise.all([...this.#senders.values()].map((sender) => sender.stop()));
  }

  /** A service that comes later begins with what happens then, and not where a former one ended. */
  async #forgetPosition(): Promise<void> {
    if ((await cursorOf(this.database, eventCursor)) === undefined) return;
    await this.database.write((tx) => forgetCursors(tx, 'appservice_'), { name: 'appservice_forget' });
  }
}
