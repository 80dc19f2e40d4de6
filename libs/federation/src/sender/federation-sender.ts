import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Destinations, FederationClient } from '@rookery/federation-client';
import { Clock, Config, Ids, Lifecycle, Logger, Metrics } from '@rookery/platform';
import { Destination, type DestinationParts } from './destination.js';
import { FederationEventFeed } from './event-feed.js';
import { EventTexts } from './event-texts.js';
import type { EduStore } from './outgoing-edu.js';
import { RemoteAudience } from './remote-audience.js';
import { SenderMetrics } from './sender-metrics.js';
import { type OutgoingEvent, serversBehind, writeRoomMarks } from './sender.query.js';
import { SuccessLog } from './success-log.js';
import { SendingTurns } from './turns.js';

/** Servers that are looked at together at the start. */
const startPage = 200;

/**
 * Brings other servers what happens here: events, and EDUs. An event that a client was told of reaches every server in its
 * room, over restarts and outages on either side.
 */
@Injectable()
export class FederationSender implements OnModuleInit {
  readonly #destinations = new Map<string, Destination>();
  readonly #stopping = new AbortController();
  readonly #stores: EduStore[] = [];
  readonly #successes: SuccessLog;
  readonly #metrics: SenderMetrics;
  readonly #parts: DestinationParts;
  #transactions = 0;
  #taken: (server: string, eventIds: readonly string[]) => void = () => undefined;
  #starting: Promise<void> = Promise.resolve();

  // Twelve parameters: five of them are for its destinations, which come and go and are not made by Nest.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
    private readonly logger: Logger,
    private readonly audience: RemoteAudience,
    private readonly known: Destinations,
    private readonly feed: FederationEventFeed,
    ids: Ids,
    config: Config,
    metrics: Metrics,
    client: FederationClient,
    texts: EventTexts,
  ) {
    this.#successes = new SuccessLog(database, clock, logger);
    this.#metrics = new SenderMetrics(metrics, config, clock, () => this.#waiting());
    // No transaction of an earlier process had one of these ids.
    const run = `${clock.nowMs()}${ids.letters(6)}`;
    this.#parts = {
      ...{ database, clock, ids, config, logger, client, texts, destinations: known },
      metrics: this.#metrics,
      successes: this.#successes,
      turns: new SendingTurns(),
      stores: this.#stores,
      stopping: this.#stopping.signal,
      nextTransactionId: () => `${run}${++this.#transactions}`,
      onIdle: (destination) => this.#forget(destination),
      onTaken: (server, eventIds) => this.#taken(server, eventIds),
    };
  }

  onModuleInit(): void {
    this.lifecycle.on('streams', { name: 'federation sender', start: () => this.start(), stop: () => this.stop() });
  }

  /** Takes up what was left over, in the background, and follows what comes. */
  async start(): Promise<void> {
    this.known.onRecovery((server) => this.#destinations.get(server)?.recovered());
    this.known.onLife((server) => this.#destinations.get(server)?.showedLife());
    await this.feed.open();
    this.#starting = this.#begin();
  }

  /** Cuts transactions under way short; they are repeated after the next start. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#starting;
    await this.feed.stop();
    for (const destination of this.#destinations.values()) destination.stop();
    await this.#parts.turns.settled();
    await this.#successes.write();
  }

  /** Adds a kind of EDUs that lie in the database. Before the start; in the order in which they are to arrive. */
  addStore(store: EduStore): void {
    this.#stores.push(store);
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

  /** Something lies in a store for servers. */
  wake(store: EduStore, servers: Iterable<string>): void {
    for (const server of servers) if (this.audience.mayReach(server)) this.to(server).addStored(store);
  }

  /**
   * Sends on an event of another server that came by way of this one: a join, leave or knock for which it asked us. The other
   * servers in the room get it; `origin` has it.
   * @spec server-server-api#joining-rooms
   */
  async sendOnBehalf(origin: string, event: OutgoingEvent): Promise<void> {
    const servers = (await this.audience.of(event.roomId)).filter((server) => server !== origin);
    if (servers.length === 0) return;
    const { eventId, roomId, streamOrdering } = event;
    const outgoing = { eventId, roomId, streamOrdering };
    if (this.feed.addRemote(outgoing, { servers, aclId: undefined })) return;
    const marks = servers.map((destination) => ({ ...outgoing, destination }));
    await this.database.write((tx) => writeRoomMarks(tx, marks), { name: 'federation_queue' });
    for (const server of servers) this.to(server).addOutOfOrder(outgoing);
  }

  async #begin(): Promise<void> {
    try {
      await this.#catchUp();
    } catch (error) {
      this.logger.error('What other servers have not got could not be looked up', { err: error });
    }
    if (this.#stopping.signal.aborted) return;
    await this.feed.start(async ({ byServer, destinationCounts, looked }) => {
      await this.known.prepare([...byServer.keys()]);
      this.#metrics.processed(looked);
      for (const count of destinationCounts) this.#metrics.queued(count);
      for (const [server, events] of byServer) this.to(server).addEvents(events);
    });
  }

  /** Servers for which something was left over. */
  async #catchUp(): Promise<void> {
    for (let after: string | undefined = ''; after !== undefined && !this.#stopping.signal.aborted;) {
      const page: Awaited<ReturnType<typeof serversBehind>> = await serversBehind(this.database, after, startPage);
      const servers = page.servers.filter((server) => this.audience.mayReach(server));
      await this.known.prepare(servers);
      for (const server of servers) this.to(server).catchUp();
      after = page.last;
    }
    for (const store of this.#stores) this.wake(store, await store.destinations());
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
