import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Lifecycle } from '@rookery/platform';
import { cursorOf, forgetCursors } from '@rookery/replication';
import { DeviceFeed } from './device-feed.js';
import { EphemeralFeed } from './ephemeral-feed.js';
import { eventCursor, AppserviceEventFeed } from './event-feed.js';
import { RoomInterest } from './room-interest.js';
import { ServiceRouter } from './service-router.js';
import { TransactionStore } from './transaction-store.js';

/**
 * Finds what concerns services, stores what must not be lost, and tells whoever sends it; in the process that writes. Costs nothing where
 * there is none.
 */
@Injectable()
export class AppserviceDelivery implements OnModuleInit {
  // Eight parameters: beside what it starts and stops, three feeds, each of another kind of news.
  constructor(
    private readonly lifecycle: Lifecycle,
    private readonly database: Database,
    private readonly interest: RoomInterest,
    private readonly store: TransactionStore,
    private readonly router: ServiceRouter,
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
   * Follows what comes.
   * @throws DatabaseError when the sequence of transaction ids stands before a transaction that is stored
   */
  async start(): Promise<void> {
    if (this.interest.services.length === 0) {
      await this.store.check();
      return this.#forgetPosition();
    }
    await this.store.open();
    this.router.open();
    const wake = (asId: string): void => this.router.tell({ kind: 'stored', asId });
    await this.ephemeral.start((asId, edu) => this.router.tell({ kind: 'edu', asId, edu }));
    await this.devices.start(wake);
    await this.events.start(wake);
  }

  async stop(): Promise<void> {
    await Promise.all([this.events.stop(), this.ephemeral.stop(), this.devices.stop()]);
  }

  /** A service that comes later begins with what happens then, and not where a former one ended. */
  async #forgetPosition(): Promise<void> {
    if ((await cursorOf(this.database, eventCursor)) === undefined) return;
    await this.database.write((tx) => forgetCursors(tx, 'appservice_'), { name: 'appservice_forget' });
  }
}
