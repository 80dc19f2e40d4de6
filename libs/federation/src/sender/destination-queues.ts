import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Destinations, FederationClient } from '@rookery/federation-client';
import { Clock, Config, Ids, Logger, Metrics } from '@rookery/platform';
import { BacklogReader } from './backlog-reader.js';
import { Destination, type DestinationParts } from './destination.js';
import type { FeedStep } from './event-feed.js';
import { EventTexts } from './event-texts.js';
import type { EduStore } from './outgoing-edu.js';
import { SenderMetrics } from './sender-metrics.js';
import { SuccessLog } from './success-log.js';
import { WrittenTransactions } from './written-transactions.js';
import { SendingTurns } from './turns.js';

/** What waits for other servers: a {@link Destination} for each that is to get something, for as long as it is. */
@Injectable()
export class DestinationQueues {
  /** Kinds of EDUs that lie in the database, in the order in which they are to arrive. */
  readonly stores: EduStore[] = [];
  readonly #destinations = new Map<string, Destination>();
  readonly #stopping = new AbortController();
  readonly #successes: SuccessLog;
  readonly #metrics: SenderMetrics;
  readonly #parts: DestinationParts;
  #transactions = 0;
  #taken: (server: string, eventIds: readonly string[]) => void = () => undefined;

  // Ten parameters: they are for the destinations, which come and go and are not made by Nest.
  constructor(
    database: Database,
    clock: Clock,
    ids: Ids,
    config: Config,
    logger: Logger,
    metrics: Metrics,
    client: FederationClient,
    backlogs: BacklogReader,
    texts: EventTexts,
    private readonly known: Destinations,
  ) {
    this.#successes = new SuccessLog(database, clock, logger);
    this.#metrics = new SenderMetrics(metrics, config, clock, () => this.#waiting());
    // No transaction of an earlier process had one of these ids.
    const run = `${clock.nowMs()}${ids.letters(6)}`;
    this.#parts = {
      ...{ clock, ids, config, logger, client, backlogs, texts, destinations: known },
      metrics: this.#metrics,
      bodies: new WrittenTransactions(config.serverName),
      successes: this.#successes,
      turns: new SendingTurns(clock),
      stores: this.stores,
      stopping: this.#stopping.signal,
      nextTransactionId: () => `${run}${++this.#transactions}`,
      onIdle: (destination) => this.#forget(destination),
      onTaken: (server, eventIds) => this.#taken(server, eventIds),
    };
  }

  /** Begins to hear of servers that are there again. */
  listen(): void {
    this.known.onRecovery((server) => this.#destinations.get(server)?.recovered());
    this.known.onLife((server) => this.#destinations.get(server)?.showedLife());
  }

  /** Cuts transactions under way short; none is begun any more. */
  abort(): void {
    this.#stopping.abort();
    for (const destination of this.#destinations.values()) destination.stop();
  }

  /** Resolves when nothing is under way, and what servers have got is noted. */
  async stop(): Promise<void> {
    this.abort();
    await this.#parts.turns.settled();
    await this.#successes.write();
  }

  /** Tells which events a server has taken, without objection to them. Before the start; one listener. */
  onTaken(listener: (server: string, eventIds: readonly string[]) => void): void {
    this.#taken = listener;
  }

  /** What is to go to a server that may be reached; not to be kept. */
  to(server: string): Destination {
    let destination = this.#destinations.get(server);
    if (!destination) this.#destinations.set(server, (destination = new Destination(server, this.#parts)));
    return destination;
  }

  /** Events that were followed, for the servers in their rooms. */
  addEvents({ byServer, destinationCounts, looked }: FeedStep): void {
    this.#metrics.processed(looked);
    for (const count of destinationCounts) this.#metrics.queued(count);
    for (const [server, events] of byServer) this.to(server).addEvents(events);
  }

  #forget(destination: Destination): void {
    if (destination.isIdle && this.#destinations.get(destination.name) === destination)
      this.#destinations.delete(destination.name);
  }

  #waiting(): { pdus: number; edus: number; destinations: number } {
    let [pdus, edus] = [0, 0];
    for (const destination of this.#destinations.values()) {
      pdus += destination.waitingEvents;
      edus += destination.waitingEdus;
    }
    return { pdus, edus, destinations: this.#destinations.size };
  }
}
