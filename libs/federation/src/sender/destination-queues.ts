import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Destinations, FederationClient } from '@rookery/federation-client';
import { Clock, Config, Ids, Logger, Metrics } from '@rookery/platform';
import { BacklogReader } from './backlog-reader.js';
import { Destination, type DestinationParts } from './destination.js';
import { EventTexts } from './event-texts.js';
import type { Outgoing } from './outgoing.js';
import type { EduStore, StoreName } from './outgoing-edu.js';
import { SenderMetrics } from './sender-metrics.js';
import { serversBehind } from './sender.query.js';
import { SuccessLog } from './success-log.js';
import { WrittenTransactions } from './written-transactions.js';
import { SendingTurns } from './turns.js';

/** Servers that are looked at together when what was left over is taken up. */
const behindPage = 200;

/** Which servers a process looks after. */
export interface Care {
  isOurs(server: string): boolean;
  /** Whether something may be sent to one of them now, as far as can be known. */
  maySend(server: string): boolean;
  /** Whether it was found out what one of them has not got of what came before this process was told of news. */
  isCaughtUp(server: string): boolean;
}

/**
 * What waits in this process for other servers: a {@link Destination} for each that is to get something, for as long as it is. Of the
 * servers it has those whose shard this process was given.
 */
@Injectable()
export class DestinationQueues {
  /** Kinds of EDUs that lie in the database, in the order in which they are to arrive. */
  readonly #stores: EduStore[] = [];
  readonly #destinations = new Map<string, Destination>();
  readonly #stopping = new AbortController();
  readonly #successes: SuccessLog;
  readonly #parts: DestinationParts;
  #transactions = 0;
  #taken: (server: string, eventIds: readonly string[]) => void = () => undefined;
  #care: Care = { isOurs: () => true, maySend: () => true, isCaughtUp: () => true };

  // Ten parameters: they are for the destinations, which come and go and are not made by Nest.
  constructor(
    private readonly database: Database,
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
    // No transaction of an earlier process had one of these ids.
    const run = `${clock.nowMs()}${ids.letters(6)}`;
    this.#parts = {
      ...{ clock, ids, config, logger, client, backlogs, texts, destinations: known },
      metrics: new SenderMetrics(metrics, config, clock, () => this.#waiting()),
      bodies: new WrittenTransactions(config.serverName),
      successes: this.#successes,
      turns: new SendingTurns(clock),
      stores: this.#stores,
      stopping: this.#stopping.signal,
      nextTransactionId: () => `${run}${++this.#transactions}`,
      maySend: (server) => this.#care.maySend(server),
      onIdle: (destination) => this.#forget(destination),
      onTaken: (server, eventIds) => this.#taken(server, eventIds),
    };
  }

  /** Adds a kind of EDUs that lie in the database. Before the start; in the order in which they are to arrive. */
  addStore(store: EduStore): void {
    this.#stores.push(store);
  }

  /** Tells which events a server has taken, without objection to them. Before the start; one listener. */
  onTaken(listener: (server: string, eventIds: readonly string[]) => void): void {
    this.#taken = listener;
  }

  /** Says which servers this process looks after: all unless told. To others nothing is sent. */
  lookAfter(care: Care): void {
    this.#care = care;
  }

  /** Begins to hear of servers that are there again. */
  listen(): void {
    this.known.onRecovery((server) => this.#destinations.get(server)?.recovered());
    this.known.onLife((server) => this.#destinations.get(server)?.showedLife());
  }

  /** No transaction is begun any more; those under way have a moment to be answered. */
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

  /** Takes what is to go to servers, which may be reached; passes over those that another process looks after. */
  take(outgoing: Outgoing): void {
    if (outgoing.kind === 'forgotten') return this.#parts.texts.forget(outgoing.eventIds);
    for (const server of outgoing.servers) if (this.#care.isOurs(server)) this.#takeFor(server, outgoing);
  }

  /**
   * Takes up what was left over for servers, by what lies in the database.
   * @param isWanted whether a server is one of those that are meant
   */
  async catchUp(isWanted: (server: string) => boolean): Promise<void> {
    // Whoever looks after no servers, or was not told everything, is not told of each redaction either.
    this.#parts.texts.forgetAll();
    for (let after: string | undefined = ''; after !== undefined && !this.#stopping.signal.aborted;) {
      const page: Awaited<ReturnType<typeof serversBehind>> = await serversBehind(this.database, after, behindPage);
      const servers = page.servers.filter(isWanted);
      await this.known.prepare(servers);
      // Meanwhile another process may look after some of them.
      for (const server of servers) if (isWanted(server)) this.#to(server).catchUp();
      after = page.last;
    }
    for (const store of this.#stores)
      for (const server of (await store.destinations()).filter(isWanted)) this.#to(server).addStored(store);
  }

  /**
   * Lets go of the servers that this process does not look after any more. Resolves when nothing is under way to them, and what they have
   * got is noted.
   */
  async letGo(): Promise<void> {
    const ending: Promise<void>[] = [];
    for (const [name, destination] of this.#destinations) {
      if (this.#care.isOurs(name)) continue;
      this.#destinations.delete(name);
      ending.push(destination.end());
    }
    await Promise.all(ending);
    await this.#successes.write();
  }

  #takeFor(server: string, outgoing: Exclude<Outgoing, { readonly kind: 'forgotten' }>): void {
    switch (outgoing.kind) {
      case 'events':
        if (this.#care.isCaughtUp(server)) return this.#to(server).addEvents(outgoing.events);
        // What came before it must not be taken for something that the server has, because it has this.
        return this.#to(server).catchUp();
      case 'typing':
        return this.#to(server).addTyping(outgoing.news);
      case 'receipts':
        return this.#to(server).addReceipts(outgoing.receipts);
      case 'presence':
        return this.#to(server).addPresence(outgoing.states);
      case 'stored':
        return this.#to(server).addStored(this.#store(outgoing.store));
      case 'enclosed':
        return this.#to(server).enclose(this.#store(outgoing.store));
      case 'life':
        return this.#destinations.get(server)?.showedLife();
    }
  }

  #to(server: string): Destination {
    let destination = this.#destinations.get(server);
    if (!destination) this.#destinations.set(server, (destination = new Destination(server, this.#parts)));
    return destination;
  }

  #store(name: StoreName): EduStore {
    const store = this.#stores.find((one) => one.name === name);
    if (!store) throw new Error(`There is no store ${name}`);
    return store;
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
