import { type ChildProcess, fork } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { type Logger, Semaphore } from '@rookery/platform';
import { joinedOutcome, type ReloadOutcome } from '../reload-outcome.js';

/** How the processes are begun. */
export interface WatchOptions {
  readonly count: number;
  /** The program, and what it is started with; engine options are those of this process. */
  readonly program: string;
  readonly args: readonly string[];
  readonly logger: Logger;
}

/** What a process and the one that watches it say to each other. */
export type WatchMessage = 'ready' | 'ping' | 'pong' | { readonly reloaded: ReloadOutcome };

const pingMs = 2_000;
/** A process that says nothing for so long is ended: longer than it takes for others to have its work. */
const silentMs = 15_000;
const firstPauseMs = 500;
const longestPauseMs = 30_000;
/** One that lived so long was no failed start. */
const livedMs = 30_000;
const stopLimitMs = 8_000;
/** Less than `rookery reload` waits. */
const reloadLimitMs = 110_000;
/** One that starts for longer waits for something, and not for a processor. */
const startLimitMs = 20_000;

/** A process, from its beginning to its end. */
interface Watched {
  readonly child: ChildProcess;
  /** It has said so. Before, a signal might end it: it may not have got to where it minds one. */
  isReady: boolean;
  /** It was to take over what changed before it was ready. */
  isReloadDue: boolean;
}

/** Starts the processes of a server on one machine, starts those anew that end or hang, and stops them together. */
export class WatchedProcesses {
  /** Resolves when a process could not start the first time: there is no use in trying again. It has said why. */
  readonly failed: Promise<void>;
  readonly #options: WatchOptions;
  readonly #children = new Map<number, Watched>();
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #startedOnce = new Set<number>();
  /** Those that are to be started, with how often they failed, and those that are at it. */
  readonly #toStart: { readonly index: number; readonly failures: number }[] = [];
  readonly #starting = new Set<number>();
  readonly #reloads = new Semaphore(1);
  #isStopping = false;
  #tellFailed: () => void = () => {};

