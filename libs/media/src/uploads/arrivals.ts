import { Injectable } from '@nestjs/common';
import { Clock, Config } from '@rookery/platform';
import type { Media } from '../records/media.js';

/** Another process may have taken the upload: its rows are looked at so often. */
const lookAgainMs = 1_000;
/** Requests that wait at once; further ones look once and go. */
const maxWaiting = 1_000;

/** Knows until when the file of a reserved id may come, and wakes those who wait for it. */
@Injectable()
export class Arrivals {
  readonly #waiting = new Map<string, Set<() => void>>();
  #count = 0;

  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
  ) {}

  /** Until when the file of an id that is reserved now may come, milliseconds since the epoch. */
  endTs({ createdTs }: Pick<Media, 'createdTs'>): number {
    return createdTs + this.config.get('unused_expiration_time');
  }

  /** Whether no file comes any more for an id that was reserved and has none. */
  isOver(reserved: Pick<Media, 'createdTs'>): boolean {
    return this.endTs(reserved) <= this.clock.nowMs();
  }

  /** The file of this id is there. */
  arrived(mediaId: string): void {
    for (const wake of this.#waiting.get(mediaId) ?? []) wake();
  }

  /**
   * Waits until `look` finds something, the time is over or nobody wants to know any more.
   * @returns what `look` found last
   */
  async wait<T>(
    mediaId: string,
    limitMs: number,
    signal: AbortSignal,
    look: () => Promise<T | undefined>,
  ): Promise<T | undefined> {
    if (this.#count >= maxWaiting) return look();
    this.#count++;
    try {
      return await this.#wait(mediaId, this.clock.monotonicMs() + limitMs, signal, look);
    } finally {
      this.#count--;
    }
  }

  async #wait<T>(
    mediaId: string,
    deadlineMs: number,
    signal: AbortSignal,
    look: () => Promise<T | undefined>,
  ): Promise<T | undefined> {
    for (;;) {
      const woken = new AbortController();
      const wake = (): void => woken.abort();
      this.#add(mediaId, wake);
      signal.addEventListener('abort', wake, { once: true });
      try {
        // Looked for after it was put on the list: nothing can arrive unseen in between.
        const found = await look();
        const leftMs = deadlineMs - this.clock.monotonicMs();
        if (found !== undefined || leftMs <= 0 || signal.aborted) return found;
        await this.clock.sleep(Math.min(leftMs, lookAgainMs), woken.signal);
      } finally {
        this.#remove(mediaId, wake);
        signal.removeEventListener('abort', wake);
      }
    }
  }

  #add(mediaId: string, wake: () => void): void {
    const waiting = this.#waiting.get(mediaId);
    if (waiting === undefined) this.#waiting.set(mediaId, new Set([wake]));
    else waiting.add(wake);
  }

  #remove(mediaId: string, wake: () => void): void {
    const waiting = this.#waiting.get(mediaId);
    waiting?.delete(wake);
    if (waiting?.size === 0) this.#waiting.delete(mediaId);
  }
}
