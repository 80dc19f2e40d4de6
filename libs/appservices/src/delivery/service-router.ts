import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Clock, Lifecycle, type Timer } from '@rookery/platform';
import { defineRole, defineRpc, type Role, Rpc, type SharedWork, Streams, WorkSharing } from '@rookery/replication';
import { AppserviceRegistry } from '../registration/appservice-registry.js';
import { ServiceSenders, type ServiceTask } from './service-senders.js';

/** Sends to application services: each belongs to a shard. */
export const appserviceSenderRole: Role = defineRole('appservice_sender', 16);

/** Services have shown themselves where another process answered them: the one that writes is told. */
const servicesSeen = defineRpc<readonly string[], null>('appservices_seen', { timeoutMs: 5_000 });

/** How often at most a service that makes requests of its own, but takes no transactions, is tried again. */
const seenRetryMs = 10_000;
/** That a service has shown itself is told at most so often: a service at work does all the time. */
const seenMs = 1_000;
/** As much as 200 EDUs go to another process at a time. */
const eduSize = 100;

/**
 * Hands what is for application services to the processes that have their shards, and does this process's own part of it. Where there are
 * no services there is nothing to share.
 */
@Injectable()
export class ServiceRouter implements OnModuleInit {
  #work: SharedWork<ServiceTask> | undefined;
  /** Services that were seen here, of which whoever sends to them has not been told. */
  readonly #seen = new Set<string>();
  #timer: Timer | undefined;

  constructor(
    private readonly sharing: WorkSharing,
    private readonly senders: ServiceSenders,
    private readonly registry: AppserviceRegistry,
    private readonly rpc: Rpc,
    private readonly streams: Streams,
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
  ) {}

  onModuleInit(): void {
    const { lifecycle, registry, rpc, senders } = this;
    if (registry.all.every(({ fields }) => fields.url === undefined)) return;
    const work = this.sharing.share<ServiceTask>({
      role: appserviceSenderRole,
      take: (tasks) => {
        for (const task of tasks) senders.take(task);
      },
      catchUp: (isWanted) => senders.catchUp(isWanted),
      letGo: () => senders.letGo(),
      // Who is to read anything hears first what was said of it when it asks for the transaction.
      isAnnounced: () => false,
      sizeOf: ({ kind }) => (kind === 'edu' ? eduSize : 1),
    });
    this.#work = work;
    senders.lookAfter({ isOurs: (asId) => work.has(asId), maySend: (asId) => work.mayAct(asId) });
    rpc.handle(servicesSeen, (asIds) => {
      for (const asId of asIds) this.tell({ kind: 'life', asId, afterMs: seenRetryMs });
      return Promise.resolve(null);
    });
    registry.watch({
      // The process that writes has found that out.
      reached: (asId) => this.tell({ kind: 'life', asId, afterMs: 0 }),
      seen: (asId) => this.#noteSeen(asId),
    });
    lifecycle.on('streams', { name: 'application service senders', everyProcess: true, stop: () => this.#stop() });
    // All at once: shards are given up one after the other.
    lifecycle.stopping.addEventListener('abort', () => void senders.stop());
  }

  /** In the process that writes: everything that is to be sent from now on is told here. */
  open(): void {
    this.#work?.open();
  }

  /** In the process that writes: tells whoever sends to the service. What is stored is found there if nobody does now. */
  tell(task: ServiceTask): void {
    const outlet = this.#work?.outletOf(task.asId);
    if (outlet !== undefined) this.#work?.give(outlet, task);
  }

  #noteSeen(asId: string): void {
    if (this.senders.has(asId)) return this.senders.take({ kind: 'life', asId, afterMs: seenRetryMs });
    this.#seen.add(asId);
    this.#timer ??= this.clock.after(seenMs, () => {
      this.#timer = undefined;
      const seen = [...this.#seen];
      this.#seen.clear();
      // Where nobody writes nothing is sent; a service at work shows itself again.
      this.rpc.call(servicesSeen, seen, this.streams.writers.writerOf('events')).catch(() => undefined);
    });
  }

  async #stop(): Promise<void> {
    this.#timer?.cancel();
    await this.#work?.stop();
    await this.senders.stop();
  }
}
