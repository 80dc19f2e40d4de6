import { AsyncLocalStorage } from 'node:async_hooks';
import { MatrixError } from '@rookery/matrix-types';
import type { Clock, Logger } from '@rookery/platform';

/** So long may a chain be of events that modules answered events of modules with. */
const maxLength = 20;
/** Events of modules whose place in a chain is kept in mind. */
const maxKnown = 10_000;
/** So long is an event waited for that a module is sending, before another one is told, milliseconds. */
const longestWaitMs = 1_000;

/** A module on whose behalf the server does something. */
export interface ActingModule {
  readonly module: string;
  /** How many events and rooms of modules led to this, it included. */
  readonly length: number;
}

/**
 * Notices modules that answer events with events, and those with events again. A chain that is too long is broken: whoever would
 * add to it gets an error.
 */
export class EventChains {
  /** How many events of modules led to an event, that one included. */
  readonly #lengths = new Map<string, number>();
  /** Events that modules send now: one may be told before its sender knows which it is. */
  readonly #sending = new Set<Promise<void>>();
  readonly #answering = new AsyncLocalStorage<number>();
  readonly #acting = new AsyncLocalStorage<ActingModule>();

  constructor(
    private readonly log: Logger,
    private readonly clock: Clock,
  ) {}

  /** How many events of modules led to what is done now. */
  get length(): number {
    return this.#answering.getStore() ?? 0;
  }

  /** For which module the server makes an event or a room; to be read before anything else waits for it. */
  get actor(): ActingModule | undefined {
    return this.#acting.getStore();
  }

  /** Does what a number of events of modules led to, in another process. */
  answering<T>(length: number, work: () => T): T {
    return this.#answering.run(length, work);
  }

  /** Tells modules of an event: what they send now, or later because of it, answers it. */
  async telling(eventId: string, work: () => Promise<void>): Promise<void> {
    if (this.#sending.size > 0 && !this.#lengths.has(eventId)) await this.#sent();
    const length = this.#lengths.get(eventId);
    await (length === undefined ? work() : this.#answering.run(length, work));
  }

  /** Lets a module make an event or a room. @throws MatrixError 429 when it would make a chain too long */
  async acting<T>(module: string, work: () => Promise<T>): Promise<T> {
    const length = this.length + 1;
    if (length > maxLength) {
      this.log.error('A module answers events with events without end: it was stopped', { module, length: maxLength });
      throw MatrixError.eventChainTooLong();
    }
    return this.#acting.run({ module, length }, work);
  }

  /** As {@link acting}, for an event: whoever is told of it answers it. */
  async sending<Event extends { readonly eventId: string; readonly roomId: string }>(
    module: string,
    work: () => Promise<Event>,
  ): Promise<Event> {
    const length = this.length + 1;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#sending.add(promise);
    try {
      const event = await this.acting(module, work);
      this.#lengths.delete(event.eventId);
      this.#lengths.set(event.eventId, length);
      if (this.#lengths.size > maxKnown) this.#lengths.delete(this.#lengths.keys().next().value!);
      return event;
    } finally {
      this.#sending.delete(promise);
      resolve();
    }
  }

  /** Resolves when it is known which events those are that modules send now; or after a while, for a sender may wait for who is told. */
  async #sent(): Promise<void> {
    const enough = new AbortController();
    await Promise.race([Promise.all(this.#sending), this.clock.sleep(longestWaitMs, enough.signal)]);
    enough.abort();
  }
}
