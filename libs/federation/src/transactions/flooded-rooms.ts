import type { Clock } from '@rookery/platform';

/** In which time half of what came is forgotten, milliseconds. */
const halfLifeMs = 2_000;
/** A room is flooded with so many events lately, if that is so many times what comes into others; and not any more with half of it. */
const [fewest, factor] = [50, 4];
/** How often it is looked at what comes into the others, milliseconds. */
const lookMs = 500;
/** What is as good as nothing, and as many rooms as are passed over when it is asked what is usual. */
const [forgotten, fewRooms] = [0.1, 4];

interface Inflow {
  /** Events that have come, the longer ago the less they count. */
  lately: number;
  atMs: number;
  isFlooded: boolean;
}

/** Into which rooms many more events come than into others: it says so at once, and for as long as they keep coming. */
export class FloodedRooms {
  readonly #rooms = new Map<string, Inflow>();
  #limit = fewest;
  #lookedMs = 0;

  constructor(private readonly clock: Pick<Clock, 'monotonicMs'>) {}

  /** Counts events that have come. */
  add(roomId: string, events: number): void {
    const nowMs = this.clock.monotonicMs();
    if (nowMs - this.#lookedMs > lookMs) this.#look(nowMs);
    const inflow = this.#rooms.get(roomId) ?? { lately: 0, atMs: nowMs, isFlooded: false };
    inflow.lately = latelyAt(inflow, nowMs) + events;
    inflow.atMs = nowMs;
    inflow.isFlooded = inflow.lately >= (inflow.isFlooded ? this.#limit / 2 : this.#limit);
    this.#rooms.set(roomId, inflow);
  }

  /** Whether a room is flooded. */
  has(roomId: string): boolean {
    const inflow = this.#rooms.get(roomId);
    return inflow?.isFlooded === true && latelyAt(inflow, this.clock.monotonicMs()) >= this.#limit / 2;
  }

  /**
   * What comes into the others is what a quarter of all rooms has less of: whoever floods many rooms is not to be the measure. Of a few
   * rooms nothing can be said.
   */
  #look(nowMs: number): void {
    this.#lookedMs = nowMs;
    const all: number[] = [];
    for (const [roomId, inflow] of this.#rooms) {
      const lately = latelyAt(inflow, nowMs);
      if (lately < forgotten) this.#rooms.delete(roomId);
      else all.push(lately);
    }
    const usual = all.sort((a, b) => a - b)[(all.length >> 2) - fewRooms] ?? 0;
    this.#limit = Math.max(fewest, factor * usual);
  }
}

const latelyAt = ({ lately, atMs }: Inflow, nowMs: number): number => lately * 0.5 ** ((nowMs - atMs) / halfLifeMs);