  constructor(options: WatchOptions) {
    this.#options = options;
    this.failed = new Promise((resolve) => (this.#tellFailed = resolve));
    for (let index = 0; index < options.count; index++) this.#toStart.push({ index, failures: 0 });
    this.#startSome();
  }

  /** Their process ids. */
  get pids(): readonly number[] {
    return [...this.#children.values()].flatMap(({ child }) => child.pid ?? []);
  }

  /** Passes a signal that ends them on to all. */
  signal(signal: 'SIGTERM' | 'SIGKILL'): void {
    for (const { child } of this.#children.values()) child.kill(signal);
  }

  /**
   * Has all take over what changed; one that still starts does so once it is ready.
   * @returns what became of it in those that were ready, and which were not. Never rejects
   */
  reload(): Promise<ReloadOutcome> {
    // One after the other: signals that a process has not looked at yet count once.
    return this.#reloads.run(async () => {
      const all = [...this.#children.values()];
      for (const watched of all) watched.isReloadDue = !watched.isReady;
      const ready = all.filter(({ isReady }) => isReady);
      const starting = all.filter(({ isReady }) => !isReady);
      const left = starting.map(({ child }) => `process ${String(child.pid)} takes it over when it has started`);
      const outcomes = await Promise.all(ready.map(({ child }) => reloadOf(child)));
      return joinedOutcome([...outcomes.flat(), ...(left.length > 0 ? [outcomeLeft(left)] : [])]);
    });
  }

  /** Stops all, and kills those that do not in time. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    for (const timer of this.#timers) clearTimeout(timer);
    const ends = [...this.#children.values()].map(({ child }) => new Promise((resolve) => child.once('exit', resolve)));
    this.signal('SIGTERM');
    const late = setTimeout(() => this.signal('SIGKILL'), stopLimitMs);
    await Promise.all(ends);
    clearTimeout(late);
  }

  /**
   * The first by itself, then as many at a time as there are processors: the sooner does one answer, and with all of them at once on few
   * processors none would get to its heartbeat in time.
   */
  #startSome(): void {
    const atOnce = this.#startedOnce.size === 0 ? 1 : availableParallelism();
    while (!this.#isStopping && this.#starting.size < atOnce) {
      const next = this.#toStart.shift();
      if (next === undefined) return;
      this.#starting.add(next.index);
      this.#start(next.index, next.failures);
    }
  }

  #noLongerStarts(index: number): void {
    if (this.#starting.delete(index)) this.#startSome();
  }

  #after(ms: number, then: () => void): NodeJS.Timeout {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      then();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }

  #start(index: number, failures: number): void {
    const { program, args, logger } = this.#options;
    const notBegun = (err: unknown): void => {
      logger.error('A process of the server could not be begun', { err });
      this.#ended(index, failures + 1, {});
    };
    let child: ChildProcess;
    try {
      child = fork(program, [...args], {
        execArgv: process.execArgv,
        stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      });
    } catch (err) {
      // So it does where there is no memory; where there are too many processes or files it says so later.
      return notBegun(err);
    }
    const watched: Watched = { child, isReady: false, isReloadDue: false };
    this.#children.set(index, watched);
    const startedAtMs = performance.now();
    let heardAtMs = startedAtMs;
    const late = this.#after(startLimitMs, () => this.#noLongerStarts(index));
    const notLate = (): void => {
      clearTimeout(late);
      this.#timers.delete(late);
    };
    const forget = (): void => {
      clearInterval(pinging);
      notLate();
      this.#children.delete(index);
    };
    child.on('message', (message: WatchMessage) => {
      heardAtMs = performance.now();
      if (message !== 'ready') return;
      watched.isReady = true;
      this.#startedOnce.add(index);
      notLate();
      this.#noLongerStarts(index);
      // It may have read its settings before they changed.
      if (watched.isReloadDue) void this.#reloads.run(() => reloadOf(child));
    });
    const pinging = setInterval(() => {
      // While it starts it may wait for the database, or change it.
      if (watched.isReady && performance.now() - heardAtMs > silentMs) {
        logger.error('A process of the server hangs: it is ended, and begins anew', { pid: child.pid });
        child.kill('SIGKILL');
      } else if (child.connected) child.send('ping' satisfies WatchMessage, () => {});
    }, pingMs);
    child.on('error', (err) => {
      if (child.pid !== undefined) return logger.warn('A process of the server could not be reached', { err });
      forget();
      notBegun(err);
    });
    child.once('exit', (code, signal) => {
      forget();
      const failuresNow = performance.now() - startedAtMs > livedMs ? 0 : failures + 1;
      this.#ended(index, failuresNow, { pid: child.pid, code, signal });
    });
  }

  /** A process is not there any more, or could not be begun: there is another one after a while. @param failures how often it failed by now */
  #ended(index: number, failures: number, how: object): void {
    if (this.#isStopping) return;
    if (this.#startedOnce.size === 0) return this.#tellFailed();
    this.#noLongerStarts(index);
    const pauseMs = Math.min(firstPauseMs * 2 ** failures, longestPauseMs);
    this.#options.logger.warn('A process of the server ended and begins anew', { ...how, in_ms: pauseMs });
    this.#after(pauseMs, () => {
      this.#toStart.push({ index, failures });
      this.#startSome();
    });
  }
}

/** Where nothing is known to have been taken over, and why. */
const outcomeLeft = (left: readonly string[]): ReloadOutcome => ({
  report: { changed: [], modules: { added: [], changed: [], removed: [] }, left },
});

/** Has one process take over what changed. @returns what it says, if it does not end before */
function reloadOf(child: ChildProcess): Promise<readonly ReloadOutcome[]> {
  return new Promise((resolve) => {
    const finish = (outcomes: readonly ReloadOutcome[]): void => {
      clearTimeout(late);
      child.off('message', hear);
      child.off('exit', end);
      resolve(outcomes);
    };
    const hear = (message: WatchMessage): void => {
      if (typeof message === 'object') finish([message.reloaded]);
    };
    const end = (): void => finish([]);
    const silent = `process ${String(child.pid)} has not said yet what it took over`;
    const late = setTimeout(() => finish([outcomeLeft([silent])]), reloadLimitMs);
    child.on('message', hear).once('exit', end);
    if (!child.kill('SIGHUP')) finish([]);
  });
}
