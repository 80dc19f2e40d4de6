import { Injectable } from '@nestjs/common';
import { Clock, Metrics, SingleFlight } from '@rookery/platform';
import { BackwardGaps } from '@rookery/rooms';
import { BackfillRequests, maxEvents } from './backfill-requests.js';
import { PastEvents } from './past-events.js';
import { RoomHosts } from './room-hosts.js';

/** Gaps of a room that are looked at, and those that one request asks about. */
const maxGaps = 100;
const gapsAtOnce = 5;
const maxServers = 4;
/** After this much time no further server is asked: somebody waits; milliseconds. */
const patienceMs = 20_000;
/** What nobody gave is asked for again after a minute, then two, four, at last a day; milliseconds. */
const firstPauseMs = 60_000;
const longestPauseMs = 24 * 3_600_000;

/** Fetches the history of rooms that other servers have and this one has not. */
@Injectable()
export class Backfiller {
  readonly #running = new SingleFlight<boolean>();
  readonly #beforeAsking;
  readonly #storing;

  constructor(
    private readonly requests: BackfillRequests,
    private readonly past: PastEvents,
    private readonly hosts: RoomHosts,
    private readonly gaps: BackwardGaps,
    private readonly clock: Clock,
    metrics: Metrics,
  ) {
    this.#beforeAsking = metrics.histogram('synapse_federation_backfill_processing_before_time_seconds').child({});
    this.#storing = metrics.histogram('synapse_federation_backfill_processing_after_time_seconds').child({});
  }

  /**
   * Fetches up to `limit` events before one of a room's gaps. Several callers share one attempt.
   * @param depth where somebody reads: gaps there come first
   * @returns whether anything came
   * @spec server-server-api#backfilling-and-retrieving-missing-events
   */
  backfill(roomId: string, limit: number, depth = Number.MAX_SAFE_INTEGER): Promise<boolean> {
    return this.#running.run(roomId, () => this.#backfill(roomId, Math.min(limit, maxEvents), depth));
  }

  async #backfill(roomId: string, limit: number, depth: number): Promise<boolean> {
    const begunMs = this.clock.monotonicMs();
    const untilMs = this.clock.nowMs() + patienceMs;
    const gaps = await this.gaps.of(roomId, maxGaps);
    const due = gaps.filter((gap) => this.#isDue(gap.num_attempts, gap.last_attempt_ts));
    // What lies at or before the reader's place comes first, the nearest of it at the head.
    const wanted = [...due.filter((gap) => gap.depth <= depth), ...due.filter((gap) => gap.depth > depth).reverse()]
      .slice(0, gapsAtOnce)
      .map((gap) => gap.event_id);
    if (wanted.length === 0) return false;
    let anyAnswered = false;
    const servers = await this.hosts.likely(roomId, maxServers);
    this.#beforeAsking.observe((this.clock.monotonicMs() - begunMs) / 1_000);
    for (const server of servers) {
      if (this.clock.nowMs() >= untilMs) break;
      const found = await this.requests.before(server, roomId, wanted, limit);
      if (found === undefined) continue;
      anyAnswered = true;
      if (found.length === 0) continue;
      const cameMs = this.clock.monotonicMs();
      const stored = await this.past.take(server, roomId, found);
      this.#storing.observe((this.clock.monotonicMs() - cameMs) / 1_000);
      if (stored.length === 0) continue;
      this.hosts.answered(roomId, server);
      // In a full answer there was no place for the rest.
      await this.#note(roomId, found.length < limit ? wanted : stored, new Set(stored));
      return true;
    }
    // Who is down today may be up tomorrow; what those who are up do not have is hardly found in an hour.
    if (anyAnswered) await this.#note(roomId, wanted, new Set());
    return false;
  }

  #isDue(attempts: number | null, lastTs: number | null): boolean {
    if (attempts === null || lastTs === null) return true;
    return this.clock.nowMs() >= lastTs + Math.min(firstPauseMs * 2 ** (attempts - 1), longestPauseMs);
  }

  async #note(roomId: string, wanted: readonly string[], stored: ReadonlySet<string>): Promise<void> {
    const here = wanted.filter((id) => stored.has(id));
    const failed = wanted.filter((id) => !stored.has(id));
    await this.gaps.note(roomId, here, failed, 'no server gave it');
  }
}
