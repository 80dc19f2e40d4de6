import type { Notifier } from './notifier.js';

/** What is remembered of what the database says, and ceases to be true when another process writes. */
export interface Forgetful {
  /** Forgets what is remembered of these keys, in the order and spelling of whoever sends them. Must be quick, and not throw. */
  forget(keys: readonly string[]): void;
  /** Forgets everything: news may have been missed. */
  forgetAll(): void;
}

const stream = 'caches';

/**
 * Makes other processes forget what is true no more. Travels with the announcements of the streams, in their order: a request
 * that hears what was said ({@link Bus.heard}) finds nothing that was changed before it came. Costs nothing where there is no
 * other process.
 */
export class Invalidations {
  readonly #notifier: Notifier;
  readonly #caches = new Map<string, Forgetful>();
  /** Number of the last message of each other process. */
  readonly #heard = new Map<string, number>();

  constructor(notifier: Notifier) {
    this.#notifier = notifier;
    notifier.onHeard(({ stream: name, writer, number = 0, changed }) => {
      if (name !== stream) return;
      const isNext = this.#heard.get(writer) === number - 1;
      this.#heard.set(writer, number);
      if (isNext) for (const cache in changed) this.#caches.get(cache)?.forget([...(changed[cache] ?? [])]);
      else this.forgetAll();
    });
  }

  /** Listens for a cache, by its name. @throws Error when somebody does already */
  on(cache: string, forgetful: Forgetful): void {
    if (this.#caches.has(cache)) throw new Error(`There are two caches ${cache}`);
    this.#caches.set(cache, forgetful);
  }

  /** Call it after the commit, once this process has forgotten. What is answered afterwards is true in every process. */
  send(cache: string, keys: readonly string[]): void {
    if (this.#notifier.isShared) this.#notifier.announce(stream, 0, { changed: { [cache]: keys } });
  }

  /** News may have been missed: forgets everything here. */
  forgetAll(): void {
    for (const cache of this.#caches.values()) cache.forgetAll();
  }
}
