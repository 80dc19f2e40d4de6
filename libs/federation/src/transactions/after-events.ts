import { Injectable } from '@nestjs/common';
import { Clock, Lifecycle, Logger } from '@rookery/platform';
import { StagedEvents } from './staged-events.js';

/** Pieces of work that wait for events, in all and for one server. With more, nobody waits. */
const maxWaiting = 2_000;
const maxPerOrigin = 200;
/** What is not in its room by then is not waited for, milliseconds. */
const limitMs = 10_000;

interface Turn {
  last: Promise<void>;
  waiting: number;
}

/**
 * Lets what came behind events of a room wait until those are in it: who has joined by them, what they allow, what they say. It
 * waits in memory, after its transaction was answered: only for news that is harmless to lose when the server ends.
 */
@Injectable()
export class AfterEvents {
  /** By server and subject. */
  readonly #turns = new Map<string, Turn>();
  readonly #perOrigin = new Map<string, number>();
  #waiting = 0;
  readonly #logger: Logger;

  constructor(
    private readonly staged: StagedEvents,
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
    lifecycle.on('streams', { name: 'EDUs behind events', stop: () => this.#settled() });
  }

  /**
   * Does something at once where nothing is on its way into any of the rooms, else soon: after what is, and after what was to be
   * done before for the same server and subject.
   * @returns when it was done, or is going to be; rejects only with what `work` rejects with at once
   */
  async run(origin: string, subject: string, roomIds: readonly string[], work: () => Promise<unknown>): Promise<void> {
    const key = `${origin}\n${subject}`;
    const ofOrigin = this.#perOrigin.get(origin) ?? 0;
    let turn = this.#turns.get(key);
    const mustWait = turn !== undefined || roomIds.some((roomId) => this.staged.isBusy(roomId));
    if (!mustWait || this.#waiting >= maxWaiting || ofOrigin >= maxPerOrigin) return void (await work());
    if (!turn) this.#turns.set(key, (turn = { last: Promise.resolve(), waiting: 0 }));
    this.#waiting++;
    this.#perOrigin.set(origin, ofOrigin + 1);
    turn.waiting++;
    const own = turn;
    const before = own.last;
    const events = Promise.all(roomIds.map((roomId) => this.staged.caughtUp(roomId)));
    own.last = this.#later(events, before, work)
      .catch((err: unknown) => this.#logger.warn('An EDU could not be handled', { origin, err }))
      .finally(() => {
        this.#waiting--;
        const left = (this.#perOrigin.get(origin) ?? 1) - 1;
        if (left > 0) this.#perOrigin.set(origin, left);
        else this.#perOrigin.delete(origin);
        if (--own.waiting === 0) this.#turns.delete(key);
      });
  }

  async #later(events: Promise<unknown>, before: Promise<void>, work: () => Promise<unknown>): Promise<void> {
    const arrived = new AbortController();
    await Promise.race([events, this.clock.sleep(limitMs, AbortSignal.any([arrived.signal, this.lifecycle.stopping]))]);
    arrived.abort();
    await before;
    if (!this.lifecycle.stopping.aborted) await work();
  }

  async #settled(): Promise<void> {
    await Promise.all([...this.#turns.values()].map(({ last }) => last));
  }
}
