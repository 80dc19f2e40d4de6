import { Injectable } from '@nestjs/common';
import { KeyedCounter, KeyedMutex, Lifecycle, Logger } from '@rookery/platform';
import { StagedEvents } from './staged-events.js';

/** Pieces of work that wait for events, in all and for one server. With more, nobody waits. */
const maxWaiting = 2_000;
const maxPerOrigin = 200;
/** What is not in its room by then is not waited for, milliseconds. */
const limitMs = 10_000;

/**
 * Lets what came behind events of a room wait until those are in it: who has joined by them, what they allow, what they say. It
 * waits in memory, after its transaction was answered: only for news that is harmless to lose when the server ends.
 */
@Injectable()
export class AfterEvents {
  /** By server and subject. */
  readonly #turns = new KeyedMutex();
  readonly #perOrigin = new KeyedCounter();
  #waiting = 0;
  readonly #logger: Logger;

  constructor(
    private readonly staged: StagedEvents,
    private readonly lifecycle: Lifecycle,
    logger: Logger,
  ) {
    this.#logger = logger.child('federation');
    lifecycle.on('streams', { name: 'EDUs behind events', stop: () => this.#turns.settled() });
  }

  /**
   * Does something at once where nothing is on its way into any of the rooms, else soon: after what is, and after what was to be
   * done before for the same server and subject.
   * @returns when it was done, or is going to be; rejects only with what `work` rejects with at once
   */
  async run(origin: string, subject: string, roomIds: readonly string[], work: () => Promise<unknown>): Promise<void> {
    const key = `${origin}\n${subject}`;
    const mustWait = this.#turns.isBusy(key) || roomIds.some((roomId) => this.staged.isBusy(roomId));
    if (!mustWait || this.#waiting >= maxWaiting || this.#perOrigin.of(origin) >= maxPerOrigin)
      return void (await work());
    this.#waiting++;
    this.#perOrigin.add(origin);
    // Waited for from now on, whoever is before.
    const arrived = this.staged.arrived(roomIds, limitMs);
    void this.#turns
      .run(key, async () => {
        await arrived;
        if (!this.lifecycle.stopping.aborted) await work();
      })
      .catch((err: unknown) => this.#logger.warn('An EDU could not be handled', { origin, err }))
      .finally(() => {
        this.#waiting--;
        this.#perOrigin.remove(origin);
      });
  }
}
