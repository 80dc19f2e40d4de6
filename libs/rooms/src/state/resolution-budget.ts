import { Injectable, type OnModuleDestroy } from '@nestjs/common';
import { Cache, Clock, Config, Logger, Metrics } from '@rookery/platform';

/** CPU time that state resolution may take for one room in a minute, milliseconds; beyond, the room waits. */
export const budgetPerMinuteMs = 15_000;
const minuteMs = 60_000;
/** Rooms whose use is remembered: in the others little was resolved lately. */
const maxRooms = 2_000;

/** What one resolution took. */
export interface ResolutionCost {
  /** CPU time of this thread, milliseconds: what the turns of the resolution used, and what answers of the database did at most. */
  readonly cpuMs: number;
  /** How long the database was waited for, milliseconds. */
  readonly databaseMs: number;
  readonly groups: number;
}

interface Use {
  /** Of the budget, as it was at {@link atMs}; it is given back as time goes by. */
  usedMs: number;
  atMs: number;
}

/**
 * Keeps state resolution of one room from taking more than its share, whatever forks other servers make up: the room then waits,
 * and no other does. Tells operators what resolution costs.
 */
@Injectable()
export class ResolutionBudget implements OnModuleDestroy {
  readonly #stopping = new AbortController();
  readonly #rooms: Cache<string, Use>;
  readonly #groups;
  readonly #cpu;
  readonly #database;
  readonly #biggestCpu;
  readonly #biggestDatabase;
  readonly #waited;
  /** Since the last report. */
  #lately = new Map<string, { cpuMs: number; databaseMs: number }>();

  constructor(
    config: Config,
    metrics: Metrics,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    this.#rooms = new Cache(config, 'resolution_budgets', { invalidation: 'expires', max: maxRooms });
    this.#groups = metrics.histogram('synapse_state_number_state_groups_in_resolution');
    this.#cpu = metrics.histogram('synapse_state_res_cpu_for_all_rooms_seconds');
    this.#database = metrics.histogram('synapse_state_res_db_for_all_rooms_seconds');
    this.#biggestCpu = metrics.counter('synapse_state_res_cpu_for_biggest_room_seconds');
    this.#biggestDatabase = metrics.counter('synapse_state_res_db_for_biggest_room_seconds');
    this.#waited = metrics.counter({
      name: 'rookery_state_resolution_waits_seconds',
      help: 'Time that rooms had to wait because resolving their state took more than its share, seconds.',
    });
  }

  onModuleDestroy(): void {
    this.#stopping.abort();
  }

  /** Resolves when a room may have its state resolved: at once, unless it has used up its share. */
  async ready(roomId: string): Promise<void> {
    const use = this.#useOf(roomId);
    if (use.usedMs < budgetPerMinuteMs) return;
    const waitMs = ((use.usedMs - budgetPerMinuteMs) * minuteMs) / budgetPerMinuteMs + 1;
    this.#waited.inc({}, waitMs / 1_000);
    this.logger.warn('The state of a room takes more than its share to resolve: the room waits', {
      room_id: roomId,
      wait_ms: Math.round(waitMs),
    });
    await this.clock.sleep(waitMs, this.#stopping.signal);
  }

  /** Notes what a resolution took. */
  note(roomId: string, { cpuMs, databaseMs, groups }: ResolutionCost): void {
    this.#groups.observe({}, groups);
    this.#cpu.observe({}, cpuMs / 1_000);
    this.#database.observe({}, databaseMs / 1_000);
    const use = this.#useOf(roomId);
    use.usedMs += cpuMs;
    this.#rooms.set(roomId, use);
    if (this.#lately.size === 0) this.clock.after(minuteMs, () => this.#report());
    const lately = this.#lately.get(roomId);
    if (lately) {
      lately.cpuMs += cpuMs;
      lately.databaseMs += databaseMs;
    } else if (this.#lately.size < maxRooms) this.#lately.set(roomId, { cpuMs, databaseMs });
  }

  #useOf(roomId: string): Use {
    const nowMs = this.clock.monotonicMs();
    const known = this.#rooms.get(roomId);
    if (!known) return { usedMs: 0, atMs: nowMs };
    const givenBackMs = ((nowMs - known.atMs) * budgetPerMinuteMs) / minuteMs;
    return { usedMs: Math.max(0, known.usedMs - givenBackMs), atMs: nowMs };
  }

  #report(): void {
    const used = [...this.#lately.values()];
    this.#lately = new Map();
    this.#biggestCpu.inc({}, Math.max(...used.map(({ cpuMs }) => cpuMs)) / 1_000);
    this.#biggestDatabase.inc({}, Math.max(...used.map(({ databaseMs }) => databaseMs)) / 1_000);
  }
}
