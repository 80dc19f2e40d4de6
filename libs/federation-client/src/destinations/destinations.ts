import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Cache, Clock, Config, Ids, Logger } from '@rookery/platform';
import { Invalidations } from '@rookery/replication';
import {
  backoffOf,
  type BackoffRow,
  backoffsOf,
  clearFailure,
  deleteDestinations,
  type DestinationRow,
  type DestinationSearch,
  selectDestination,
  selectDestinations,
  storeFailure,
} from './destination.query.js';

/** Whether a server may be tried. */
export interface DestinationState {
  /** Since when it cannot be reached, milliseconds since the epoch; `undefined` while it can. */
  readonly failingSinceTs: number | undefined;
  /** Before this time nobody tries; 0 when it may be tried now. */
  readonly retryAtTs: number;
  /** Length of the present pause, milliseconds; 0 without one. */
  readonly pauseMs: number;
}

/** Told of a server that shows life, or does so again after a pause, which another process may have found. Must not throw. */
export type RecoveryListener = (destination: string) => void;

/** How a server stood, and when that was found out. */
interface Known {
  readonly row: BackoffRow;
  readonly readMs: number;
}

const healthy: BackoffRow = { failure_ts: null, retry_last_ts: 0, retry_interval: 0 };
/** After this time the stored state is read again: another process may have changed it. */
const trustedMs = 60_000;
/** How long a server in its pause is not tried again for somebody who waits, milliseconds. */
const probedAgainMs = 10_000;
/** The factor by which a pause differs from its plan, so that not everything is tried at the same moment. */
const jitterFrom = 0.8;
const jitterTo = 1.4;

/**
 * Which servers can be reached. One that shows no life is left alone for a while, longer each time, as the settings say;
 * kept over restarts. Any sign of life ends that.
 */
