import { Injectable } from '@nestjs/common';
import { canonicalJson } from '@rookery/events';
import { Cache, Config, SingleFlight } from '@rookery/platform';
import { EventStore, isServable } from '@rookery/rooms';

const maxChars = 8 * 1024 * 1024;

/** PDUs as they lie in transactions. One that goes to many servers is written once. */
@Injectable()
export class EventTexts {
  readonly #texts: Cache<string, string>;
  /** Events that are read for many servers at once. */
  readonly #reading = new SingleFlight<ReadonlyMap<string, string>>();
  #forgotten: (eventIds: readonly string[]) => void = () => undefined;

  constructor(
    private readonly events: EventStore,
    config: Config,
  ) {
    this.#texts = new Cache(config, 'federation_pdus', {
      invalidation: 'never',
      max: maxChars,
      sizeOf: (text) => text.length + 100,
    });
  }

  /** By event id; events that are gone, or that nobody is to see, are absent. */
  async of(eventIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const known = new Map<string, string>();
    for (const eventId of eventIds) {
      const text = this.#texts.get(eventId);
      if (text === undefined) return this.#reading.run(eventIds.join('\n'), () => this.#read(eventIds));
      known.set(eventId, text);
    }
    return known;
  }

  /** Events were redacted or deleted. */
  forget(eventIds: readonly string[]): void {
    this.#texts.forget(eventIds);
    this.#forgotten(eventIds);
  }

  /** News of what was redacted or deleted may have been missed. */
  forgetAll(): void {
    this.#texts.clear();
  }

  /** Tells what is forgotten here. One listener; it must not throw or block. */
  onForgotten(listener: (eventIds: readonly string[]) => void): void {
    this.#forgotten = listener;
  }

  #read(eventIds: readonly string[]): Promise<Map<string, string>> {
    return this.#texts.fetchMany(eventIds, async (missing) => {
      const texts = new Map<string, string>();
      for (const [eventId, stored] of await this.events.many(missing)) {
        if (!isServable(stored)) continue;
        // What an invite shows to its target is told to that user's server only, and others would count it as a part of the event's size.
        const { unsigned: _, ...pdu } = stored.event.pdu;
        texts.set(eventId, canonicalJson(pdu));
      }
      return texts;
    });
  }
}
