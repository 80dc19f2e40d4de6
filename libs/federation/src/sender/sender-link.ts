import { type Clock, type Logger, ownTurn, type Timer } from '@rookery/platform';
import type { Outgoing } from './outgoing.js';
import type { SenderBatch } from './sender-calls.js';

export interface SenderLinkParts {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Differs for each link that there ever was. */
  readonly name: string;
  /** Gives the other process a batch. Rejects where it may not have it. */
  readonly give: (batch: SenderBatch) => Promise<unknown>;
}

/** In one batch: so many things, and places of servers in them. */
const maxOutgoing = 500;
const maxServers = 20_000;
/** What waits beyond that is left to the database. */
const maxWaiting = 10_000;
const retryMs = 1_000;
/** A sign of life is of use to a server that waits for an answer or pauses, and that is no matter of milliseconds. */
const lifeMs = 200;

/** What one other process is to send: told in order, in as few calls as there are while it is busy with the one before. */
export class SenderLink {
  readonly #parts: SenderLinkParts;
  #waiting: Outgoing[] = [];
  #forgotten: string[] = [];
  readonly #alive = new Set<string>();
  #lifeTimer: Timer | undefined;
  #isIncomplete = false;
  #number = 0;
  #isGiving = false;
  readonly #closing = new AbortController();

  constructor(parts: SenderLinkParts) {
    this.#parts = parts;
  }

  /** Tells what is to go to servers. */
  push(outgoing: Outgoing): void {
    if (this.#waiting.length >= maxWaiting) {
      this.#waiting = [];
      this.#isIncomplete = true;
    }
    this.#waiting.push(outgoing);
    this.#kick();
  }

  /** Tells that events were redacted or deleted, before whatever is told later. */
  forget(eventIds: readonly string[]): void {
    this.#forgotten.push(...eventIds);
    this.#kick();
  }

  /** Tells soon that a server showed life. */
  life(server: string): void {
    this.#alive.add(server);
    this.#lifeTimer ??= this.#parts.clock.after(lifeMs, () => {
      this.#lifeTimer = undefined;
      this.push({ kind: 'life', servers: [...this.#alive] });
      this.#alive.clear();
    });
  }

  /** Nothing more is told. */
  close(): void {
    this.#closing.abort();
    this.#lifeTimer?.cancel();
    this.#waiting = [];
    this.#forgotten = [];
  }

  #kick(): void {
    if (this.#isGiving || this.#closing.signal.aborted) return;
    this.#isGiving = true;
    void this.#giveAll().finally(() => (this.#isGiving = false));
  }

  /** Never rejects. */
  async #giveAll(): Promise<void> {
    // What is told in one turn of the event loop goes together.
    await ownTurn();
    while (this.#waiting.length + this.#forgotten.length > 0 || this.#isIncomplete) {
      const batch: SenderBatch = {
        ...{ link: this.#parts.name, number: ++this.#number },
        ...{ outgoing: this.#next(), forgotten: this.#forgotten, isIncomplete: this.#isIncomplete },
      };
      this.#forgotten = [];
      this.#isIncomplete = false;
      if (!(await this.#give(batch))) return;
    }
  }

  #next(): readonly Outgoing[] {
    let [count, servers] = [0, 0];
    while (count < this.#waiting.length && count < maxOutgoing && servers < maxServers)
      servers += this.#waiting[count++]!.servers.length;
    return this.#waiting.splice(0, count);
  }

  /** @returns whether the other process has it; otherwise this link was closed */
  async #give(batch: SenderBatch): Promise<boolean> {
    const { clock, give, logger } = this.#parts;
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        await give(batch);
        return true;
      } catch (err) {
        logger.debug('A process that sends to other servers could not be told what there is', { err });
        await clock.sleep(retryMs, signal);
      }
    }
    return false;
  }
}