@Injectable()
export class Destinations {
  readonly #known: Cache<string, Known>;
  /** When servers were tried during their pauses. */
  readonly #probed: Cache<string, { readonly atMs: number }>;
  readonly #listeners = new Set<RecoveryListener>();
  readonly #lifeListeners = new Set<RecoveryListener>();

  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly logger: Logger,
    private readonly invalidations: Invalidations,
  ) {
    this.#known = new Cache(config, 'destinations', { invalidation: 'on write', elsewhere: 'told', max: 20_000 });
    this.#probed = new Cache(config, 'destinations_probed', { invalidation: 'expires', max: 20_000 });
    invalidations.on('destinations', {
      forget: (servers) => this.#known.forget(servers),
      forgetAll: () => this.#known.clear(),
    });
    invalidations.on('destinations_back', {
      forget: (servers) => {
        for (const server of servers) this.#tellRecovery(server);
      },
      forgetAll: () => undefined,
    });
  }

  /** How a server stands. */
  async state(destination: string): Promise<DestinationState> {
    const row = await this.#row(destination);
    const untilTs = row.retry_last_ts + row.retry_interval;
    return {
      failingSinceTs: row.failure_ts ?? undefined,
      retryAtTs: untilTs > this.clock.nowMs() ? untilTs : 0,
      pauseMs: row.retry_interval,
    };
  }

  /** Whether a server may be tried during its pause, because somebody waits; from now on it was. */
  mayProbe(destination: string): boolean {
    const nowMs = this.clock.monotonicMs();
    const before = this.#probed.get(destination);
    if (before !== undefined && nowMs - before.atMs < probedAgainMs) return false;
    this.#probed.set(destination, { atMs: nowMs });
    return true;
  }

  /** A page of the servers that this one has to do with, with the number of all that fit. For administrators. */
  list(search: DestinationSearch): Promise<{ readonly destinations: DestinationRow[]; readonly total: number }> {
    return selectDestinations(this.database, search);
  }

  /** What is written down about a server; `undefined` when nothing is. */
  find(destination: string): Promise<DestinationRow | undefined> {
    return selectDestination(this.database, destination);
  }

  /** Reads how servers stand in one query, for those of which that is not known. */
  async prepare(destinations: readonly string[]): Promise<void> {
    const unknown = destinations.filter((destination) => this.#trusted(destination) === undefined);
    if (unknown.length < 2) return;
    const reading = this.#known.begin();
    try {
      const rows = await backoffsOf(this.database, unknown);
      for (const destination of unknown) reading.keep(destination, this.#read(rows.get(destination)));
    } finally {
      reading.end();
    }
  }

  /** Calls `listener` for every server that comes back. The result stops that. */
  onRecovery(listener: RecoveryListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Calls `listener` for every sign of life of every server: often. The result stops that. */
  onLife(listener: RecoveryListener): () => void {
    this.#lifeListeners.add(listener);
    return () => this.#lifeListeners.delete(listener);
  }

  /** The server showed life: it answered, or sent something that carries its signature. */
  async alive(destination: string): Promise<void> {
    for (const listener of this.#lifeListeners) listener(destination);
    const known = this.#known.get(destination);
    if (known === undefined || !isHealthy(known.row)) {
      if (!isHealthy(await this.#row(destination))) await this.reset(destination);
    }
  }

  /** Ends the pause of a server: it is tried again at once. */
  async reset(destination: string): Promise<void> {
    this.#remember(destination, healthy);
    await this.database.write((tx) => clearFailure(tx, destination), { name: 'destination_alive', anyProcess: true });
    this.invalidations.send('destinations', [destination]);
    this.invalidations.send('destinations_back', [destination]);
    this.logger.info('Another server is back', { destination });
    this.#tellRecovery(destination);
  }

  /** The server showed no life. Requests that failed during a pause do not make it longer. */
  async failed(destination: string): Promise<void> {
    const stored = await this.#row(destination);
    // Another failure may have been quicker.
    const before = this.#known.get(destination)?.row ?? stored;
    const nowTs = this.clock.nowMs();
    if (before.retry_last_ts + before.retry_interval > nowTs) return;
    const row: BackoffRow = {
      failure_ts: before.failure_ts ?? nowTs,
      retry_last_ts: nowTs,
      retry_interval: this.#nextPause(before.retry_interval),
    };
    this.#remember(destination, row);
    await this.database.write((tx) => storeFailure(tx, destination, row), {
      ...{ name: 'destination_failed', anyProcess: true },
    });
    this.invalidations.send('destinations', [destination]);
    this.logger.info('Another server cannot be reached', {
      ...{ destination, since: row.failure_ts },
      pause_seconds: Math.round(row.retry_interval / 1000),
    });
  }

  /**
   * Forgets what is written down about servers that have never got anything, of which the caller knows that nothing waits for them.
   * @param beforeTs those that were tried since then are kept, milliseconds since the epoch
   */
  async forget(destinations: readonly string[], beforeTs: number): Promise<void> {
    const options = { name: 'destinations_forgotten', anyProcess: true };
    await this.database.write((tx) => deleteDestinations(tx, destinations, beforeTs), options);
    this.#known.forget(destinations);
    this.invalidations.send('destinations', destinations);
  }

  #tellRecovery(destination: string): void {
    for (const listener of this.#listeners) listener(destination);
  }

  #nextPause(beforeMs: number): number {
    const longest = this.config.get('federation.destination_max_retry_interval');
    if (beforeMs === 0) return Math.min(this.config.get('federation.destination_min_retry_interval'), longest);
    const jitter = jitterFrom + ((jitterTo - jitterFrom) * this.ids.integer(1001)) / 1000;
    const next = beforeMs * this.config.get('federation.destination_retry_multiplier') * jitter;
    return Math.round(Math.min(next, longest));
  }

  async #row(destination: string): Promise<BackoffRow> {
    for (;;) {
      const known = this.#trusted(destination);
      if (known !== undefined) return known;
      const reading = this.#known.begin();
      try {
        const read = this.#read(await backoffOf(this.database, destination));
        reading.keep(destination, read);
        // Else it is newer by now, or another process has said that it is.
        if (reading.isCurrent(destination)) return read.row;
      } finally {
        reading.end();
      }
    }
  }

  /** How a server stands, where that is known well enough. */
  #trusted(destination: string): BackoffRow | undefined {
    const known = this.#known.get(destination);
    return known !== undefined && this.clock.monotonicMs() - known.readMs < trustedMs ? known.row : undefined;
  }

  #read(row: BackoffRow = healthy): Known {
    return { row, readMs: this.clock.monotonicMs() };
  }

  #remember(destination: string, row: BackoffRow): void {
    this.#known.set(destination, this.#read(row));
  }
}

const isHealthy = (row: BackoffRow): boolean => row.failure_ts === null && row.retry_interval === 0;
