import type { Clock, Config, Logger } from '@rookery/platform';
import type { Database } from '../database.js';
import {
  type BackgroundUpdate,
  queueBackgroundUpdate,
  type QueueOptions,
  type UpdateProgress,
} from './background-update.js';

/** The settings `background_updates.*`. */
export interface BackgroundUpdateSettings {
  /** How long a batch should take. */
  readonly durationMs: number;
  readonly sleepEnabled: boolean;
  readonly sleepMs: number;
  readonly minBatchSize: number;
  /** Size of the first batch of an update, before its speed is known. */
  readonly defaultBatchSize: number;
}

export const defaultBackgroundUpdateSettings: BackgroundUpdateSettings = {
  durationMs: 100,
  sleepEnabled: true,
  sleepMs: 1000,
  minBatchSize: 1,
  defaultBatchSize: 100,
};

/** The settings `background_updates.*`. */
export const backgroundUpdateSettingsOf = (config: Config): BackgroundUpdateSettings => ({
  durationMs: config.get('background_updates.background_update_duration_ms'),
  sleepEnabled: config.get('background_updates.sleep_enabled'),
  sleepMs: config.get('background_updates.sleep_duration_ms'),
  minBatchSize: config.get('background_updates.min_batch_size'),
  defaultBatchSize: config.get('background_updates.default_batch_size'),
});

/** Takes the timing of background updates over: a module's callbacks. With one, the settings about time and sleep are idle. */
export interface BackgroundUpdateController {
  /**
   * Calls `run` when the batch may begin, with the time it should take; what it does afterwards is the pause. Returns soon once the signal
   * aborts, without a call where there was none yet: the updates are to stop.
   */
  aroundBatch(update: TimedUpdate, run: (durationMs: number) => Promise<void>, signal: AbortSignal): Promise<void>;
  defaultBatchSize?(update: TimedUpdate): Promise<number>;
  minBatchSize?(update: TimedUpdate): Promise<number>;
}

/** An update as whoever times it sees it. */
export interface TimedUpdate {
  readonly name: string;
  readonly oneShot: boolean;
  /** It runs on the database that holds the state alone. */
  readonly isInStateDatabase: boolean;
}

/** The update in hand and its speed since the start. */
export interface RunningUpdate {
  readonly name: string;
  readonly totalItems: number;
  readonly totalDurationMs: number;
  readonly itemsPerMs: number | undefined;
}

export interface BackgroundUpdatesParts {
  readonly database: Database;
  /** Where updates of state work, and are queued, when that has a database of its own. */
  readonly state?: Database | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly updates: readonly BackgroundUpdate[];
  readonly settings?: BackgroundUpdateSettings | undefined;
}

interface UpdateRow {
  readonly update_name: string;
  readonly progress_json: string;
}

const maxBatchSize = 100_000;
const maxGrowth = 4;
// Older batches count for less: the speed is that of the last few seconds.
const memory = 0.8;
const firstRetryMs = 5000;
const longestRetryMs = 3_600_000;
const reportEveryMs = 60_000;

/** What is known of one update since the start. */
class Pace {
  totalItems = 0;
  totalDurationMs = 0;
  failures = 0;
  notBeforeMs = 0;
  reportedAtMs: number | undefined;
  #recentItems = 0;
  #recentMs = 0;
  #lastSize: number | undefined;

