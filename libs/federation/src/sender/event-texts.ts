import { Injectable } from '@nestjs/common';
import { canonicalJson } from '@rookery/events';
import { Cache, Config } from '@rookery/platform';
import { EventStore, isServable } from '@rookery/rooms';

const maxChars = 8 * 1024 * 1024;

/** PDUs as they lie in transactions. One that goes to many servers is written once. */
@Injectable()
export class EventTexts {
  readonly #texts: Cache<string, string>;

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
  async of(eventIds: readonly string[]): Promise<Map<string, string>> {
    const found = new Map<string, string>();
    const missing: string[] = [];
    for (const eventId of eventIds) {
      const text = this.#texts.get(eventId);
      if (text === undefined) missing.push(eventId);
      else found.set(eventId, text);
    }
    if (missing.length === 0) return found;
    for (const [eventId, stored] of await this.events.many(missing)) {
      if (!isServable(stored)) continue;
      const text = canonicalJson(stored.event.pdu);
      this.#texts.set(eventId, text);
      found.set(eventId, text);
    }
    return found;
  }

  /** An event was redacted or deleted. */
  forget(eventIds: Iterable<string>): void {
    for (const eventId of eventIds) this.#texts.delete(eventId);
  }
}
