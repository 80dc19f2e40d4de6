import { Injectable } from '@nestjs/common';
import { Database, failureLevel } from '@rookery/database';
import type { ScheduledCall } from '@rookery/module-api';
import type { JobBackend } from '@rookery/module-host';
import { Clock, Ids, Logger, Metrics, type Timer } from '@rookery/platform';
import { defineRpc, Rpc } from '@rookery/replication';
import {
  claimJobs,
  type ClaimedJob,
  deleteJob,
  deleteOldJobs,
  dueJobs,
  finishJob,
  nextDueMs,
  postponeJob,
  postponeRepeated,
  renewLeases,
  storeCall,
  storeRepeated,
} from './jobs.query.js';

/** How long a process that died keeps others from its jobs, and how often one that lives says so. */
const leaseMs = 60_000;
const renewEveryMs = 20_000;
/** How often jobs are looked for that other processes stored. */
const pollMs = 30_000;
const maxRunning = 16;
/** One module that hangs must not keep the others from working. */
const maxRunningPerModule = 4;
const maxAttempts = 10;
const firstRetryMs = 10_000;
const longestRetryMs = 3_600_000;
/** A job that runs this long is named in the log, once. */
const slowMs = 600_000;
/** What nobody has run for so long, and has no handler, belongs to a module that is gone. */
const abandonedMs = 90 * 86_400_000;
/** How long a stop waits for jobs that are running. */
const stopLimitMs = 2_000;

/** There may be a job that is due. */
const wakeRunner = defineRpc<null, null>('wake_module_jobs');

type JobKind = 'every' | 'call';

interface Handler {
  readonly id: string;
  readonly module: string;
  readonly name: string;
  readonly periodMs: number | undefined;
  /** Rejects when the call is to be tried again. */
  readonly run: (payloadJson: string) => Promise<void>;
  /** Whether the row of a repeated job is in the database. */
  stored: boolean;
}

interface RunningJob {
  readonly handler: Handler;
  readonly startedAtMs: number;
  readonly done: Promise<void>;
}

const handlerId = (kind: JobKind, module: string, name: string): string => JSON.stringify([kind, module, name]);
/** What the ids of a module's handlers begin with. */
export const handlerPrefixes = (module: string): string[] =>
  (['every', 'call'] as const).map((kind) => `${JSON.stringify([kind, module]).slice(0, -1)},`);

const jobId = (handler: string, key: string): string => `${handler} ${key}`;

/**
 * Runs the jobs of modules from the table `module_jobs`: each in one of the processes that run this, at least once over
 * crashes, never twice at a time while the process that has it can reach the database.
 */
