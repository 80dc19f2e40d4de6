import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, failureLevel, type Tx } from '@rookery/database';
import { Clock, Config, Ids, lastAnswerMs, Lifecycle, Logger, Metrics, type Timer } from '@rookery/platform';
import { defineRole, type Role, type SharedWork, WorkSharing } from '@rookery/replication';
import type { NotificationRow } from '../actions/push-actions.query.js';
import { PushMessages } from './push-messages.js';
import { PushRequests } from './push-requests.js';
import { gatewayOf, type Pusher } from './pusher.js';
import { clearDue, type DuePusher, duePushers, findPusher, recordFailure, recordSuccess } from './pusher.query.js';

const pageSize = 20;
/** After so long a pusher gives its place to others, though it has more to send. */
const longestTurnMs = 5_000;
const firstRetryMs = 1_000;
const longestRetryMs = 60 * 60 * 1_000;
/** After so long without a success what has piled up is dropped; only what comes then is tried. */
const giveUpAfterMs = 24 * 60 * 60 * 1_000;

/** Speaks to push gateways: each user belongs to a shard. */
export const pushSenderRole: Role = defineRole('push_sender', 16);

/** Something to do for a user's pushers. */
type PushTask = { readonly userId: string } & (
  | { readonly kind: 'due'; readonly id: number }
  /** Set up anew, with something to send still. */
  | { readonly kind: 'set up'; readonly id: number }
  /** The numbers that devices show may have changed. */
  | { readonly kind: 'badge' }
);

/** A pusher that waits for its turn. */
interface Waiting {
  readonly id: number;
  readonly userId: string;
  /** Its gateway, as far as it is known. */
  readonly gateway: string | undefined;
}

/** What a pusher is doing in its turn. */
interface AtWork {
  readonly userId: string;
  /** There is more to do afterwards. */
  hasMore: boolean;
  /** Nothing more is sent. */
  readonly ended: AbortController;
  /** The answer to what is under way is not waited for any longer. */
  readonly cut: AbortController;
  /** Never rejects. */
  done: Promise<void>;
}

/**
 * Brings notifications to push gateways: in order for each pusher, side by side for different ones, at least once over
 * restarts. Which pushers have something to send lies in the database from the moment the events are followed. Among several processes each
 * has a share of the users.
 */
@Injectable()
export class PushDelivery implements OnModuleInit {
  readonly #stopping = new AbortController();
  readonly #working = new Map<number, AtWork>();
  readonly #waiting = new Map<number, Waiting>();
  readonly #retries = new Map<number, { userId: string; failures: number; timer: Timer | undefined }>();
  readonly #work: SharedWork<PushTask>;
  #badgeDue: (userId: string) => void = () => undefined;

