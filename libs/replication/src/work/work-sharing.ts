import { SharedWork, type SharedWorkParts, type Work } from './shared-work.js';

/** Lets the processes of a server share work, each doing that of the shards that it has. A server that is a single process does all of it. */
export class WorkSharing {
  readonly #parts: SharedWorkParts;
  readonly #works: { beginAnew(): void }[] = [];

  constructor(parts: SharedWorkParts) {
    this.#parts = parts;
  }

  /** Shares the work of a role; once for each role in every process, before the server starts. */
  share<Item>(work: Work<Item>): SharedWork<Item> {
    const shared = new SharedWork(this.#parts, work);
    this.#works.push(shared);
    return shared;
  }

  /** Another process writes now: it is to tell all of these what there is to do. */
  beginAnew(): void {
    for (const work of this.#works) work.beginAnew();
  }
}
