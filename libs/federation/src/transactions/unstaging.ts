import type { Database } from '@rookery/database';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { deleteStaged } from './staging.query.js';

/** Forgets events that have been dealt with: those of all rooms that are through at the same time in one transaction. */
export class Unstaging {
  #waiting: { readonly roomId: string; readonly eventIds: readonly string[] }[] = [];
  #next: Promise<void> | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(private readonly database: Database) {}

  /** Resolves when they are forgotten, from whatever server they came. */
  forget(roomId: string, eventIds: readonly string[]): Promise<void> {
    if (eventIds.length === 0) return Promise.resolve();
    this.#waiting.push({ roomId, eventIds });
    return (this.#next ??= this.#begin());
  }

  async #begin(): Promise<void> {
    // A failure is for those who wait for it.
    await this.#running.catch(() => undefined);
    await nextTurn();
    const rooms = this.#waiting;
    this.#waiting = [];
    this.#next = undefined;
    await (this.#running = deleteStaged(this.database, rooms));
  }
}