  // Ten parameters: one loop that reads, says, sends, notes and tries again, each with what counts, times or logs it.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly metrics: Metrics,
    private readonly lifecycle: Lifecycle,
    private readonly messages: PushMessages,
    private readonly requests: PushRequests,
    sharing: WorkSharing,
  ) {
    this.#work = sharing.share<PushTask>({
      role: pushSenderRole,
      take: (tasks) => {
        for (const task of tasks) if (this.#work.has(task.userId)) this.#take(task);
      },
      catchUp: (isWanted) => this.#catchUp(isWanted),
      letGo: () => this.#letGo(),
    });
  }

  onModuleInit(): void {
    this.lifecycle.on('streams', { name: 'push', everyProcess: true, stop: () => this.stop() });
    // At once, whatever stops before: what is under way has a moment to be answered.
    this.lifecycle.stopping.addEventListener('abort', () => void this.#cease());
  }

  /** In the process that writes: whatever is to be sent from now on is told ({@link PushDelivery.tell}). @returns whether anything is */
  open(): boolean {
    if (!this.config.get('push.enabled')) return false;
    this.#work.open();
    return true;
  }

  /** In the process that writes: pushers have something to send, or were set up anew and have something to send still. */
  tell(kind: 'due' | 'set up', pushers: readonly DuePusher[]): void {
    for (const { id, userId } of pushers) this.#tell({ kind, id, userId });
  }

  /** In the process that writes: whoever sends to a user's devices is to look at their numbers. */
  tellBadge(userId: string): void {
    this.#tell({ kind: 'badge', userId });
  }

  /** Looks at the numbers of a user's devices when that is to be done here. One listener; it must not throw. */
  onBadgeDue(listener: (userId: string) => void): void {
    this.#badgeDue = listener;
  }

  /** Whether a pusher waits for the next attempt at what its gateway did not take. */
  isRetried(id: number): boolean {
    return this.#retries.has(id);
  }

  /** Requests that are not answered within a moment are repeated after the next start. */
  async stop(): Promise<void> {
    await Promise.all([this.#cease(), this.#work.stop()]);
  }

  /** Never rejects. */
  #cease(): Promise<void> {
    this.#stopping.abort();
    this.#waiting.clear();
    for (const { timer } of this.#retries.values()) timer?.cancel();
    return this.#end([...this.#working.values()]);
  }

  /** Has nothing more sent; what is under way has a moment to be answered: what was taken without that being known would come twice. */
  async #end(ending: readonly AtWork[]): Promise<void> {
    for (const { ended } of ending) ended.abort();
    const timer = this.clock.after(lastAnswerMs, () => {
      for (const { cut } of ending) cut.abort();
    });
    await Promise.all(ending.map(({ done }) => done));
    timer.cancel();
  }

  #tell(task: PushTask): void {
    const outlet = this.#work.outletOf(task.userId);
    if (outlet !== undefined) this.#work.give(outlet, task);
  }

  #take(task: PushTask): void {
    if (task.kind === 'badge') return this.#badgeDue(task.userId);
    if (task.kind === 'set up') {
      // Maybe for another gateway: what waits for the next attempt is sent at once.
      this.#retries.get(task.id)?.timer?.cancel();
      this.#retries.delete(task.id);
      // So it does not wait for the gateway of before.
      if (this.#waiting.get(task.id)?.gateway !== undefined) this.#waiting.delete(task.id);
    }
    this.#wake(task.id, task.userId);
  }

  async #catchUp(isWanted: (userId: string) => boolean): Promise<void> {
    if (!this.config.get('push.enabled')) return;
    for (const { id, userId } of await duePushers(this.database)) if (isWanted(userId)) this.#wake(id, userId);
  }

  /** Another process sends to some users from now on. */
  async #letGo(): Promise<void> {
    for (const { id, userId } of this.#waiting.values()) if (!this.#work.has(userId)) this.#waiting.delete(id);
    for (const [id, { userId, timer }] of this.#retries) {
      if (this.#work.has(userId)) continue;
      timer?.cancel();
      this.#retries.delete(id);
    }
    await this.#end([...this.#working.values()].filter(({ userId }) => !this.#work.has(userId)));
  }

  #wake(id: number, userId: string, gateway?: string): void {
    if (this.#stopping.signal.aborted || !this.#work.has(userId) || this.#retries.get(id)?.timer) return;
    const working = this.#working.get(id);
    if (working) working.hasMore = true;
    else if (!this.#waiting.has(id)) void this.#queue({ id, userId, gateway });
  }

  /** Waits for a place, and has a turn. Never rejects. */
  async #queue(waiting: Waiting): Promise<void> {
    const { id, userId, gateway } = waiting;
    this.#waiting.set(id, waiting);
    const jitterMs = gateway === undefined ? 0 : this.config.get('push.jitter_delay');
    if (jitterMs > 0) await this.clock.sleep(this.ids.integer(jitterMs + 1));
    await this.requests.places.run(waiting, async () => {
      // It may be let go of, or wait elsewhere by now.
      if (this.#waiting.get(id) !== waiting) return;
      this.#waiting.delete(id);
      const [ended, cut] = [new AbortController(), new AbortController()];
      const work: AtWork = { ...{ userId, hasMore: false, ended, cut }, done: Promise.resolve() };
      this.#working.set(id, work);
      await (work.done = this.#turn(waiting, work));
    });
  }

  /** Sends some of what is due, and queues again for the rest. Never rejects. */
  async #turn({ id, userId, gateway }: Waiting, work: AtWork): Promise<void> {
    let itsGateway: string | undefined;
    let isUnfinished = false;
    try {
      const pusher = await findPusher(this.database, id);
      itsGateway = pusher && gatewayOf(pusher);
      if (!pusher?.due) this.#retries.delete(id);
      // Whose gateway turns out to be another one waits for a place of that.
      else isUnfinished = itsGateway !== gateway || (await this.#sendPage(pusher, pusher.due, work));
    } catch (error) {
      this.logger[failureLevel(error)]('A pusher failed', { pusher: id, err: error });
      if (!work.ended.signal.aborted) this.#retryLater(id, userId);
    } finally {
      this.#working.delete(id);
    }
    if (!work.ended.signal.aborted && (isUnfinished || work.hasMore)) this.#wake(id, userId, itsGateway);
  }

  /** @returns whether there is more to send at once: not when the pusher was refused, or has to wait */
  async #sendPage(pusher: Pusher, due: NonNullable<Pusher['due']>, work: AtWork): Promise<boolean> {
    const { id, userId, lastStreamOrdering } = pusher;
    const { upTo } = due;
    const endMs = this.clock.monotonicMs() + longestTurnMs;
    // Each has a time of its own.
    const limit = this.config.get('push.jitter_delay') > 0 ? 1 : pageSize;
    const rows = await this.messages.unread(userId, { after: Math.max(due.after, lastStreamOrdering), upTo, limit });
    const isLastPage = rows.length < limit;
    if (rows.length === 0) {
      this.#retries.delete(id);
      await this.#note('pusher_done', (tx) => clearDue(tx, id, upTo));
    }
    for (const [index, row] of rows.entries()) {
      const isLast = index === rows.length - 1;
      if (!(await this.#deliver(pusher, row, isLast && isLastPage ? upTo : undefined, work))) return false;
      if (!isLast && this.clock.monotonicMs() >= endMs) return true;
    }
    return !isLastPage;
  }

  /** @param upTo given for the last one: up to where there is nothing more */
  async #deliver(
    pusher: Pusher,
    row: NotificationRow,
    upTo: number | undefined,
    { ended: { signal }, cut }: AtWork,
  ): Promise<boolean> {
    if (signal.aborted) return false;
    const said = await this.messages.ofEvent(pusher, row);
    if (said === undefined) return this.#sent(pusher, row, upTo);
    if (signal.aborted) return false;
    if (!this.#work.mayAct(pusher.userId)) {
      // Somebody else may do it by now; if not, this process goes on once it knows.
      this.#retryLater(pusher.id, pusher.userId);
      return false;
    }
    const verdict = await this.requests.send(pusher, said, cut.signal);
    // A request that was cut off says nothing about the gateway, and is repeated after the start, or elsewhere.
    if (verdict.kind === 'failed') return signal.aborted ? false : this.#failed(pusher, verdict.reason);
    if (verdict.kind === 'rejected') {
      this.#retries.delete(pusher.id);
      return false;
    }
    this.metrics.counter('synapse_http_httppusher_http_pushes_processed').inc({});
    return this.#sent(pusher, row, upTo);
  }

  async #sent({ id }: Pusher, row: NotificationRow, upTo: number | undefined): Promise<true> {
    this.#retries.delete(id);
    await this.#note('pusher_sent', async (tx) => {
      await recordSuccess(tx, id, row.stream_ordering, this.clock.nowMs());
      if (upTo !== undefined) await clearDue(tx, id, upTo);
    });
    return true;
  }

  async #failed({ id, userId, failingSince, due }: Pusher, reason: string): Promise<false> {
    this.metrics.counter('synapse_http_httppusher_http_pushes_failed').inc({});
    const nowMs = this.clock.nowMs();
    const hopeless = failingSince !== undefined && nowMs - failingSince > giveUpAfterMs && due !== undefined;
    await this.#note('pusher_failed', (tx) => (hopeless ? clearDue(tx, id, due.upTo) : recordFailure(tx, id, nowMs)));
    const retryInMs = this.#retryLater(id, userId);
    this.logger.warn('A push gateway could not be reached', {
      userId,
      pusher: id,
      reason,
      retryInMs,
      dropped: hopeless,
    });
    return false;
  }

  #note(name: string, note: (tx: Tx) => Promise<void>): Promise<void> {
    return this.database.write(note, { name, anyProcess: true });
  }

  #retryLater(id: number, userId: string): number {
    const failures = (this.#retries.get(id)?.failures ?? 0) + 1;
    const delayMs = Math.min(firstRetryMs * 2 ** Math.min(failures - 1, 30), longestRetryMs);
    const timer = this.clock.after(delayMs, () => {
      this.#retries.set(id, { userId, failures, timer: undefined });
      this.#wake(id, userId);
    });
    this.#retries.set(id, { userId, failures, timer });
    return delayMs;
  }
}
