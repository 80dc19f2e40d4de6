import type { Tx } from '../database.js';

/** How far an update has come: JSON, its own business. */
export type UpdateProgress = Readonly<Record<string, string | number | boolean | null>>;

/** One step of a background update. */
export interface UpdateBatch {
  readonly tx: Tx;
  /** What the last batch returned; at first what the update was queued with. */
  readonly progress: UpdateProgress;
  /** About how many items to work on, so that the batch takes the time it should. */
  readonly batchSize: number;
}

export interface UpdateResult {
  /** Items worked on, for the speed. */
  readonly items: number;
  /** Stored in the transaction of the batch, so that a restart goes on exactly here. */
  readonly progress: UpdateProgress;
  readonly finished: boolean;
}

/** Moves many rows in small steps while the server runs. */
export interface BackgroundUpdate {
  /** snake_case, unique; kept in `background_updates` until it has finished. */
  readonly name: string;
  /** Does everything in a single batch: its time is not measured out. */
  readonly oneShot?: boolean | undefined;
  /** Works where the rows of state groups lie, which may be a database of their own; the main one unless told. */
  readonly store?: 'state' | undefined;
  /** Works on one batch. May be called again with the same progress after a failure, whose changes are rolled back. */
  run(batch: UpdateBatch): Promise<UpdateResult>;
}

/** Declares a background update; the lib that owns the tables exports it, and the app registers it. */
export function defineBackgroundUpdate(update: BackgroundUpdate): BackgroundUpdate {
  return Object.freeze({ ...update });
}

export interface QueueOptions {
  readonly progress?: UpdateProgress | undefined;
  /** Waits until this other update has finished. */
  readonly dependsOn?: string | undefined;
  /** Lower goes first; 0 unless told. */
  readonly ordering?: number | undefined;
}

/** Queues an update, from a migration for example. False when it is queued already. */
export async function queueBackgroundUpdate(tx: Tx, name: string, options: QueueOptions = {}): Promise<boolean> {
  const added = await tx.run(
    `INSERT INTO background_updates (update_name, progress_json, depends_on, ordering) VALUES (?, ?, ?, ?)
       ON CONFLICT (update_name) DO NOTHING`,
    [name, JSON.stringify(options.progress ?? {}), options.dependsOn ?? null, options.ordering ?? 0],
  );
  return added > 0;
}