  add(items: number, durationMs: number): void {
    this.totalItems += items;
    this.totalDurationMs += durationMs;
    this.#recentItems = this.#recentItems * memory + items;
    this.#recentMs = this.#recentMs * memory + durationMs;
    this.failures = 0;
  }
  get itemsPerMs(): number | undefined {
    return this.totalDurationMs > 0 ? this.totalItems / this.totalDurationMs : undefined;
  }
  batchSize(durationMs: number, first: number, least: number): number {
    let size = first;
    if (this.#lastSize !== undefined && this.#recentItems > 0) {
      const wanted = Math.floor((this.#recentItems / Math.max(this.#recentMs, 1)) * durationMs);
      size = Math.min(wanted, this.#lastSize * maxGrowth);
    }
    // After a failure that may have been a time limit: less at once.
    size = Math.floor(size / 2 ** this.failures);
    this.#lastSize = Math.min(Math.max(size, least, 1), maxBatchSize);
    return this.#lastSize;
  }
}

/** Runs the queued background updates one after the other, in small batches with pauses, until none is left. */
export class BackgroundUpdates {
  readonly #parts: BackgroundUpdatesParts;
  readonly #settings: BackgroundUpdateSettings;
  readonly #updates: Map<string, BackgroundUpdate>;
  readonly #paces = new Map<string, Pace>();
  readonly #stopping = new AbortController();
  readonly #reported = new Set<string>();
  #controller: BackgroundUpdateController | undefined;
  #enabled = true;
  #current: string | undefined;
  #loop: Promise<void> | undefined;
  #pause: AbortController | undefined;
  /** Since the last look for what is queued began: that may have been too early. */
  #isWoken = false;

  constructor(parts: BackgroundUpdatesParts) {
    this.#parts = parts;
    this.#settings = parts.settings ?? defaultBackgroundUpdateSettings;
    this.#updates = new Map(parts.updates.map((update) => [update.name, update]));
    if (this.#updates.size !== parts.updates.length) throw new Error('Two background updates have the same name');
  }

  /** Lets a module time the batches; only one can. @throws when there is one already */
  setController(controller: BackgroundUpdateController): void {
    if (this.#controller) throw new Error('There is a controller of background updates already');
    this.#controller = controller;
  }

  /** Makes an update known that needs a service. Call it before {@link start}. @throws when there is one with its name */
  register(update: BackgroundUpdate): void {
    if (this.#updates.has(update.name)) throw new Error('Two background updates have the same name');
    this.#updates.set(update.name, update);
  }

  /** Begins to work on what is queued; returns at once. Also after something was queued by hand. */
  start(): void {
    if (this.#stopping.signal.aborted || !this.#enabled) return;
    this.#isWoken = true;
    if (this.#loop) this.#pause?.abort();
    else this.#loop = this.#run();
  }

  /** Lets the batch in hand finish and ends. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#pause?.abort();
    await this.#loop;
  }

  get enabled(): boolean {
    return this.#enabled;
  }
  /** Pauses or goes on; not kept over a restart. */
  setEnabled(enabled: boolean): void {
    this.#enabled = enabled;
    if (enabled) this.start();
  }

  /** The update in hand, if one is. */
  current(): RunningUpdate | undefined {
    if (this.#current === undefined) return undefined;
    const pace = this.#paces.get(this.#current);
    return {
      name: this.#current,
      totalItems: pace?.totalItems ?? 0,
      totalDurationMs: pace?.totalDurationMs ?? 0,
      itemsPerMs: pace?.itemsPerMs,
    };
  }

  /** Whether this update, or any, is still queued: what it prepares must not be relied upon before it has finished. */
  async isQueued(name?: string): Promise<boolean> {
    for (const database of this.#databases) {
      const found =
        name === undefined
          ? await database.get('SELECT 1 AS found FROM background_updates LIMIT 1')
          : await database.get('SELECT 1 AS found FROM background_updates WHERE update_name = ?', [name]);
      if (found !== undefined) return true;
    }
    return false;
  }

  /** Queues an update and begins. False when it is queued already. @throws when no update has that name */
  async queue(name: string, options: QueueOptions = {}): Promise<boolean> {
    const update = this.#updates.get(name);
    if (update === undefined) throw new Error(`There is no background update ${name}`);
    const added = await this.#databaseOf(update).write((tx) => queueBackgroundUpdate(tx, name, options), {
      name: 'queue_background_update',
    });
    if (added && this.#enabled) this.start();
    return added;
  }

  get #databases(): readonly Database[] {
    const { database, state } = this.#parts;
    return state === undefined ? [database] : [database, state];
  }

  #databaseOf({ store }: BackgroundUpdate): Database {
    const { database, state } = this.#parts;
    return store === 'state' && state !== undefined ? state : database;
  }

  async #run(): Promise<void> {
    let failures = 0;
    while (this.#enabled && !this.#stopping.signal.aborted) {
      try {
        this.#isWoken = false;
        const next = await this.#next();
        if (this.#isWoken) continue;
        if (next === 'none') break;
        if (typeof next === 'number') await this.#sleep(next);
        else await this.#runOne(next.update, next.row);
        failures = 0;
      } catch (error) {
        // The database could not be asked what is next.
        this.#parts.logger.warn('Background updates cannot go on for now', { err: error });
        await this.#sleep(Math.min(firstRetryMs * 2 ** failures++, longestRetryMs));
      }
    }
    this.#current = undefined;
    // In one turn with the last look: who wakes it from now on begins anew.
    this.#loop = undefined;
  }

  /** The first update whose time has come; otherwise how long to wait for one that failed; `none` when nothing is left to do. */
  async #next(): Promise<{ update: BackgroundUpdate; row: UpdateRow } | number | 'none'> {
    const rows: (UpdateRow & { readonly database: Database })[] = [];
    for (const database of this.#databases) {
      const queued = await database.query<UpdateRow>(
        `SELECT update_name, progress_json FROM background_updates AS waiting
          WHERE depends_on IS NULL OR NOT EXISTS (SELECT 1 FROM background_updates AS other WHERE other.update_name = waiting.depends_on)
          ORDER BY ordering, update_name`,
      );
      for (const row of queued) rows.push({ ...row, database });
    }
    const nowMs = this.#parts.clock.monotonicMs();
    let waitMs: number | undefined;
    for (const row of rows) {
      const update = this.#updates.get(row.update_name);
      if (update === undefined) {
        if (!this.#reported.has(row.update_name)) {
          this.#reported.add(row.update_name);
          this.#parts.logger.warn('A background update is queued that this version does not know', {
            update: row.update_name,
          });
        }
        continue;
      }
      // Queued before the state was moved to a database of its own, or back: the start looks at the other one by itself.
      if (row.database !== this.#databaseOf(update)) continue;
      const dueInMs = (this.#paces.get(update.name)?.notBeforeMs ?? 0) - nowMs;
      if (dueInMs <= 0) return { update, row };
      waitMs = Math.min(waitMs ?? Infinity, dueInMs);
    }
    return waitMs ?? 'none';
  }

  async #runOne(update: BackgroundUpdate, row: UpdateRow): Promise<void> {
    const { clock, logger } = this.#parts;
    let pace = this.#paces.get(update.name);
    if (!pace) this.#paces.set(update.name, (pace = new Pace()));
    if (this.#current !== update.name) logger.info('Background update begins', { update: update.name });
    this.#current = update.name;
    const about = this.#about(update);
    const batch = (durationMs: number): Promise<void> => this.#runBatch(update, row, pace, durationMs);
    try {
      if (this.#controller) await this.#controller.aroundBatch(about, batch, this.#stopping.signal);
      else await batch(this.#settings.durationMs);
    } catch (error) {
      const retryInMs = Math.min(firstRetryMs * 2 ** pace.failures, longestRetryMs);
      pace.failures++;
      pace.notBeforeMs = clock.monotonicMs() + retryInMs;
      logger.error('A background update failed and will be tried again', {
        update: update.name,
        retryInMs,
        err: error,
      });
    }
    if (!this.#controller && this.#settings.sleepEnabled) await this.#sleep(this.#settings.sleepMs);
  }

  #about(update: BackgroundUpdate): TimedUpdate {
    const isInStateDatabase = this.#databaseOf(update) !== this.#parts.database;
    return { name: update.name, oneShot: update.oneShot ?? false, isInStateDatabase };
  }

  async #runBatch(update: BackgroundUpdate, row: UpdateRow, pace: Pace, durationMs: number): Promise<void> {
    const { clock, logger } = this.#parts;
    const database = this.#databaseOf(update);
    const first = (await this.#controller?.defaultBatchSize?.(this.#about(update))) ?? this.#settings.defaultBatchSize;
    const least = (await this.#controller?.minBatchSize?.(this.#about(update))) ?? this.#settings.minBatchSize;
    const batchSize = pace.batchSize(durationMs, first, least);
    const progress = JSON.parse(row.progress_json) as UpdateProgress;
    const { result, tookMs } = await database.write(
      async (tx) => {
        const beganAtMs = clock.monotonicMs();
        const done = await update.run({ tx, progress, batchSize });
        if (done.finished) await tx.run('DELETE FROM background_updates WHERE update_name = ?', [update.name]);
        else {
          const changed = [JSON.stringify(done.progress), update.name];
          await tx.run('UPDATE background_updates SET progress_json = ? WHERE update_name = ?', changed);
        }
        return { result: done, tookMs: clock.monotonicMs() - beganAtMs };
      },
      { name: 'background_update', ...(update.oneShot && { limitMs: Infinity }) },
    );
    pace.add(result.items, tookMs);
    if (!result.finished) return this.#report(update, pace, result.progress);
    logger.info('Background update finished', {
      update: update.name,
      items: pace.totalItems,
      ms: Math.round(pace.totalDurationMs),
    });
    this.#paces.delete(update.name);
  }

  /** Says now and then how far a long update has come. */
  #report(update: BackgroundUpdate, pace: Pace, progress: UpdateProgress): void {
    const nowMs = this.#parts.clock.monotonicMs();
    pace.reportedAtMs ??= nowMs;
    if (nowMs - pace.reportedAtMs < reportEveryMs) return;
    pace.reportedAtMs = nowMs;
    this.#parts.logger.info('Background update goes on', {
      update: update.name,
      items: pace.totalItems,
      itemsPerSecond: Math.round((pace.itemsPerMs ?? 0) * 1000),
      progress,
    });
  }

  async #sleep(delayMs: number): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#pause = new AbortController();
    await this.#parts.clock.sleep(delayMs, this.#pause.signal);
    this.#pause = undefined;
  }
}
