import type { Database } from '@rookery/database';
import { type Clock, type Logger, SilentLogger } from '@rookery/platform';
import { cursorOf, saveCursor } from './cursor.query.js';
import type { Notifier } from './notifier.js';
import type { StreamReader, StreamRow } from './streams/stream-definition.js';

export interface FollowerOptions {
  /** Name of its cursor, unique in the database: `push_sender`. */
  readonly name: string;
  readonly stream: string;
  readonly database: Database;
  readonly notifier: Notifier;
  readonly clock: Clock;
  readonly logger?: Logger | undefined;
  /**
   * Works on what lies in `after < position <= upTo` and returns how far it got, which is more than `after`. It may be called
   * again for the same rows after a failure or a crash. What it writes itself can be made to happen once by saving the cursor in
   * the same transaction: `saveCursor(tx, follower.name, position)`. It may reject once the signal aborts: the follower is to stop.
   */
  readonly advance: (after: number, upTo: number, signal: AbortSignal) => Promise<number>;
  /**
   * Where a follower without a cursor begins: with everything there is, or with what comes, or not before another process has stored one.
   * `beginning` unless told.
   */
  readonly startAt?: 'beginning' | 'now' | 'once stored' | undefined;
  /** It may follow in a process that does not write: so does whatever has to be written by `advance`. */
  readonly anyProcess?: boolean | undefined;
  /** The cursor is stored at most this often, since each time costs a commit; 1,000 unless told. */
  readonly saveEveryMs?: number | undefined;
}

const firstRetryMs = 500;
const longestRetryMs = 60_000;

/** The `advance` of a follower that takes a stream's rows in batches. */
export function inBatches<Row extends StreamRow>(
  database: Database,
  stream: StreamReader<Row>,
  handle: (rows: readonly Row[]) => Promise<void>,
  limit = 100,
): (after: number, upTo: number) => Promise<number> {
  return async (after, upTo) => {
    const rows = await stream.read(database, after, upTo, limit);
    const last = rows.at(-1);
    if (last === undefined) return upTo;
    await handle(rows);
    // Fewer than asked for means that there are no more.
    return rows.length < limit ? upTo : last.position;
  };
}

/**
 * Reads a stream to its end, again and again, from a cursor in the database: at least once for each row, in order, however
 * often the server is restarted. A failure is tried again, with growing pauses.
 */
export class Follower {
  readonly #options: FollowerOptions;
  readonly #logger: Logger;
  #stopping = new AbortController();
  #isBegun = false;
  #position = 0;
  #saved = 0;
  #savedAtMs = -Infinity;
  #failures = 0;
  #loop: Promise<void> | undefined;
  #wake: (() => void) | undefined;
  #unsubscribe: (() => void) | undefined;

  constructor(options: FollowerOptions) {
    this.#options = options;
    this.#logger = options.logger ?? new SilentLogger();
  }

  get name(): string {
    return this.#options.name;
  }
  /** How far it has come. */
  get position(): number {
    return this.#position;
  }
  /** Failures since the last success. */
  get failures(): number {
    return this.#failures;
  }

  /** Reads the cursor and begins; also anew, once it has stopped. */
  async start(): Promise<void> {
    const { notifier, stream } = this.#options;
    this.#stopping = new AbortController();
    this.#isBegun = false;
    this.#failures = 0;
    await this.#begin();
    this.#unsubscribe = notifier.onAdvance(stream, () => this.#wake?.());
    this.#loop = this.#run();
  }

  /** Lets the batch in hand finish, stores the cursor and ends. */
  async stop(): Promise<void> {
    this.#unsubscribe?.();
    this.#stopping.abort();
    this.#wake?.();
    await this.#loop;
    if (!this.#isBegun || this.#position === this.#saved) return;
    try {
      await this.#save();
    } catch (error) {
      this.#logger.warn('A follower could not store its position', { follower: this.name, err: error });
    }
  }

  async #begin(): Promise<void> {
    const { database, name, notifier, stream, startAt } = this.#options;
    const stored = await cursorOf(database, name);
    if (stored === undefined && startAt === 'once stored') return;
    this.#position = stored ?? (startAt === 'now' ? notifier.position(stream) : 0);
    if (stored !== undefined) this.#saved = this.#position;
    // Otherwise a crash before the first batch would make "now" a later one.
    else await this.#save();
    this.#isBegun = true;
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      const upTo = this.#options.notifier.position(this.#options.stream);
      if (this.#isBegun && upTo <= this.#position) {
        await this.#idle(upTo);
        continue;
      }
      try {
        if (!this.#isBegun) {
          await this.#begin();
          if (!this.#isBegun) await this.#idle(upTo);
          continue;
        }
        const reached = await this.#options.advance(this.#position, upTo, signal);
        if (!(reached > this.#position && reached <= upTo)) {
          throw new Error(`advance(${this.#position}, ${upTo}) returned ${reached}`);
        }
        this.#position = reached;
        if (this.#options.clock.monotonicMs() - this.#savedAtMs >= (this.#options.saveEveryMs ?? 1000))
          await this.#save();
        this.#failures = 0;
      } catch (error) {
        if (!signal.aborted) await this.#backOff(error);
      }
    }
  }

  /** Sleeps until the stream moves on from where it was seen; stores a cursor that is behind when nothing happens for a while. */
  async #idle(seen: number): Promise<void> {
    // What came, or the end, while the cursor was looked for has woken nobody.
    if (this.#stopping.signal.aborted || this.#options.notifier.position(this.#options.stream) > seen) return;
    const behind = this.#isBegun && this.#position !== this.#saved;
    const timer = behind
      ? this.#options.clock.after(this.#options.saveEveryMs ?? 1000, () => this.#wake?.())
      : undefined;
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    this.#wake = undefined;
    timer?.cancel();
    if (
      !behind ||
      this.#options.notifier.position(this.#options.stream) > this.#position ||
      this.#stopping.signal.aborted
    )
      return;
    try {
      await this.#save();
    } catch (error) {
      await this.#backOff(error);
    }
  }

  async #backOff(error: unknown): Promise<void> {
    this.#failures++;
    const delayMs = Math.min(firstRetryMs * 2 ** (this.#failures - 1), longestRetryMs);
    const fields = {
      follower: this.name,
      position: this.#position,
      failures: this.#failures,
      retryInMs: delayMs,
      err: error,
    };
    this.#logger.warn('A follower failed and will try again', fields);
    await this.#options.clock.sleep(delayMs, this.#stopping.signal);
  }

  async #save(): Promise<void> {
    const position = this.#position;
    const { anyProcess = false, database } = this.#options;
    await database.write((tx) => saveCursor(tx, this.name, position), { name: 'save_cursor', anyProcess });
    this.#saved = position;
    this.#savedAtMs = this.#options.clock.monotonicMs();
  }
}
