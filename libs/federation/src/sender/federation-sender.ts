import { Injectable, type OnModuleInit } from '@nestjs/common';
import type { PresenceState, Receipt } from '@rookery/ephemeral';
import { batchesOf, Lifecycle, Metrics } from '@rookery/platform';
import { DestinationQueues } from './destination-queues.js';
import type { TypingNews } from './ephemeral-outbox.js';
import { FederationEventFeed, type FeedStep } from './event-feed.js';
import { sameEvents } from './outgoing.js';
import type { EduStore, StoreName } from './outgoing-edu.js';
import { RemoteAudience } from './remote-audience.js';
import { FeedMetrics } from './sender-metrics.js';
import { SenderRouter } from './sender-router.js';

/** What is told of a user goes to other processes in parts of so much. */
const maxNews = 1_000;

/**
 * Brings other servers what happens here: events, and EDUs. An event that a client was told of reaches every server in its
 * room, over restarts and outages on either side.
 */
@Injectable()
export class FederationSender implements OnModuleInit {
  readonly #metrics: FeedMetrics;
  readonly #stopping = new AbortController();

  constructor(
    private readonly lifecycle: Lifecycle,
    private readonly audience: RemoteAudience,
    private readonly feed: FederationEventFeed,
    private readonly queues: DestinationQueues,
    private readonly router: SenderRouter,
    metrics: Metrics,
  ) {
    this.#metrics = new FeedMetrics(metrics);
  }

  onModuleInit(): void {
    this.lifecycle.on('streams', {
      name: 'federation sender',
      start: () => this.#start(),
      stop: () => this.#stop(),
    });
  }

  /** Adds a kind of EDUs that lie in the database. Before the start; in the order in which they are to arrive. */
  addStore(store: EduStore): void {
    this.queues.addStore(store);
  }

  /** Tells which events a server has taken, without objection to them, in the process that sent them. Before the start; one listener. */
  onTaken(listener: (server: string, eventIds: readonly string[]) => void): void {
    this.queues.onTaken(listener);
  }

  /** Somebody began or stopped typing. @param servers may be reached, here and below */
  sendTyping(servers: readonly string[], news: TypingNews): void {
    this.router.send({ kind: 'typing', servers, news });
  }

  sendReceipts(servers: readonly string[], receipts: readonly Receipt[]): void {
    for (const some of batchesOf(receipts, maxNews)) this.router.send({ kind: 'receipts', servers, receipts: some });
  }

  sendPresence(servers: readonly string[], states: readonly PresenceState[]): void {
    for (const some of batchesOf(states, maxNews)) this.router.send({ kind: 'presence', servers, states: some });
  }

  /** Something lies in a store for servers. */
  wake(store: StoreName, servers: Iterable<string>): void {
    this.router.send({ kind: 'stored', store, servers: this.#reachable(servers) });
  }

  /** The same for what is in no hurry: it goes along with what the servers are sent next. */
  enclose(store: StoreName, servers: Iterable<string>): void {
    this.router.send({ kind: 'enclosed', store, servers: this.#reachable(servers) });
  }

  /**
   * Nothing is handed on before somebody looks after the servers, and knows what they have not got: what is found earlier is left to the
   * database, which tells those who were in a room then from others only where they still are.
   */
  async #start(): Promise<void> {
    await this.feed.open();
    this.router.open();
    await this.feed.start({
      ready: this.router.complete(this.#stopping.signal),
      prepare: (servers) => this.router.prepare(servers),
      take: (step) => this.#take(step),
    });
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    await this.feed.stop();
  }

  #reachable(servers: Iterable<string>): string[] {
    return [...servers].filter((server) => this.audience.mayReach(server));
  }

  #take({ byServer, destinationCounts, looked }: FeedStep): void {
    this.#metrics.processed(looked);
    for (const count of destinationCounts) this.#metrics.queued(count);
    for (const outgoing of sameEvents(byServer)) this.router.send(outgoing);
  }
}
