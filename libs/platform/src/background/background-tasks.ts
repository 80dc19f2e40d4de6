import type { Clock, Timer } from '../clock.js';
import { type DatabaseCost, LogContext } from '../logging/log-context.js';
import { type Logger, SilentLogger } from '../logging/logger.js';
import type { Metrics } from '../metrics/metrics.js';
import type { Tracer } from '../observing/tracer.js';

/**
 * Where a task runs when a server has several processes: in every one of them (`every_process`: it tends what that process has in
 * memory), or in the one that holds the role.
 */
export type BackgroundRole = 'every_process' | 'background' | 'event_persister' | 'media' | 'presence' | 'pusher';

/** Work that is done again and again. */
export interface BackgroundTaskOptions {
  /** snake_case, unique in a server: its name in metrics, logs and the admin API. */
  readonly name: string;
  readonly role: BackgroundRole;
  readonly everyMs: number;
  /** Does the work once. Should end soon when the signal aborts. A rejection is logged; the next run comes all the same. */
  readonly run: (signal: AbortSignal) => Promise<void> | void;
}

/** What is known of a task. */
export interface BackgroundTaskReport {
  readonly name: string;
  readonly role: BackgroundRole;
  readonly everyMs: number;
  readonly isRunning: boolean;
  readonly runs: number;
  readonly failures: number;
  /** When the last run began, milliseconds since the epoch; absent before the first. */
  readonly lastStartedTs: number | undefined;
  /** How long the last run that ended took, milliseconds. */
  readonly lastDurationMs: number | undefined;
  /** What the last run failed with; absent when it did not. */
  readonly lastError: string | undefined;
}

/** One kind of work, never done twice at a time. */
export interface BackgroundTask {
  /** Begins; the first run comes after one interval. */
  start(): void;
  /**
   * Does the work now, or joins the run that is under way. Never rejects; does nothing once the task has stopped, nor where
   * another process has its role.
   */
  run(): Promise<void>;
  /** Starts no more runs, and resolves when the one under way has come to an end. */
  stop(): Promise<void>;
}

class Task implements BackgroundTask {
  readonly #stopping = new AbortController();
  #timer: Timer | undefined;
  #running: Promise<void> | undefined;
  #runs = 0;
  #failures = 0;
  #lastStartedTs: number | undefined;
  #lastDurationMs: number | undefined;
  #lastError: string | undefined;

  constructor(
    private readonly options: BackgroundTaskOptions,
    private readonly clock: Clock,
    private readonly logger: Logger,
    private readonly watch: ((name: string) => (cost: DatabaseCost) => void) | undefined,
    private readonly isOurs: (role: string) => boolean,
    private readonly tracer: Tracer | undefined,
  ) {}

  get #isHere(): boolean {
    const { role } = this.options;
    return role === 'every_process' || this.isOurs(role);
  }

  get hasStarted(): boolean {
    return this.#timer !== undefined;
  }

  start(): void {
    if (this.#stopping.signal.aborted) return;
    const { everyMs } = this.options;
    this.#timer ??= this.clock.every(everyMs, () => void this.run());
  }

  run(): Promise<void> {
    if (this.#stopping.signal.aborted || !this.#isHere) return Promise.resolve();
    this.#running ??= this.#attempt().finally(() => (this.#running = undefined));
    return this.#running;
  }

  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#stopping.abort();
    await this.#running;
  }

  report(): BackgroundTaskReport {
    const { name, role, everyMs } = this.options;
    return {
      ...{ name, role, everyMs, isRunning: this.#running !== undefined, runs: this.#runs, failures: this.#failures },
      lastStartedTs: this.#lastStartedTs,
      lastDurationMs: this.#lastDurationMs,
      lastError: this.#lastError,
    };
  }

  async #attempt(): Promise<void> {
    const { name, run } = this.options;
    const cost: DatabaseCost = { transactions: 0, durationMs: 0, waitMs: 0 };
    const startedAtMs = this.clock.monotonicMs();
    this.#lastStartedTs = this.clock.nowMs();
    const ended = this.watch?.(name);
    const trace = this.tracer?.begin();
    try {
      await LogContext.run({ requestId: `${name}-${++this.#runs}` }, () => run(this.#stopping.signal), cost, trace);
      this.#lastError = undefined;
    } catch (error) {
      this.#failures++;
      this.#lastError = String(error);
      this.logger.error('Work in the background failed; it is tried again', { task: name, err: error });
    }
    this.#lastDurationMs = this.clock.monotonicMs() - startedAtMs;
    ended?.(cost);
    trace?.end(name, 'internal', this.#lastDurationMs, {}, this.#lastError !== undefined);
  }
}

/** All work that a server does again and again in the background. */
export class BackgroundTasks {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #tracer: Tracer | undefined;
  readonly #watch: ((name: string) => (cost: DatabaseCost) => void) | undefined;
  readonly #tasks = new Map<string, Task>();
  #isOurs: (role: string) => boolean = () => true;

  /** @param metrics absent where nobody counts @param tracer absent where nothing is traced */
  constructor(clock: Clock, logger: Logger = new SilentLogger(), metrics?: Metrics, tracer?: Tracer) {
    this.#tracer = tracer;
    this.#clock = clock;
    this.#logger = logger;
    this.#watch = metrics && watchedBy(metrics);
  }

  /** Declares a task; it begins with {@link BackgroundTask.start}. @throws Error when there is one of this name */
  add(options: BackgroundTaskOptions): BackgroundTask {
    if (this.#tasks.has(options.name)) throw new Error(`There are two background tasks ${options.name}`);
    const task = new Task(options, this.#clock, this.#logger, this.#watch, (role) => this.#isOurs(role), this.#tracer);
    this.#tasks.set(options.name, task);
    return task;
  }

  /** Says whether this process has a role, where a server has several: tasks of the others do not run by themselves here. */
  runOnly(isOurs: (role: string) => boolean): void {
    this.#isOurs = isOurs;
  }

  /** Whether this process does what belongs to a role. */
  holds(role: BackgroundRole): boolean {
    return role === 'every_process' || this.#isOurs(role);
  }

  /** What is known of every task that has begun, by name. */
  list(): BackgroundTaskReport[] {
    const begun = [...this.#tasks.values()].filter((task) => task.hasStarted);
    return begun.map((task) => task.report()).toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Stops all of them; resolves when none is under way. */
  async stop(): Promise<void> {
    await Promise.all([...this.#tasks.values()].map((task) => task.stop()));
  }

  /** For the container. */
  onModuleDestroy(): Promise<void> {
    return this.stop();
  }
}

function watchedBy(metrics: Metrics): (name: string) => (cost: DatabaseCost) => void {
  const started = metrics.counter('synapse_background_process_start_count');
  const running = metrics.gauge('synapse_background_process_in_flight_count');
  const transactions = metrics.counter('synapse_background_process_db_txn_count');
  const inDatabase = metrics.counter('synapse_background_process_db_txn_duration_seconds');
  const waiting = metrics.counter('synapse_background_process_db_sched_duration_seconds');
  return (name) => {
    started.inc({ name });
    running.inc({ name });
    return (cost) => {
      running.dec({ name });
      transactions.inc({ name }, cost.transactions);
      inDatabase.inc({ name }, cost.durationMs / 1000);
      waiting.inc({ name }, cost.waitMs / 1000);
    };
  };
}
