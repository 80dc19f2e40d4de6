import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Destinations } from '@rookery/federation-client';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Ids, Lifecycle, Logger } from '@rookery/platform';
import { Bus, instanceOf, Rpc, shardOf } from '@rookery/replication';
import { DestinationQueues } from './destination-queues.js';
import { EventTexts } from './event-texts.js';
import type { Outgoing } from './outgoing.js';
import { attachSender, federationSenderRole, takeBatch } from './sender-calls.js';
import { SenderLink } from './sender-link.js';

/** Servers whose shards are remembered. */
const maxShards = 100_000;

/** How long a start waits for somebody to look after all servers, milliseconds. */
const longestStartMs = 10_000;

/** Who looks after the servers of a shard: this process, or another one. */
type Outlet = 'here' | SenderLink;

/**
 * Hands what is to go to other servers to the processes that have their shards. What comes while nobody has one is passed over: whoever
 * takes it says so, and then looks into the database for what there is.
 */
@Injectable()
export class SenderRouter implements OnModuleInit {
  readonly #outlets: (Outlet | undefined)[] = Array.from({ length: federationSenderRole.shards });
  readonly #links = new Map<string, SenderLink>();
  readonly #shards = new Map<string, number>();
  /** Whether all shards are here, as they are in a server that is a single process. */
  #isAllHere = false;
  #isOpen = false;
  readonly #complete = Promise.withResolvers<void>();

  // Nine parameters: four of them are for the links, which come and go.
  constructor(
    private readonly rpc: Rpc,
    private readonly bus: Bus,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly queues: DestinationQueues,
    private readonly known: Destinations,
    private readonly texts: EventTexts,
    private readonly ids: Ids,
  ) {}

  onModuleInit(): void {
    this.rpc.handle(attachSender, ({ process, shards }) => this.#attach(process, shards));
    // What is sent of them from now on is what is left of them.
    this.texts.onForgotten((eventIds) => {
      for (const link of this.#links.values()) link.forget(eventIds);
    });
    this.lifecycle.on('streams', { name: 'federation senders', start: () => this.#listen(), stop: () => this.#close() });
  }

  /** Resolves once every server has had a process that looks after it, which may take some seconds; or is cut short. Never rejects. */
  complete(signal: AbortSignal): Promise<unknown> {
    return Promise.race([this.#complete.promise, this.clock.sleep(longestStartMs, signal)]);
  }

  /** Sends to servers that may be reached. */
  send(outgoing: Outgoing): void {
    if (this.#isAllHere) return this.queues.take(outgoing);
    for (const [outlet, servers] of this.#outletsOf(outgoing.servers)) {
      const own = { ...outgoing, servers };
      if (outlet === 'here') this.queues.take(own);
      else outlet.push(own);
    }
  }

  #listen(): void {
    this.#isOpen = true;
    // Where it is sent from here, whoever sends hears of it as well.
    this.known.onLife((server) => {
      const outlet = this.#isAllHere ? 'here' : this.#outlets[this.#shardOf(server)];
      if (outlet !== 'here') outlet?.life(server);
    });
  }

  #close(): void {
    for (const link of this.#links.values()) link.close();
    this.#links.clear();
  }

  /** From now on a process is told what there is for the servers of some shards. */
  async #attach(process: string, shards: readonly number[]): Promise<null> {
    if (!this.#isOpen) throw MatrixError.unavailable('It is not known here yet what there is to send');
    const isHere = this.rpc.processNumber === undefined || process === instanceOf(this.rpc.processNumber);
    const outlet = isHere ? 'here' : this.#linkTo(process);
    for (const shard of shards) if (shard in this.#outlets) this.#outlets[shard] = outlet;
    this.#isAllHere = this.#outlets.every((one) => one === 'here');
    if (!this.#outlets.includes(undefined)) this.#complete.resolve();
    for (const [name, link] of this.#links) {
      if (this.#outlets.includes(link)) continue;
      link.close();
      this.#links.delete(name);
    }
    // It hears of all that lies in the database before it looks.
    await this.bus.told();
    return null;
  }

  #linkTo(process: string): SenderLink {
    let link = this.#links.get(process);
    if (!link) {
      link = new SenderLink({
        ...{ clock: this.clock, logger: this.logger, name: this.ids.letters(16) },
        give: async (batch) => {
          // The other process hears of what was changed before it reads what is to be sent of that.
          await this.bus.told();
          return this.rpc.call(takeBatch, batch, process);
        },
      });
      this.#links.set(process, link);
    }
    return link;
  }

  #outletsOf(servers: readonly string[]): Map<Outlet, string[]> {
    const byOutlet = new Map<Outlet, string[]>();
    for (const server of servers) {
      const outlet = this.#outlets[this.#shardOf(server)];
      if (outlet === undefined) continue;
      const list = byOutlet.get(outlet);
      if (list) list.push(server);
      else byOutlet.set(outlet, [server]);
    }
    return byOutlet;
  }

  #shardOf(server: string): number {
    let shard = this.#shards.get(server);
    if (shard === undefined) {
      if (this.#shards.size >= maxShards) this.#shards.clear();
      this.#shards.set(server, (shard = shardOf(federationSenderRole, server)));
    }
    return shard;
  }
}
