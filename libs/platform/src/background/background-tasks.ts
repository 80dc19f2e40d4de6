import type { Clock, Timer } from '../clock.js';
import { type DatabaseCost, LogContext } from '../logging/log-context.js';
import { type Logger, SilentLogger } from '../logging/logger.js';
import type { Metrics } from '../metrics/metrics.js';
import type { Tracer } from '../observing/tracer.js';

/**
 * Where a task runs when a server has several processes.
 *
 * - `every_process`: in each, since it tends what that process has in memory.
 * - `writer`: where everything is written. It writes events, state or streams, takes turns with what does, or tends what is in memory there.
 * - `background`, `media`: in whichever process has that role. It writes rows only that nobody has in memory, each time marked `anyProcess`.
 */
export type BackgroundRole = 'every_process' | 'writer' | 'background' | 'media';

/** Work that is done again and again. */
export interface BackgroundTaskOptions {
  /** snake_case, unique in a server: its name in metrics, logs and the admin API. */
  readonly name: string;
  readonly role: BackgroundRole;
  readonly everyMs: number;
  /**
   * Does the work once. Should end soon when the signal aborts: the server stops, or another process is to have the role. A rejection is
   * logged; the next run comes all the same.
   */
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
   * another process has its role, or nobody has.
   */
  run(): Promise<void>;
  /** Starts no more runs, and resolves when the one under way has come to an end. */
  stop(): Promise<void>;
}

/** How to log that something failed that is tried again. */
type FailureLevel = (error: unknown) => 'warn' | 'error';

class Task implements BackgroundTask {
  readonly #stopping = new AbortController();
  /** Ends the run that is under way. */
  #ending: AbortController | undefined;
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
    private readonly isOurs: (role: BackgroundRole) => boolean,
    private readonly tracer: Tracer | undefined,
    private readonly levelOf: FailureLevel,
  ) {}

  get role(): BackgroundRole {
    return this.options.role;
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
    if (this.#stopping.signal.aborted || !this.isOurs(this.role)) return Promise.resolve();
    this.#running ??= this.#attempt().finally(() => (this.#running = undefined));
    return this.#running;
  }

  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#stopping.abort();
    await this.end();
  }

  /** Ends the run that is under way; others may follow. */
  async end(): Promise<void> {
    this.#ending?.abort();
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
    const { signal } = (this.#ending = new AbortController());
    try {
      await LogContext.run({ requestId: `${name}-${++this.#runs}` }, () => run(signal), cost, trace);
      this.#lastError = undefined;
    } catch (error) {
      this.#failures++;
      this.#lastError = String(error);
      this.logger[this.levelOf(error)]('Work in the background failed; it is tried again', { task: name, err: error });
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
  readonly #levelOf: FailureLevel;
  #isOurs: (role: string) => boolean = () => true;
  /** Roles that another process is to have. */
  readonly #left = new Set<string>();

  /**
   * @param metrics absent where nobody counts
   * @param tracer absent where nothing is traced
   * @param levelOf how to log what made a task fail; as an error unless told
   */
  constructor(
    clock: Clock,
    logger: Logger = new SilentLogger(),
    metrics?: Metrics,
    tracer?: Tracer,
    levelOf: FailureLevel = () => 'error',
  ) {
    this.#levelOf = levelOf;
    this.#tracer = tracer;
    this.#clock = clock;
    this.#logger = logger;
    this.#watch = metrics && watchedBy(metrics);
  }

  /** Declares a task; it begins with {@link BackgroundTask.start}. @throws Error when there is one of this name */
  add(options: BackgroundTaskOptions): BackgroundTask {
    if (this.#tasks.has(options.name)) throw new Error(`There are two background tasks ${options.name}`);
    const isOurs = (role: BackgroundRole): boolean => this.holds(role);
    const task = new Task(options, this.#clock, this.#logger, this.#watch, isOurs, this.#tracer, this.#levelOf);
    this.#tasks.set(options.name, task);
    return task;
  }

  /** Says whether this process has a role, where a server has several: tasks of the others do not run by themselves here. */
  runOnly(isOurs: (role: string) => boolean): void {
    this.#isOurs = isOurs;
  }

  /** Whether this process does what belongs to a role. */
  holds(role: BackgroundRole): boolean {
    return role === 'every_process' || (!this.#left.has(role) && this.#isOurs(role));
  }

  /** This process has a role from now on: its tasks run here at their intervals. */
  enter(role: BackgroundRole): void {
    this.#left.delete(role);
  }

  /** Another process is to have a role: no task of it begins here any more, and those under way are ended. Resolves when none is. */
  async leave(role: BackgroundRole): Promise<void> {
    this.#left.add(role);
    await Promise.all([...this.#tasks.values()].filter((task) => task.role === role).map((task) => task.end()));
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
