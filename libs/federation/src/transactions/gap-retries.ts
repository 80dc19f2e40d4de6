import { Injectable } from '@nestjs/common';
import { Destinations } from '@rookery/federation-client';
import { Clock, type Timer } from '@rookery/platform';

/** The first pause, by what it grows, and the longest; milliseconds. With that many tries the last is after about half a day. */
const firstPauseMs = 10_000;
const growth = 4;
const longestPauseMs = 6 * 3_600_000;
const maxTries = 8;

interface Waiting {
  readonly server: string;
  tries: number;
  again: () => void;
  timer: Timer | undefined;
}

/**
 * What another server did not help with is tried again: after pauses that grow, not for ever, and as soon as a server that could
 * not be reached is there again. In memory: whatever waits must be found again after a start.
 */
@Injectable()
export class GapRetries {
  readonly #waiting = new Map<string, Waiting>();
  readonly #byServer = new Map<string, Set<string>>();

  constructor(
    private readonly clock: Clock,
    destinations: Destinations,
  ) {
    destinations.onRecovery((server) => {
      for (const id of [...(this.#byServer.get(server) ?? [])]) this.now(id);
    });
  }

  /**
   * Calls `again` later, once.
   * @returns whether it does; `false` when that was tried often enough, and it is forgotten
   */
  later(id: string, server: string, again: () => void): boolean {
    const known = this.#waiting.get(id);
    known?.timer?.cancel();
    const tries = known?.server === server ? known.tries : 0;
    this.forget(id);
    if (tries >= maxTries) return false;
    const pauseMs = Math.min(firstPauseMs * growth ** tries, longestPauseMs);
    const timer = this.clock.after(pauseMs, () => {
      waiting.tries++;
      this.now(id);
    });
    const waiting: Waiting = { server, tries, again, timer };
    this.#waiting.set(id, waiting);
    const ofServer = this.#byServer.get(server);
    if (ofServer) ofServer.add(id);
    else this.#byServer.set(server, new Set([id]));
    return true;
  }

  /** Cuts a pause short, where there is one. */
  now(id: string): void {
    const waiting = this.#waiting.get(id);
    if (!waiting?.timer) return;
    waiting.timer.cancel();
    waiting.timer = undefined;
    waiting.again();
  }

  /** It was dealt with. */
  forget(id: string): void {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    waiting.timer?.cancel();
    this.#waiting.delete(id);
    const ofServer = this.#byServer.get(waiting.server);
    ofServer?.delete(id);
    if (ofServer?.size === 0) this.#byServer.delete(waiting.server);
  }
}
