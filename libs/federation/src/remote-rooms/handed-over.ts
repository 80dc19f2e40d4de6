import { Injectable } from '@nestjs/common';

/**
 * Events of local users that another server sends on to the room, because it took them from this one: who helps somebody in tells
 * the others. Remembered while they are being stored; after a restart in between they are sent from here, too, which harms nobody.
 */
@Injectable()
export class HandedOver {
  readonly #eventIds = new Set<string>();

  /** Stores an event as one of these. */
  async while<T>(eventId: string, store: () => Promise<T>): Promise<T> {
    this.#eventIds.add(eventId);
    try {
      return await store();
    } finally {
      this.#eventIds.delete(eventId);
    }
  }

  /** Whether an event that is being stored is one of these. */
  has(eventId: string): boolean {
    return this.#eventIds.has(eventId);
  }
}
