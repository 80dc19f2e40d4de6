import { SharedWork, type SharedWorkParts, type Work } from './shared-work.js';

/** Lets the processes of a server share work, each doing that of the shards that it has. A server that is a single process does all of it. */
export class WorkSharing {
  readonly #parts: SharedWorkParts;

  constructor(parts: SharedWorkParts) {
    this.#parts = parts;
  }

  /** Shares the work of a role; once for each role in every process, before the server starts. */
  share<Item>(work: Work<Item>): SharedWork<Item> {
    return new SharedWork(this.#parts, work);
  }
}
