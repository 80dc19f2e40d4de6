import { closeSync, fstatSync, mkdirSync, openSync, write, writeSync } from 'node:fs';
import { dirname } from 'node:path';

/** Most bytes that wait for a reader that has stalled; what comes on top is dropped and counted. */
const waitingLimitBytes = 16 * 1024 * 1024;
/** Pause before writing again to a pipe that is full. */
const fullPipeMs = 50;
/** Pause after any other failure: of a disk that is full, above all. */
const failedMs = 1_000;
/** A standard stream that nobody reads any more, or that is closed, never comes back. */
const goneForGood: ReadonlySet<string | undefined> = new Set(['EPIPE', 'EBADF']);

const open = new Set<LineWriter>();
process.on('exit', () => {
  for (const writer of open) writer.flushSync();
});

/**
 * Appends lines to a file or to the standard output without making anybody wait: lines gather while the last ones are being
 * written, and go out when the process ends. A reader that stalls costs lines, and so does a disk that is full for long; a reader
 * that goes away costs the log, none of them ever the server.
 */
export class LineWriter {
  readonly #fd: number;
  readonly #sync: boolean;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #dropped = 0;
  /** What is being written, and from where. */
  #current: Buffer | undefined;
  #offset = 0;
  /** A thread is writing it. */
  #inFlight = false;
  /** Until it is tried again. */
  #pause: NodeJS.Timeout | undefined;
  #closing = false;
  #broken = false;

  /**
   * @param file path of a file, made with its folders when missing; `undefined` for the standard output
   * @param sync write every line at once: for terminals, where the order with other output matters
   * @param stream where no file is named: 1 is the standard output, 2 that for errors
   * @throws Error when the file cannot be opened
   */
  constructor(file: string | undefined, sync: boolean, stream: 1 | 2 = 1) {
    if (file !== undefined) mkdirSync(dirname(file), { recursive: true });
    this.#fd = file === undefined ? stream : openSync(file, 'a', 0o640);
    this.#sync = sync;
    open.add(this);
  }

  /** Which file it writes to, by whatever name that goes now. @throws Error when that cannot be found out */
  get identity(): string {
    return identityOf(fstatSync(this.#fd, { bigint: true }));
  }

  /** Takes a line with its end. Never throws. */
  write(line: string): void {
    if (this.#broken) return;
    if (this.#waitingBytes > waitingLimitBytes) {
      this.#dropped += 1;
      return;
    }
    this.#waiting.push(line);
    this.#waitingBytes += line.length;
    if (this.#pause) return;
    if (this.#sync) this.flushSync();
    else if (!this.#inFlight) this.#next();
  }

  /**
   * Writes what waits, as far as the other side takes it. What a thread is writing at that moment stays with it: the runtime
   * lets its threads finish before the process ends.
   */
  flushSync(): void {
    clearTimeout(this.#pause);
    this.#pause = undefined;
    if (this.#inFlight) {
      this.#current = undefined;
      this.#inFlight = false;
    }
    try {
      for (let chunk = this.#take(); chunk && !this.#broken; chunk = this.#take()) {
        this.#offset += writeSync(this.#fd, chunk, this.#offset);
      }
    } catch (error) {
      this.#failed(error as NodeJS.ErrnoException);
    }
  }

  /** Writes what waits, as far as that can be written now, and closes the file; lines that come later are ignored. */
  async close(): Promise<void> {
    this.#closing = true;
    while (!this.#broken && (this.#inFlight || this.#pause || this.#waiting.length > 0))
      await new Promise((resolve) => setTimeout(resolve, 5));
    open.delete(this);
    this.#broken = true;
    if (this.#fd > 2) closeSync(this.#fd);
  }

  /** The bytes to write now: the rest of what is being written, else everything that waits. */
  #take(): Buffer | undefined {
    if (this.#current && this.#offset < this.#current.length) return this.#current;
    this.#current = undefined;
    this.#offset = 0;
    if (this.#dropped > 0 && this.#waitingBytes <= waitingLimitBytes) {
      this.#waiting.push(
        `${JSON.stringify({ level: 'warn', msg: 'Lines of the log were lost', lines: this.#dropped })}\n`,
      );
      this.#dropped = 0;
    }
    if (this.#waiting.length === 0) return undefined;
    this.#current = Buffer.from(this.#waiting.join(''));
    this.#waiting = [];
    this.#waitingBytes = 0;
    return this.#current;
  }

  #next(): void {
    const chunk = this.#take();
    this.#inFlight = chunk !== undefined && !this.#broken;
    if (!chunk || this.#broken) return;
    write(this.#fd, chunk, this.#offset, chunk.length - this.#offset, null, (error, written) => {
      if (this.#current !== chunk) return; // The process ends.
      this.#inFlight = false;
      this.#offset += written ?? 0;
      if (error) this.#failed(error);
      else this.#next();
    });
  }

  #failed({ code }: NodeJS.ErrnoException): void {
    const isFull = code === 'EAGAIN';
    this.#broken = (this.#fd <= 2 && goneForGood.has(code)) || (this.#closing && !isFull);
    if (this.#broken) return;
    const again = (): void => {
      this.#pause = undefined;
      if (this.#sync) this.flushSync();
      else this.#next();
    };
    this.#pause = setTimeout(again, isFull ? fullPipeMs : failedMs).unref();
  }
}

/** Tells files apart whatever they are called. */
export const identityOf = ({ dev, ino }: { readonly dev: bigint; readonly ino: bigint }): string => `${dev}:${ino}`;
