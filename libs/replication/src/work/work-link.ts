import { MatrixError } from '@rookery/matrix-types';
import { type Clock, type Logger, ownTurn } from '@rookery/platform';

/** What there is to do for a process, in order. Goes from process to process as JSON. */
export interface WorkBatch<Item> {
  /** Who tells it: differs for each process that ever wrote, and each time it began to tell this one. */
  readonly link: string;
  /** 1, 2, 3… of what was told by that link. What is repeated has the number that it had. */
  readonly number: number;
  readonly items: readonly Item[];
  /** Something was left out: what of it lies in the database is to be looked up there. */
  readonly isIncomplete: boolean;
}

export interface WorkLinkParts<Item> {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Differs for each link that there ever was. */
  readonly name: string;
  /** How much an item is, of which a batch holds {@link maxBatchSize} and not much more. */
  readonly sizeOf: (item: Item) => number;
  /** Gives the other process a batch. Rejects where it may not have it; with `M_TOO_LARGE` where it never can. */
  readonly give: (batch: WorkBatch<Item>) => Promise<unknown>;
}

const maxItems = 500;
const maxBatchSize = 20_000;
/** What waits beyond that is left to the database. */
const maxWaiting = 10_000;
const retryMs = 1_000;
/** What could not be told so often is left to the database as well: what comes behind it must not wait for ever. */
const maxAttempts = 10;

/**
 * What one other process is to do: told in order, in as few calls as there are while it is busy with the one before. What cannot be told is
 * left out, and the process is told that something was.
 */
export class WorkLink<Item> {
  readonly #parts: WorkLinkParts<Item>;
  #waiting: Item[] = [];
  #isIncomplete = false;
  #number = 0;
  #isGiving = false;
  readonly #closing = new AbortController();

  constructor(parts: WorkLinkParts<Item>) {
    this.#parts = parts;
  }

  push(item: Item): void {
    if (this.#waiting.length >= maxWaiting) {
      this.#waiting = [];
      this.#isIncomplete = true;
    }
    this.#waiting.push(item);
    if (this.#isGiving || this.#closing.signal.aborted) return;
    this.#isGiving = true;
    void this.#giveAll();
  }

  /** Nothing more is told. */
  close(): void {
    this.#closing.abort();
    this.#waiting = [];
  }

  /** Never rejects. */
  async #giveAll(): Promise<void> {
    // What is told in one turn of the event loop goes together.
    await ownTurn();
    while ((this.#waiting.length > 0 || this.#isIncomplete) && !this.#closing.signal.aborted) {
      const isIncomplete = this.#isIncomplete;
      this.#isIncomplete = false;
      const { name: link } = this.#parts;
      await this.#give({ link, number: ++this.#number, items: this.#next(), isIncomplete });
    }
    this.#isGiving = false;
  }

  #next(): readonly Item[] {
    let [count, size] = [0, 0];
    while (count < this.#waiting.length && count < maxItems && size < maxBatchSize)
      size += this.#parts.sizeOf(this.#waiting[count++]!);
    return this.#waiting.splice(0, count);
  }

  /** Again and again, until the other process has it, it is left out, or this link is closed. */
  async #give(batch: WorkBatch<Item>): Promise<void> {
    const { clock, give, logger } = this.#parts;
    const { signal } = this.#closing;
    for (let attempt = 1; !signal.aborted; attempt++) {
      try {
        await give(batch);
        return;
      } catch (err) {
        const isTooLarge = MatrixError.is(err) && err.errcode === 'M_TOO_LARGE';
        if (isTooLarge || attempt === maxAttempts) {
          logger.warn('A process is not told what there was to do: it looks for that in the database', { err });
          this.#isIncomplete = true;
          return;
        }
        logger.debug('A process could not be told what there is to do', { err });
        await clock.sleep(retryMs, signal);
      }
    }
  }
}
