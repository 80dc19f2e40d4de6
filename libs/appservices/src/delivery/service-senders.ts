import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Logger, Metrics } from '@rookery/platform';
import { AppserviceClient } from '../queries/appservice-client.js';
import { AppserviceQueries } from '../queries/appservice-queries.js';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import { type SenderParts, ServiceSender } from './service-sender.js';
import { TransactionBodies } from './transaction-bodies.js';
import { WaitingTransactions } from './waiting-transactions.js';

/** What there is to do for a service. */
export type ServiceTask = { readonly asId: string } & (
  | { /** A transaction waits. */ readonly kind: 'stored' }
  | { /** News for a moment, to be sent soon. */ readonly kind: 'edu'; readonly edu: JsonObject }
  | { /** It shows itself: a pause that has lasted so long ends. */ readonly kind: 'life'; readonly afterMs: number }
);

/** Which services a process sends to. */
export interface Care {
  isOurs(asId: string): boolean;
  /** Whether something may be sent to one of them now, as far as can be known. */
  maySend(asId: string): boolean;
}

/** What sends to application services in this process: to those whose shard it was given. */
@Injectable()
export class ServiceSenders {
  readonly #senders = new Map<string, ServiceSender>();
  #isStopping = false;
  #care: Care = { isOurs: () => true, maySend: () => true };

  // Nine parameters: what a sender works with, which has no constructor of Nest's, and who knows the services.
  constructor(
    private readonly waiting: WaitingTransactions,
    private readonly bodies: TransactionBodies,
    private readonly client: AppserviceClient,
    private readonly queries: AppserviceQueries,
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly metrics: Metrics,
    private readonly registry: AppserviceRegistry,
  ) {}

  /** Says which services this process sends to: all unless told. */
  lookAfter(care: Care): void {
    this.#care = care;
  }

  /** Whether this process sends to a service. */
  has(asId: string): boolean {
    return this.#senders.has(asId);
  }

  /** Does what there is to do for a service; passes over those that another process sends to. */
  take(task: ServiceTask): void {
    if (!this.#care.isOurs(task.asId)) return;
    if (task.kind === 'life') return this.#senders.get(task.asId)?.retry(task.afterMs);
    const sender = this.#of(task.asId);
    if (task.kind === 'edu') sender?.offer(task.edu);
    else sender?.wake();
  }

  /** Takes up what was left over. @param isWanted whether a service is one of those that are meant */
  async catchUp(isWanted: (asId: string) => boolean): Promise<void> {
    const down = await this.waiting.down();
    for (const { id } of this.registry.all) if (isWanted(id)) this.#of(id)?.start(down.has(id));
  }

  /** Lets go of the services that this process does not send to any more. Resolves when nothing is under way to them. */
  async letGo(): Promise<void> {
    const ending: Promise<void>[] = [];
    for (const [id, sender] of this.#senders) {
      if (this.#care.isOurs(id)) continue;
      this.#senders.delete(id);
      ending.push(sender.stop());
    }
    await Promise.all(ending);
  }

  /** Sends nothing more. Resolves when nothing is under way. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all([...this.#senders.values()].map((sender) => sender.stop()));
  }

  /** Begins to send once it is started. Nothing where the service wants to be told nothing. */
  #of(asId: string): ServiceSender | undefined {
    const known = this.#senders.get(asId);
    const service = this.registry.byId(asId);
    if (known || this.#isStopping || service?.fields.url === undefined) return known;
    const { waiting, bodies, client, queries, database, clock, logger, metrics } = this;
    const maySend: SenderParts['maySend'] = (one) => this.#care.maySend(one);
    const parts = { waiting, bodies, client, queries, database, clock, logger, metrics, maySend };
    const sender = new ServiceSender(service, parts);
    this.#senders.set(asId, sender);
    return sender;
  }
}
