import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config, Ids, Lifecycle, Logger, Metrics, type Timer } from '@rookery/platform';
import type { NotificationRow } from '../actions/push-actions.query.js';
import { DuePushers } from './due-pushers.js';
import { PushMessages } from './push-messages.js';
import { PushRequests } from './push-requests.js';
import type { Pusher } from './pusher.js';
import { clearDue, findPusher, recordFailure, recordSuccess } from './pusher.query.js';

/** Requests to gateways at a time. */
const maxParallel = 64;
const pageSize = 20;
const firstRetryMs = 1_000;
const longestRetryMs = 60 * 60 * 1_000;
/** After so long without a success what has piled up is dropped; only what comes then is tried. */
const giveUpAfterMs = 24 * 60 * 60 * 1_000;

/**
 * Brings notifications to push gateways: in order for each pusher, side by side for different ones, at least once over
 * restarts. Which pushers have something to send lies in the database from the moment the events are followed.
 */
@Injectable()
export class PushDelivery implements OnModuleInit {
  readonly #stopping = new AbortController();
  /** Pushers at work; true when there is more to do afterwards. */
  readonly #working = new Map<number, boolean>();
  readonly #waiting = new Set<number>();
  readonly #retries = new Map<number, { failures: number; timer: Timer | undefined }>();
  #tasks = new Set<Promise<void>>();

  // Ten parameters: one loop that reads, says, sends, notes and tries again, each with what counts, times or logs it.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly metrics: Metrics,
    private readonly lifecycle: Lifecycle,
    private readonly due: DuePushers,
    private readonly messages: PushMessages,
    private readonly requests: PushRequests,
  ) {}

  onModuleInit(): void {
    this.lifecycle.on('streams', { name: 'push', start: () => this.start(), stop: () => this.stop() });
  }

  /** Takes up what was left over and follows what comes. */
  async start(): Promise<void> {
    if (!this.config.get('push.enabled')) return;
    await this.due.start({
      wake: (ids) => {
        for (const id of ids) this.#wake(id);
      },
      // Maybe for another gateway: what waits for the next attempt is sent at once.
      setUp: (ids) => {
        for (const id of ids) {
          this.#retries.get(id)?.timer?.cancel();
          this.#retries.delete(id);
          this.#wake(id);
        }
      },
    });
  }

  /** Whether a pusher waits for the next attempt at what its gateway did not take. */
  isRetried(id: number): boolean {
    return this.#retries.has(id);
  }

  /** Cuts requests under way short; they are repeated after the next start. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    for (const { timer } of this.#retries.values()) timer?.cancel();
    await this.due.stop();
    await Promise.all(this.#tasks);
  }

  #wake(id: number): void {
    if (this.#stopping.signal.aborted || this.#retries.get(id)?.timer) return;
    if (this.#working.has(id)) this.#working.set(id, true);
    else this.#waiting.add(id);
    this.#pump();
  }

  #pump(): void {
    for (const id of this.#waiting) {
      if (this.#working.size >= maxParallel) return;
      this.#waiting.delete(id);
      this.#working.set(id, false);
      this.#track(this.#work(id));
    }
  }

  async #work(id: number): Promise<void> {
    try {
      // One that was set up anew while its old self was refused is woken and has nothing to wait for.
      let mayGoOn: boolean;
      do {
        this.#working.set(id, false);
        mayGoOn = (await this.#drain(id)) || !this.#retries.has(id);
      } while (mayGoOn && this.#working.get(id) === true);
    } catch (error) {
      this.logger.error('A pusher failed', { pusher: id, err: error });
      this.#retryLater(id);
    } finally {
      this.#working.delete(id);
      this.#pump();
    }
  }

  /** Sends everything that is due. @returns false when the pusher is gone or refused, or has to wait */
  async #drain(id: number): Promise<boolean> {
    while (!this.#stopping.signal.aborted) {
      const pusher = await findPusher(this.database, id);
      if (!pusher?.due) {
        this.#retries.delete(id);
        return pusher !== undefined;
      }
      const { upTo } = pusher.due;
      const after = Math.max(pusher.due.after, pusher.lastStreamOrdering);
      const rows = await this.messages.unread(pusher.userId, { after, upTo, limit: pageSize });
      const isLastPage = rows.length < pageSize;
      for (const [index, row] of rows.entries()) {
        const upToHere = isLastPage && index === rows.length - 1 ? upTo : undefined;
        if (!(await this.#deliver(pusher, row, upToHere))) return false;
      }
      if (rows.length === 0) await this.database.write((tx) => clearDue(tx, id, upTo), { name: 'pusher_done' });
    }
    return false;
  }

  /** @param upTo given for the last one: up to where there is nothing more */
  async #deliver(pusher: Pusher, row: NotificationRow, upTo: number | undefined): Promise<boolean> {
    const jitterMs = this.config.get('push.jitter_delay');
    if (jitterMs > 0) await this.clock.sleep(this.ids.integer(jitterMs + 1), this.#stopping.signal);
    if (this.#stopping.signal.aborted) return false;
    const said = await this.messages.ofEvent(pusher, row);
    if (said === undefined) return this.#sent(pusher, row, upTo);
    const verdict = await this.requests.send(pusher, said, this.#stopping.signal);
    if (verdict.kind === 'failed') return this.#failed(pusher, verdict.reason);
    if (verdict.kind === 'rejected') {
      this.#retries.delete(pusher.id);
      return false;
    }
    this.metrics.counter('synapse_http_httppusher_http_pushes_processed').inc({});
    return this.#sent(pusher, row, upTo);
  }

  async #sent({ id }: Pusher, row: NotificationRow, upTo: number | undefined): Promise<true> {
    this.#retries.delete(id);
    await this.database.write(
      async (tx) => {
        await recordSuccess(tx, id, row.stream_ordering, this.clock.nowMs());
        if (upTo !== undefined) await clearDue(tx, id, upTo);
      },
      { name: 'pusher_sent' },
    );
    return true;
  }

  async #failed({ id, userId, failingSince, due }: Pusher, reason: string): Promise<false> {
    // A request that was cut off by a stop says nothing about the gateway, and is repeated after the start.
    if (this.#stopping.signal.aborted) return false;
    this.metrics.counter('synapse_http_httppusher_http_pushes_failed').inc({});
    const nowMs = this.clock.nowMs();
    const hopeless = failingSince !== undefined && nowMs - failingSince > giveUpAfterMs && due !== undefined;
    await this.database.write((tx) => (hopeless ? clearDue(tx, id, due.upTo) : recordFailure(tx, id, nowMs)), {
      name: 'pusher_failed',
    });
    const retryInMs = this.#retryLater(id);
    this.logger.warn('A push gateway could not be reached', {
      userId,
      pusher: id,
      reason,
      retryInMs,
      dropped: hopeless,
    });
    return false;
  }

  #retryLater(id: number): number {
    const failures = (this.#retries.get(id)?.failures ?? 0) + 1;
    const delayMs = Math.min(firstRetryMs * 2 ** Math.min(failures - 1, 30), longestRetryMs);
    const timer = this.clock.after(delayMs, () => {
      this.#retries.set(id, { failures, timer: undefined });
      this.#wake(id);
    });
    this.#retries.set(id, { failures, timer });
    return delayMs;
  }

  #track(task: Promise<void>): void {
    this.#tasks.add(task);
    void task.finally(() => this.#tasks.delete(task));
  }
}
