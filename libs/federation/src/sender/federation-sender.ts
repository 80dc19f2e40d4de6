import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Destinations } from '@rookery/federation-client';
import { Lifecycle, Logger } from '@rookery/platform';
import type { Destination } from './destination.js';
import { DestinationQueues } from './destination-queues.js';
import { FederationEventFeed } from './event-feed.js';
import type { EduStore } from './outgoing-edu.js';
import { RemoteAudience } from './remote-audience.js';
import { type OutgoingEvent, serversBehind, writeRoomMarks } from './sender.query.js';

/** Servers that are looked at together at the start. */
const startPage = 200;

/**
 * Brings other servers what happens here: events, and EDUs. An event that a client was told of reaches every server in its
 * room, over restarts and outages on either side.
 */
@Injectable()
export class FederationSender implements OnModuleInit {
  readonly #stopping = new AbortController();
  #starting: Promise<void> = Promise.resolve();

  constructor(
    private readonly database: Database,
    private readonly lifecycle: Lifecycle,
    private readonly logger: Logger,
    private readonly audience: RemoteAudience,
    private readonly known: Destinations,
    private readonly feed: FederationEventFeed,
    private readonly queues: DestinationQueues,
  ) {}

  onModuleInit(): void {
    this.lifecycle.on('streams', { name: 'federation sender', start: () => this.start(), stop: () => this.stop() });
  }

  /** Takes up what was left over, in the background, and follows what comes. */
  async start(): Promise<void> {
    this.queues.listen();
    await this.feed.open();
    this.#starting = this.#begin();
  }

  /** Cuts transactions under way short; they are repeated after the next start. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.queues.abort();
    await this.#starting;
    await this.feed.stop();
    await this.queues.stop();
  }

  /** Adds a kind of EDUs that lie in the database. Before the start; in the order in which they are to arrive. */
  addStore(store: EduStore): void {
    this.queues.stores.push(store);
  }

  /** Tells which events a server has taken, without objection to them. Before the start; one listener. */
  onTaken(listener: (server: string, eventIds: readonly string[]) => void): void {
    this.queues.onTaken(listener);
  }

  /** What is to go to a server that may be reached; not to be kept. */
  to(server: string): Destination {
    return this.queues.to(server);
  }

  /** Something lies in a store for servers. */
  wake(store: EduStore, servers: Iterable<string>): void {
    for (const server of servers) if (this.audience.mayReach(server)) this.to(server).addStored(store);
  }

  /** The same for what is in no hurry: it goes along with what the servers are sent next. */
  enclose(store: EduStore, servers: Iterable<string>): void {
    for (const server of servers) if (this.audience.mayReach(server)) this.to(server).enclose(store);
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
    await this.feed.start({
      prepare: (servers) => this.known.prepare(servers),
      take: (step) => this.queues.addEvents(step),
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
    for (const store of this.queues.stores) this.wake(store, await store.destinations());
  }
}
