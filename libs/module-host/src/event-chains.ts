import { AsyncLocalStorage } from 'node:async_hooks';
import { MatrixError } from '@rookery/matrix-types';
import type { Logger } from '@rookery/platform';

/** So long may a chain be of events that modules answered events of modules with. */
const maxLength = 20;
/** Events of modules whose place in a chain is kept in mind. */
const maxKnown = 10_000;

/**
 * Notices modules that answer events with events, and those with events again. A chain that is too long is broken: whoever would
 * add to it gets an error.
 */
export class EventChains {
  /** How many events of modules led to an event, that one included. */
  readonly #lengths = new Map<string, number>();
  readonly #answering = new AsyncLocalStorage<number>();

  constructor(private readonly log: Logger) {}

  /** Tells modules of an event: what they send now, or later because of it, answers it. */
  telling<T>(eventId: string, work: () => T): T {
    const length = this.#lengths.get(eventId);
    return length === undefined ? work() : this.#answering.run(length, work);
  }

  /** Lets a module send an event. @throws MatrixError 429 when it would make a chain too long */
  async sending<Event extends { readonly eventId: string; readonly roomId: string }>(
    module: string,
    work: () => Promise<Event>,
  ): Promise<Event> {
    const length = (this.#answering.getStore() ?? 0) + 1;
    if (length > maxLength) {
      this.log.error('A module answers events with events without end: it was stopped', { module, length: maxLength });
      throw MatrixError.eventChainTooLong();
    }
    const event = await work();
    this.#lengths.delete(event.eventId);
    this.#lengths.set(event.eventId, length);
    if (this.#lengths.size > maxKnown) this.#lengths.delete(this.#lengths.keys().next().value!);
    return event;
  }
}
