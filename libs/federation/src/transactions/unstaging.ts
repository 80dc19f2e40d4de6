import type { Database } from '@rookery/database';
import { batchesOf, ownTurn } from '@rookery/platform';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { deleteStaged, type StagedPlace } from './staging.query.js';

/** Events that are forgotten before others get a turn. */
const eventsPerTurn = 500;

/** Forgets events that have been dealt with: those of all rooms that are through at the same time together. */
export class Unstaging {
  #waiting: StagedPlace[] = [];
  #next: Promise<void> | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(private readonly database: Database) {}

  /** Resolves when they are forgotten, from whatever server they came. */
  forget(roomId: string, eventIds: readonly string[]): Promise<void> {
    if (eventIds.length === 0) return Promise.resolve();
    for (const eventId of eventIds) this.#waiting.push({ roomId, eventId });
    return (this.#next ??= this.#begin());
  }

  async #begin(): Promise<void> {
    // A failure is for those who wait for it.
    await this.#running.catch(() => undefined);
    await nextTurn();
    const events = this.#waiting;
    this.#waiting = [];
    this.#next = undefined;
    await (this.#running = this.#delete(events));
  }

  async #delete(events: readonly StagedPlace[]): Promise<void> {
    for (const [index, part] of batchesOf(events, eventsPerTurn).entries()) {
      if (index > 0) await ownTurn();
      await this.database.write((tx) => deleteStaged(tx, part), { name: 'unstage_events' });
    }
  }
}
