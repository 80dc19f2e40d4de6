import { Injectable } from '@nestjs/common';
import { failureLevel } from '@rookery/database';
import { Clock, Lifecycle, Logger } from '@rookery/platform';

/** Lanes that work at once, in all and for one server; and events in one lane. */
const parallelLanes = 16;
const parallelPerOrigin = 3;
const maxLength = 100;
/** Who has worked for so long mostly waits, and gives its place to others; so many at most do that. Milliseconds. */
const slowAfterMs = 20_000;
const slowLanes = 48;
/** After this time nobody waits for a piece of work any more, milliseconds. */
const limitMs = 300_000;

interface Lane {
  readonly origin: string;
  readonly work: (() => Promise<void>)[];
}

/**
 * Work that waits for one other server, in a lane per server and room: slow servers hold up nobody but themselves. Bounded in
 * number and time.
 */
@Injectable()
export class GapFillers {
  readonly #lanes = new Map<string, Lane>();
  readonly #running = new Map<string, Promise<void>>();
  #slow = 0;

  constructor(
    private readonly clock: Clock,
    private readonly lifecycle: Lifecycle,
    private readonly logger: Logger,
  ) {}

  /**
   * Does something after what was added before for the same server and room.
   * @param work should not reject
   * @returns whether there was a place for it
   */
  add(origin: string, roomId: string, work: () => Promise<void>): boolean {
    const key = `${origin}\n${roomId}`;
    let lane = this.#lanes.get(key);
    if (!lane) this.#lanes.set(key, (lane = { origin, work: [] }));
    if (lane.work.length >= maxLength) return false;
    lane.work.push(work);
    this.#next();
    return true;
  }

  /** Begins nothing more; resolves when what is under way has ended. */
  async stop(): Promise<void> {
    await Promise.all(this.#running.values());
  }

  #next(): void {
    for (const [key, lane] of this.#lanes) {
      if (this.lifecycle.stopping.aborted || this.#running.size - this.#slow >= parallelLanes) return;
      if (this.#running.has(key) || this.#runningFor(lane.origin) >= parallelPerOrigin) continue;
      const run = this.#run(lane).finally(() => {
        this.#running.delete(key);
        this.#lanes.delete(key);
        // Behind the others.
        if (lane.work.length > 0) this.#lanes.set(key, lane);
        this.#next();
      });
      this.#running.set(key, run);
    }
  }

  #runningFor(origin: string): number {
    let count = 0;
    for (const key of this.#running.keys()) if (this.#lanes.get(key)?.origin === origin) count++;
    return count;
  }

  async #run({ origin, work }: Lane): Promise<void> {
    const next = work.shift();
    if (!next) return;
    const given = new AbortController();
    let isSlow = false;
    const timer = this.clock.after(slowAfterMs, () => {
      if (this.#slow >= slowLanes) return;
      isSlow = true;
      this.#slow++;
      this.#next();
    });
    await Promise.race([
      next().catch((err: unknown) => this.logger[failureLevel(err)]('A gap could not be filled', { origin, err })),
      this.clock.sleep(limitMs, AbortSignal.any([given.signal, this.lifecycle.stopping])),
    ]);
    given.abort();
    timer.cancel();
    if (isSlow) this.#slow--;
  }
}
