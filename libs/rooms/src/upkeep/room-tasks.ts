import { Injectable } from '@nestjs/common';
import { Database, isTransient, type Tx } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Config, Ids, Logger } from '@rookery/platform';
import {
  deleteFinished,
  insertTask,
  selectTask,
  selectTasks,
  selectTasksOf,
  selectUnfinished,
  type TaskRow,
  type TaskSearch,
  type TaskStatus,
  updateTask,
} from './room-tasks.query.js';

/** Long work on a room, as an administrator sees it. */
export interface RoomTask {
  readonly id: string;
  readonly action: string;
  readonly status: TaskStatus;
  readonly roomId: string;
  /** Of the last change. */
  readonly timestamp: number;
  readonly params: JsonObject;
  readonly result: JsonObject | undefined;
  readonly error: string | undefined;
}

/** Does a task; may be called again for the same one after a restart, so that it must be able to go on. */
export type TaskWork = (task: RoomTask, report: (result: JsonObject) => Promise<void>) => Promise<JsonObject>;

/** Thrown by work that makes room for the server's end; it is taken up again after the next start. */
export class TaskInterrupted extends Error {}

/** So many run besides those when somebody waits for them. */
const maxAwaited = 5;
const firstRetryMs = 2_000;
const longestRetryMs = 60_000;
/** Those of a week are kept: more than this are hardly ever there. */
const maxListed = 100_000;
const keepFinishedMs = 7 * 24 * 3_600_000;

