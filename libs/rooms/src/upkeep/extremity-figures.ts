import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Metrics } from '@rookery/platform';
import { selectRoomsByExtremities } from './forward-extremities.query.js';

/** For so long what was counted is shown again, milliseconds. */
const countedMs = 3_600_000;
const bounds = [1, 2, 3, 5, 7, 10, 15, 20, 50, 100, 200, 500, Infinity];

/** Shows how many rooms have how many forward extremities: counted once somebody asks, and at most once an hour. */
@Injectable()
export class ExtremityFigures {
  #countedAtMs = -Infinity;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    metrics: Metrics,
  ) {
    metrics.gauge('synapse_forward_extremities_bucket', async (gauge) => {
      for (const [le, rooms] of await this.#counts()) gauge.set({ le }, rooms);
    });
  }

  /** By the bounds; nothing where they are shown already. */
  async #counts(): Promise<[le: string, rooms: number][]> {
    const nowMs = this.clock.monotonicMs();
    if (nowMs - this.#countedAtMs < countedMs) return [];
    const counted = await selectRoomsByExtremities(this.database);
    this.#countedAtMs = nowMs;
    return bounds.map((bound) => {
      const within = counted.filter(({ extremities }) => extremities <= bound);
      const rooms = within.reduce((sum, one) => sum + one.rooms, 0);
      return [bound === Infinity ? '+Inf' : String(bound), rooms];
    });
  }
}
