import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Lifecycle } from '@rookery/platform';
import { cursorOf, forgetCursors } from '@rookery/replication';
import { DeviceFeed } from './device-feed.js';
import { EphemeralFeed } from './ephemeral-feed.js';
import { eventCursor, AppserviceEventFeed } from './event-feed.js';
import { RoomInterest } from './room-interest.js';
import { ServiceSenders } from './service-senders.js';
import { TransactionStore } from './transaction-store.js';

/** Brings services what concerns them. Costs nothing where there is none. */
@Injectable()
export class AppserviceDelivery implements OnModuleInit {
  // Eight parameters: beside what it starts and stops, three feeds, each of another kind of news.
  constructor(
    private readonly lifecycle: Lifecycle,
    private readonly database: Database,
    private readonly interest: RoomInterest,
    private readonly store: TransactionStore,
    private readonly senders: ServiceSenders,
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
    await this.senders.start(this.interest.services);
    const wake = (asId: string): void => this.senders.of(asId)?.wake();
    await this.ephemeral.start((asId, edu) => this.senders.of(asId)?.offer(edu));
    await this.devices.start(wake);
    await this.events.start(wake);
  }

  /** Cuts requests under way short; they are repeated after the next start. */
  async stop(): Promise<void> {
    await Promise.all([this.events.stop(), this.ephemeral.stop(), this.devices.stop()]);
    await this.senders.stop();
  }

  /** A service that comes later begins with what happens then, and not where a former one ended. */
  async #forgetPosition(): Promise<void> {
    if ((await cursorOf(this.database, eventCursor)) === undefined) return;
    await this.database.write((tx) => forgetCursors(tx, 'appservice_'), { name: 'appservice_forget' });
  }
}
