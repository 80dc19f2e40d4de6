import { Worker } from 'node:worker_threads';
import type { Clock, Logger, Timer } from '@rookery/platform';
import type { SqliteConnection } from './sqlite-connection.js';

/** Pages of the write-ahead log, and how many of them the file has, as `PRAGMA wal_checkpoint` tells it. */
export interface CheckpointReport {
  readonly log: number;
  readonly checkpointed: number;
}

export interface CheckpointOptions {
  /** With so many pages in the log that the file lacks they are moved. */
  readonly pages: number;
  readonly path: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** How often the length of the log is asked for, at most. */
const lookEveryMs = 20;
/** With so many times the pages SQLite moves them itself, in a commit: the thread cannot keep up. */
const lateFactor = 5;
/** How long the thread stays without work, milliseconds: it holds some MiB, and takes little to begin anew. */
const idleMs = 60_000;
/** Its heap, MiB. It holds nothing. */
const [oldSpaceMib, youngSpaceMib] = [16, 1];

/**
 * Moves pages from the write-ahead log into the file on a thread of its own, which begins when there is something to move for the
 * first time: SQLite by itself does it in a commit, so that a large log holds everybody up for as long as tens of thousands
 * of pages take to read, write and flush.
 *
 * The connection that writes moves what came in the meantime, which is little, so that its next commit begins the log anew.
 * Without that a log would only grow for as long as somebody writes. Where there is no thread, SQLite does it in commits.
 */
export class Checkpoints {
  #worker: Worker | undefined;
  #idle: Timer | undefined;
  #isMoving = false;
  #isMoved = false;
  #lookedAtMs = -Infinity;
  #isOver = false;

  /** @param writer the connection that writes */
  constructor(
    private readonly writer: SqliteConnection,
    private readonly options: CheckpointOptions,
  ) {
    this.#commitsMove(options.pages * lateFactor);
  }

  /** After each commit, outside of transactions. */
  committed(): void {
    if (this.#isOver) return;
    if (this.#isMoved) return this.#finish();
    const nowMs = this.options.clock.monotonicMs();
    if (this.#isMoving || nowMs - this.#lookedAtMs < lookEveryMs) return;
    this.#lookedAtMs = nowMs;
    const { log, checkpointed } = this.writer.get<CheckpointReport>('PRAGMA wal_checkpoint(NOOP)')!;
    if (log - checkpointed < this.options.pages) return;
    this.#isMoving = true;
    this.#idle?.cancel();
    this.#thread().postMessage('move');
  }

  /** Resolves once the thread has let the file go. */
  async close(): Promise<void> {
    this.#isOver = true;
    this.#idle?.cancel();
    const worker = this.#worker;
    if (worker === undefined) return;
    const ended = new Promise((resolve) => worker.once('exit', resolve));
    worker.ref();
    worker.postMessage('end');
    await ended;
  }

  #thread(): Worker {
    if (this.#worker !== undefined) return this.#worker;
    // In a checkout that runs from its sources, so does the thread.
    const isSource = import.meta.filename.endsWith('.ts');
    const worker = new Worker(new URL(`./checkpoint-thread${isSource ? '.ts' : '.js'}`, import.meta.url), {
      name: 'sqlite checkpoints',
      workerData: { path: this.options.path },
      ...(isSource ? {} : { execArgv: [] }),
      resourceLimits: { maxOldGenerationSizeMb: oldSpaceMib, maxYoungGenerationSizeMb: youngSpaceMib },
    });
    worker.unref();
    worker.on('message', () => {
      this.#isMoved = true;
      if (!this.writer.handle.inTransaction && !this.#isOver) this.#finish();
    });
    worker.on('error', (err) => this.#leaveToCommits(err));
    worker.on('exit', () => {
      if (this.#worker === worker) this.#worker = undefined;
    });
    return (this.#worker = worker);
  }

  #finish(): void {
    this.#isMoving = this.#isMoved = false;
    try {
      this.writer.handle.pragma('wal_checkpoint(PASSIVE)');
    } catch (error) {
      // A full disk, or one that fails: whoever commits is told.
      this.#leaveToCommits(error);
      return this.#endThread();
    }
    this.#idle = this.options.clock.after(idleMs, () => this.#endThread());
  }

  #endThread(): void {
    this.#worker?.postMessage('end');
    this.#worker = undefined;
  }

  #leaveToCommits(err: unknown): void {
    this.options.logger.error('The log of the database could not be moved into its file by a thread: commits do it', {
      err,
    });
    if (!this.#isOver) this.#commitsMove(this.options.pages);
    this.#isOver = true;
  }

  #commitsMove(pages: number): void {
    this.writer.handle.pragma(`wal_autocheckpoint = ${pages}`);
  }
}
