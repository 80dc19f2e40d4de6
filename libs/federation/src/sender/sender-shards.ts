import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Clock, Lifecycle, Logger, ownTurn } from '@rookery/platform';
import { Bus, instanceOf, Invalidations, Roles, Rpc, shardOf, Streams } from '@rookery/replication';
import { DestinationQueues } from './destination-queues.js';
import { EventTexts } from './event-texts.js';
import { attachSender, federationSenderRole, type SenderBatch, takeBatch } from './sender-calls.js';

const firstRetryMs = 100;
const longestRetryMs = 5_000;

/**
 * The servers that this process sends to: those of the shards that it has. It says to the process that writes that it has them, is told
 * from then on what there is, and finds what was said before in the database. Another process that writes, or news that may have been
 * missed, make it begin so once more.
 */
@Injectable()
export class SenderShards implements OnModuleInit {
  readonly #shards = new Set<number>();
  /** Those of which everything is known that was to be sent before. */
  readonly #caughtUp = new Set<number>();
  /** Shards that the process that writes has not been told of. */
  readonly #unattached = new Set<number>();
  #attaching: Promise<void> | undefined;
  #last = { link: '', number: 0 };
  readonly #stopping = new AbortController();

  // Ten parameters: half of them are what processes hear from each other by.
  constructor(
    private readonly roles: Roles,
    private readonly rpc: Rpc,
    private readonly bus: Bus,
    private readonly streams: Streams,
    private readonly invalidations: Invalidations,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly lifecycle: Lifecycle,
    private readonly queues: DestinationQueues,
    private readonly texts: EventTexts,
  ) {}

  onModuleInit(): void {
    const { invalidations, lifecycle, queues, roles, rpc } = this;
    queues.lookAfter({
      isOurs: (server) => this.#has(server),
      isCaughtUp: (server) => this.#caughtUp.has(shardOf(federationSenderRole, server)),
    });
    rpc.handle(takeBatch, (batch) => this.#take(batch));
    roles.take(federationSenderRole, {
      start: (shard) => this.#begin([shard]),
      stop: (shard) => this.#end(shard),
    });
    invalidations.on('federation_sender', {
      forget: () => undefined,
      forgetAll: () => this.#begin([...this.#shards]),
    });
    lifecycle.on('streams', {
      ...{ name: 'federation sender shards', everyProcess: true },
      start: () => queues.listen(),
      stop: () => this.#stop(),
    });
  }

  #has(server: string): boolean {
    const shard = shardOf(federationSenderRole, server);
    return this.#shards.has(shard) && this.roles.holds(federationSenderRole, shard);
  }

  #begin(shards: readonly number[]): void {
    for (const shard of shards) {
      this.#shards.add(shard);
      this.#unattached.add(shard);
      this.#caughtUp.delete(shard);
    }
    if (this.#unattached.size > 0 && !this.#stopping.signal.aborted) this.#attaching ??= this.#attachAll();
  }

  async #end(shard: number): Promise<void> {
    this.#shards.delete(shard);
    this.#unattached.delete(shard);
    this.#caughtUp.delete(shard);
    await this.queues.letGo();
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    this.queues.abort();
    await this.#attaching;
    await this.queues.stop();
  }

  /** Never rejects. */
  async #attachAll(): Promise<void> {
    await this.#attach();
    this.#attaching = undefined;
    this.#begin([]);
  }

  async #attach(): Promise<void> {
    const { clock, logger } = this;
    const { signal } = this.#stopping;
    let retryMs = firstRetryMs;
    // Those that begin in one turn of the event loop, together.
    await ownTurn();
    while (this.#unattached.size > 0 && !signal.aborted) {
      const shards = [...this.#unattached];
      this.#unattached.clear();
      try {
        await this.#catchUp(shards);
        retryMs = firstRetryMs;
      } catch (err) {
        for (const shard of shards) if (this.#shards.has(shard)) this.#unattached.add(shard);
        const isLong = retryMs >= longestRetryMs;
        logger[isLong ? 'warn' : 'debug']('What other servers have not got could not be looked up', { err });
        await clock.sleep(retryMs, signal);
        retryMs = Math.min(retryMs * 2, longestRetryMs);
      }
    }
  }

  /** Makes the process that writes tell what there is for shards, then takes up what was there before. */
  async #catchUp(shards: readonly number[]): Promise<void> {
    const { bus, queues, rpc, streams } = this;
    const process = rpc.processNumber === undefined ? streams.writers.instance : instanceOf(rpc.processNumber);
    await rpc.call(attachSender, { process, shards }, streams.writers.writerOf('events'));
    await bus.heard();
    const begun = new Set(shards);
    await queues.catchUp((server) => begun.has(shardOf(federationSenderRole, server)) && this.#has(server));
    // Meanwhile some may have gone, or have to be begun anew.
    for (const shard of shards)
      if (this.#shards.has(shard) && !this.#unattached.has(shard)) this.#caughtUp.add(shard);
  }

  async #take({ link, number, outgoing, forgotten, isIncomplete }: SenderBatch): Promise<null> {
    if (forgotten.length > 0 || outgoing.some(({ kind }) => kind === 'stored' || kind === 'enclosed'))
      await this.bus.heard();
    // It was taken, and the answer was lost.
    if (this.#last.link === link && number <= this.#last.number) return null;
    this.#last = { link, number };
    this.texts.forget(forgotten);
    if (isIncomplete) this.#begin([...this.#shards]);
    for (const one of outgoing) this.queues.take(one);
    return null;
  }
}