/** Runs long work on rooms in the background, a few tasks at a time, and goes on with it after a restart. */
@Injectable()
export class RoomTasks {
  readonly #works = new Map<string, TaskWork>();
  readonly #waiting: string[] = [];
  readonly #running = new Map<string, Promise<void>>();
  /** Those who wait for the end of a task. */
  readonly #watchers = new Map<string, Set<() => void>>();
  /** What is just being scheduled that may be there once only. */
  readonly #scheduling = new Set<string>();
  /** Tasks that somebody waits for. */
  readonly #awaited = new Set<string>();
  #stopping = new AbortController();

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly logger: Logger,
    private readonly config: Config,
  ) {}

  /** Says what is to be done for an action. */
  define(action: string, work: TaskWork): void {
    this.#works.set(action, work);
  }

  /** Forgets what was finished a week ago. */
  async forgetFinished(): Promise<void> {
    const before = this.clock.nowMs() - keepFinishedMs;
    await this.database.write((tx) => deleteFinished(tx, before), { name: 'delete_finished_tasks' });
  }

  /** Goes on with what was not finished. Call it when all actions are defined. */
  async resume(): Promise<void> {
    this.#stopping = new AbortController();
    await this.forgetFinished();
    for (const row of await selectUnfinished(this.database)) if (this.#works.has(row.action)) this.#enqueue(row.id);
  }

  /** Whether the server is about to end: work that can be taken up again throws {@link TaskInterrupted}. */
  get stopping(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Starts no more tasks, and resolves when those that run have come to an end. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all(this.#running.values());
    for (const tell of [...this.#watchers.values()].flatMap((all) => [...all])) tell();
    this.#watchers.clear();
  }

  /**
   * @param isAwaited somebody waits for its end: it does not wait for what others do in the background
   * @returns the task's id
   */
  async schedule(action: string, roomId: string, params: JsonObject, isAwaited = false): Promise<string> {
    const id = this.ids.letters(16);
    const row: TaskRow = {
      id,
      action,
      status: 'scheduled',
      timestamp: this.clock.nowMs(),
      resource_id: roomId,
      params: JSON.stringify(params),
      result: null,
      error: null,
    };
    await this.database.write((tx) => insertTask(tx, row), { name: 'schedule_task' });
    if (isAwaited) this.#awaited.add(id);
    this.#enqueue(id);
    return id;
  }

  /**
   * The same, unless such a task about the same is waiting or running.
   * @returns the task's id; `undefined` when there is one already
   */
  async scheduleOnce(
    action: string,
    roomId: string,
    params: JsonObject,
    isAwaited = false,
  ): Promise<string | undefined> {
    const key = `${action} ${roomId}`;
    // Of several requests at a time, all would find nothing yet.
    if (this.#scheduling.has(key)) return undefined;
    this.#scheduling.add(key);
    try {
      const isPending = ({ status, ...task }: RoomTask): boolean =>
        task.action === action && (status === 'active' || status === 'scheduled');
      if ((await this.ofRoom(roomId)).some(isPending)) return undefined;
      return await this.schedule(action, roomId, params, isAwaited);
    } finally {
      this.#scheduling.delete(key);
    }
  }

  /** Notes how far a task that runs has come, together with what it has done. */
  noteIn(tx: Tx, id: string, result: JsonObject): Promise<void> {
    return updateTask(tx, id, 'active', JSON.stringify(result), null, this.clock.nowMs());
  }

  async find(id: string): Promise<RoomTask | undefined> {
    const row = await selectTask(this.database, id);
    return row && taskOf(row);
  }

  /** Tasks about a room, the newest first. */
  async ofRoom(roomId: string): Promise<RoomTask[]> {
    return (await selectTasksOf(this.database, roomId)).map(taskOf);
  }

  /** The tasks that fit, the oldest first; of more than a hundred thousand the newest. */
  async list(search: TaskSearch): Promise<RoomTask[]> {
    return (await selectTasks(this.database, search, maxListed)).map(taskOf);
  }

  /**
   * A task that this process has scheduled, once it has come to its end, or as it is when the signal aborts or the server stops:
   * it goes on all the same. `undefined` when there is none with that id.
   */
  async outcome(id: string, signal?: AbortSignal): Promise<RoomTask | undefined> {
    if (!signal?.aborted && (this.#running.has(id) || this.#waiting.includes(id))) {
      let tell = (): void => {};
      const end = new Promise<void>((resolve) => (tell = resolve));
      const watchers = this.#watchers.get(id) ?? new Set();
      this.#watchers.set(id, watchers.add(tell));
      signal?.addEventListener('abort', tell);
      await end;
      signal?.removeEventListener('abort', tell);
      watchers.delete(tell);
    }
    return this.find(id);
  }

  /** Resolves when nothing is left to do. */
  async settled(): Promise<void> {
    while (this.#running.size > 0) await Promise.race(this.#running.values());
  }

  #enqueue(id: string): void {
    if (this.#running.has(id) || this.#waiting.includes(id)) return;
    if (this.#awaited.has(id)) this.#waiting.unshift(id);
    else this.#waiting.push(id);
    this.#next();
  }

  #next(): void {
    const [id] = this.#waiting;
    if (id === undefined || this.stopping) return;
    const maxRunning = this.config.get('task_scheduler.max_concurrent_tasks');
    if (this.#running.size >= maxRunning + (this.#awaited.has(id) ? maxAwaited : 0)) return;
    this.#waiting.shift();
    const run = this.#run(id).finally(() => {
      this.#running.delete(id);
      this.#awaited.delete(id);
      for (const tell of this.#watchers.get(id) ?? []) tell();
      this.#watchers.delete(id);
      this.#next();
    });
    this.#running.set(id, run);
  }

  /** Does a task; where the database is away, again until it is back. Never rejects. */
  async #run(id: string): Promise<void> {
    for (let attempt = 0; !this.stopping; attempt++) {
      try {
        return await this.#attempt(id);
      } catch (error) {
        if (error instanceof TaskInterrupted) return;
        if (!isTransient(error)) {
          this.logger.error('The outcome of a task on a room could not be noted', { task: id, err: error });
          return;
        }
        const delayMs = Math.min(firstRetryMs * 2 ** attempt, longestRetryMs);
        this.logger.warn('A task on a room waits for the database', { task: id, retryInMs: delayMs, err: error });
        await this.clock.sleep(delayMs, this.#stopping.signal);
      }
    }
  }

  /** @throws TaskInterrupted, and what is no failure of the task: that the database cannot do it just now */
  async #attempt(id: string): Promise<void> {
    const task = await this.find(id);
    const work = task && this.#works.get(task.action);
    if (!task || !work) return;
    let { result } = task;
    let failure: string | undefined;
    try {
      await this.#update(id, 'active', result);
      result = await work(task, async (progress) => {
        result = progress;
        await this.#update(id, 'active', progress);
      });
    } catch (error) {
      if (error instanceof TaskInterrupted || isTransient(error)) throw error;
      this.logger.error('A task on a room failed', { task: id, err: error });
      failure = error instanceof Error ? error.message : String(error);
    }
    await this.#update(id, failure === undefined ? 'complete' : 'failed', result, failure);
  }

  async #update(id: string, status: TaskStatus, result: JsonObject | undefined, error?: string): Promise<void> {
    const now = this.clock.nowMs();
    const text = result === undefined ? null : JSON.stringify(result);
    await this.database.write((tx) => updateTask(tx, id, status, text, error ?? null, now), { name: 'update_task' });
  }
}

function taskOf(row: TaskRow): RoomTask {
  return {
    id: row.id,
    action: row.action,
    status: row.status,
    roomId: row.resource_id ?? '',
    timestamp: row.timestamp,
    params: row.params === null ? {} : (JSON.parse(row.params) as JsonObject),
    result: row.result === null ? undefined : (JSON.parse(row.result) as JsonObject),
    error: row.error ?? undefined,
  };
}