@Injectable()
export class JobRunner implements JobBackend {
  readonly #handlers = new Map<string, Handler>();
  readonly #running = new Map<ClaimedJob, RunningJob>();
  #started = false;
  #isStopped = false;
  #work: Promise<void> | undefined;
  #again = false;
  #timer: Timer | undefined;
  #renewal: Timer | undefined;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly logger: Logger,
    private readonly rpc: Rpc,
    metrics: Metrics,
  ) {
    rpc.handle(wakeRunner, () => {
      this.#wake();
      return Promise.resolve(null);
    });
    metrics.gauge('synapse_scheduler_running_tasks', (gauge) => gauge.set({}, this.#running.size));
  }

  every(module: string, name: string, periodMs: number, job: () => Promise<void>): ScheduledCall {
    return this.#register({ id: handlerId('every', module, name), module, name, periodMs, run: job, stored: false });
  }

  handle(module: string, name: string, job: (payloadJson: string) => Promise<void>): ScheduledCall {
    const id = handlerId('call', module, name);
    return this.#register({ id, module, name, periodMs: undefined, run: job, stored: true });
  }

  async runAt(module: string, name: string, atMs: number, payloadJson: string, key: string | undefined): Promise<void> {
    const handler = handlerId('call', module, name);
    const id = jobId(handler, key === undefined ? `#${this.ids.letters(24)}` : `=${key}`);
    // What is past is due from now: since when it waits tells whether its module is gone.
    const dueMs = Math.max(Math.floor(atMs), this.clock.nowMs());
    await this.database.write((tx) => storeCall(tx, id, handler, dueMs, payloadJson), {
      ...{ name: 'module_job_store', anyProcess: true },
    });
    if (this.database.isBesideWriter) void this.rpc.callOthers(wakeRunner, null);
    this.#wake();
  }

  cancel(module: string, name: string, key: string): Promise<boolean> {
    const id = jobId(handlerId('call', module, name), `=${key}`);
    return this.database.write((tx) => deleteJob(tx, id), {
      ...{ name: 'module_job_cancel', anyProcess: true },
    });
  }

  /** Begins to run jobs, once the modules have registered theirs. */
  async start(): Promise<void> {
    const { database, clock } = this;
    const handlers = [...this.#handlers.keys()];
    await database.write((tx) => deleteOldJobs(tx, handlers, clock.nowMs() - abandonedMs), {
      name: 'module_job_clean',
    });
    if (this.#isStopped) return;
    this.#started = true;
    this.#renewal = clock.every(renewEveryMs, () => void this.#renew());
    this.#wake();
  }

  /** Begins no more jobs, and waits a little for those that are running. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#started = false;
    this.#timer?.cancel();
    await this.#work;
    const enough = new AbortController();
    const all = Promise.all([...this.#running.values()].map(({ done }) => done));
    await Promise.race([all, this.clock.sleep(stopLimitMs, enough.signal)]);
    enough.abort();
    this.#renewal?.cancel();
  }

  #register(handler: Handler): ScheduledCall {
    this.#handlers.set(handler.id, handler);
    this.#wake();
    return {
      cancel: () => {
        if (this.#handlers.get(handler.id) === handler) this.#handlers.delete(handler.id);
      },
    };
  }

  #wake(): void {
    if (!this.#started) return;
    this.#again = true;
    this.#work ??= this.#pass().finally(() => {
      this.#work = undefined;
      if (this.#again) this.#wake();
    });
  }

  async #pass(): Promise<void> {
    const { clock, database, logger } = this;
    this.#timer?.cancel();
    let waitMs = pollMs;
    try {
      while (this.#started && this.#again) {
        this.#again = false;
        await this.#storeRepeated();
        const free = this.#free();
        if (free.length === 0) continue;
        for (const job of await this.#claim(free)) this.#begin(job);
      }
      const waiting = this.#free();
      const dueMs = waiting.length === 0 ? undefined : await nextDueMs(database, waiting);
      if (dueMs !== undefined) waitMs = Math.min(pollMs, Math.max(5, dueMs - clock.nowMs()));
    } catch (err) {
      logger[failureLevel(err)]('Jobs of modules cannot be run for now', { err });
    }
    if (this.#started) this.#timer = clock.after(waitMs, () => this.#wake());
  }

  /** Ids of the handlers that may begin a job now. */
  #free(): string[] {
    if (this.#running.size >= maxRunning) return [];
    const perModule = this.#perModule();
    return [...this.#handlers.values()]
      .filter(({ module, stored }) => stored && (perModule.get(module) ?? 0) < maxRunningPerModule)
      .map(({ id }) => id);
  }

  #perModule(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { handler } of this.#running.values()) counts.set(handler.module, (counts.get(handler.module) ?? 0) + 1);
    return counts;
  }

  async #storeRepeated(): Promise<void> {
    const fresh = [...this.#handlers.values()].filter(({ stored }) => !stored);
    if (fresh.length === 0) return;
    await this.database.write(
      async (tx) => {
        for (const { id, periodMs = 0 } of fresh) {
          await storeRepeated(tx, jobId(id, ''), id, Math.floor(periodMs), this.clock.nowMs());
        }
      },
      { name: 'module_job_store' },
    );
    for (const handler of fresh) handler.stored = true;
  }

  async #claim(handlers: readonly string[]): Promise<ClaimedJob[]> {
    const { clock, database, ids } = this;
    const nowMs = clock.nowMs();
    const due = await dueJobs(database, handlers, nowMs, maxRunning * 4);
    const perModule = this.#perModule();
    const wanted = [];
    for (const row of due) {
      const module = this.#handlers.get(row.handler)?.module ?? '';
      const running = perModule.get(module) ?? 0;
      if (running >= maxRunningPerModule || this.#running.size + wanted.length >= maxRunning) continue;
      perModule.set(module, running + 1);
      wanted.push(row);
    }
    if (wanted.length === 0) return [];
    const lease = ids.letters(24);
    const jobIds = wanted.map(({ job_id: id }) => id);
    const claimed = await database.write((tx) => claimJobs(tx, jobIds, lease, nowMs, nowMs + leaseMs), {
      name: 'module_job_claim',
    });
    return wanted.flatMap(({ due_ms: dueMs, ...row }) => {
      const attempts = claimed.get(row.job_id);
      return attempts === undefined ? [] : [{ ...row, dueMs, attempts, lease }];
    });
  }

  #begin(job: ClaimedJob): void {
    const handler = this.#handlers.get(job.handler);
    // Its module was taken out of service this very moment; the job is due again when the lease ends.
    if (handler === undefined) return;
    const done = this.#run(job, handler).finally(() => {
      this.#running.delete(job);
      this.#wake();
    });
    this.#running.set(job, { handler, startedAtMs: this.clock.monotonicMs(), done });
  }

  /** Never rejects. */
  async #run(job: ClaimedJob, handler: Handler): Promise<void> {
    const { clock, database, logger } = this;
    const about = { module: handler.module, job: handler.name };
    const slow = clock.after(slowMs, () => logger.warn('A job of a module takes very long', about));
    let failure: { readonly err: unknown } | undefined;
    try {
      // Begun so often and never ended: it may be what brings the process down.
      if (job.attempts > maxAttempts) throw new Error('The process ended each time while it ran');
      await handler.run(job.payload);
    } catch (err) {
      failure = { err };
    } finally {
      slow.cancel();
    }
    const nowMs = clock.nowMs();
    try {
      await database.write(
        async (tx) => {
          if (job.period_ms !== null) return postponeRepeated(tx, job, nowMs);
          if (failure === undefined || job.attempts >= maxAttempts) return finishJob(tx, job);
          const retryMs = Math.min(longestRetryMs, firstRetryMs * 2 ** (job.attempts - 1));
          return postponeJob(tx, job, nowMs + retryMs, job.attempts);
        },
        { name: 'module_job_finish' },
      );
    } catch (err) {
      logger.error('The end of a job could not be stored; it will run again', { ...about, err });
    }
    if (failure === undefined) return;
    const fields = { ...about, attempts: job.attempts, ...failure };
    if (job.period_ms !== null) logger.error('A repeated job of a module was passed over', fields);
    else if (job.attempts >= maxAttempts) logger.error('A job of a module failed for good', fields);
    else logger.warn('A job of a module failed and will be tried again', fields);
  }

  async #renew(): Promise<void> {
    const { clock, database, logger } = this;
    const running = [...this.#running].filter(([, job]) => this.#isKept(job)).map(([job]) => job);
    if (running.length === 0) return;
    try {
      await database.write((tx) => renewLeases(tx, running, clock.nowMs() + leaseMs), { name: 'module_job_renew' });
    } catch (err) {
      logger.warn('Running jobs of modules could not be kept; others may begin them, too', { err });
    }
  }

  /** What a module that was taken out of service began and does not end is not to keep its successor from the job for ever. */
  #isKept({ handler, startedAtMs }: RunningJob): boolean {
    return this.#handlers.get(handler.id) === handler || this.clock.monotonicMs() - startedAtMs < slowMs;
  }
}
