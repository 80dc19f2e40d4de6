import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Destinations } from '@rookery/federation-client';
import { Clock, Lifecycle, type Timer } from '@rookery/platform';
import { defineRole, type Outlet, type Role, type SharedWork, WorkSharing } from '@rookery/replication';
import { DestinationQueues } from './destination-queues.js';
import { EventTexts } from './event-texts.js';
import type { Outgoing } from './outgoing.js';

/** Sends to other servers: each of those belongs to a shard. */
export const federationSenderRole: Role = defineRole('federation_sender', 16);

/** A sign of life is of use to a server that waits for an answer or pauses, and that is no matter of milliseconds. */
const lifeMs = 200;

/** About as much as a server's name, of which four hold a user's presence with its words. */
function sizeOfNews(outgoing: Outgoing): number {
  switch (outgoing.kind) {
    case 'events':
      return 2 * outgoing.events.length;
    case 'receipts':
      return 4 * outgoing.receipts.length;
    case 'presence':
      return 4 * outgoing.states.length;
    case 'forgotten':
      return outgoing.eventIds.length;
    default:
      return 1;
  }
}

/** Hands what is to go to other servers to the processes that have their shards, and does this process's own part of it. */
@Injectable()
export class SenderRouter implements OnModuleInit {
  readonly #work: SharedWork<Outgoing>;
  /** Servers that showed life, of which other processes have not been told. */
  readonly #alive = new Set<string>();
  #timer: Timer | undefined;

  constructor(
    sharing: WorkSharing,
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
    private readonly queues: DestinationQueues,
    private readonly known: Destinations,
    private readonly texts: EventTexts,
  ) {
    this.#work = sharing.share<Outgoing>({
      role: federationSenderRole,
      prepare: (items) => known.prepare(items.flatMap(({ kind, servers }) => (kind === 'events' ? servers : []))),
      take: (items) => {
        for (const item of items) queues.take(item);
      },
      catchUp: (isWanted) => queues.catchUp(isWanted),
      letGo: () => queues.letGo(),
      isAnnounced: ({ kind }) => kind === 'stored' || kind === 'enclosed' || kind === 'forgotten',
      sizeOf: (outgoing) => outgoing.servers.length + sizeOfNews(outgoing),
    });
    queues.lookAfter({
      isOurs: (server) => this.#work.has(server),
      maySend: (server) => this.#work.mayAct(server),
      isCaughtUp: (server) => this.#work.isCaughtUp(server),
    });
  }

  onModuleInit(): void {
    const { lifecycle, queues, texts } = this;
    // What is sent of them from now on is what is left of them.
    texts.onForgotten((eventIds) => this.#work.giveOthers({ kind: 'forgotten', servers: [], eventIds }));
    lifecycle.on('streams', {
      ...{ name: 'federation senders', everyProcess: true },
      start: () => queues.listen(),
      stop: () => this.#stop(),
    });
    // At once, whatever stops before: what is under way has a moment to be answered.
    lifecycle.stopping.addEventListener('abort', () => queues.abort());
  }

  /** In the process that writes: everything that is to be sent from now on is told here. */
  open(): void {
    this.#work.open();
    // Where it is sent from here, whoever sends hears of it as well.
    this.known.onLife((server) => {
      if (!this.#work.isAllHere) this.#showedLife(server);
    });
  }

  /** Resolves once every server has had a process that knows what it has not got, which may take some seconds; or is cut short. Never rejects. */
  complete(signal: AbortSignal): Promise<unknown> {
    return this.#work.complete(signal);
  }

  /** Looks up what is to be known of servers that are to get something, where it is sent from here. */
  prepare(servers: readonly string[]): Promise<void> {
    return this.known.prepare(servers.filter((server) => this.#work.outletOf(server) === 'here'));
  }

  /** Sends to servers that may be reached. */
  send(outgoing: Outgoing): void {
    if (this.#work.isAllHere) return this.queues.take(outgoing);
    const byOutlet = new Map<Outlet<Outgoing>, string[]>();
    for (const server of outgoing.servers) {
      const outlet = this.#work.outletOf(server);
      if (outlet === undefined) continue;
      const servers = byOutlet.get(outlet);
      if (servers) servers.push(server);
      else byOutlet.set(outlet, [server]);
    }
    for (const [outlet, servers] of byOutlet) this.#work.give(outlet, { ...outgoing, servers });
  }

  #showedLife(server: string): void {
    if (this.#work.outletOf(server) === 'here') return;
    this.#alive.add(server);
    this.#timer ??= this.clock.after(lifeMs, () => {
      this.#timer = undefined;
      this.send({ kind: 'life', servers: [...this.#alive] });
      this.#alive.clear();
    });
  }

  /** Transactions that are not answered within a moment are repeated by whoever looks after their servers then. */
  async #stop(): Promise<void> {
    this.#timer?.cancel();
    this.queues.abort();
    await this.#work.stop();
    await this.queues.stop();
  }
}
