import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, Ids, Logger } from '@rookery/platform';
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

const maxRunning = 5;
const maxListed = 1000;
const keepFinishedMs = 7 * 24 * 3_600_000;

/** Runs long work on rooms in the background, a few tasks at a time, and goes on with it after a restart. */
@Injectable()
export class RoomTasks {
  readonly #works = new Map<string, TaskWork>();
  readonly #waiting: string[] = [];
  readonly #running = new Map<string, Promise<void>>();
  /** Those who wait for the end of a task. */
  readonly #watchers = new Map<string, (() => void)[]>();
  /** What is just being scheduled that may be there once only. */
  readonly #scheduling = new Set<string>();
  #stopped = false;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly logger: Logger,
  ) {}

  /** Says what is to be done for an action. */
  define(action: string, work: TaskWork): void {
    this.#works.set(action, work);
  }

  /** Goes on with what was not finished. Call it when all actions are defined. */
  async resume(): Promise<void> {
    this.#stopped = false;
    const before = this.clock.nowMs() - keepFinishedMs;
    await this.database.write((tx) => deleteFinished(tx, before), { name: 'delete_finished_tasks' });
    for (const row of await selectUnfinished(this.database)) if (this.#works.has(row.action)) this.#enqueue(row.id);
  }

  /** Whether the server is about to end: work that can be taken up again throws {@link TaskInterrupted}. */
  get stopping(): boolean {
    return this.#stopped;
  }

  /** Starts no more tasks, and resolves when those that run have come to an end. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await Promise.all(this.#running.values());
    for (const tell of [...this.#watchers.values()].flat()) tell();
    this.#watchers.clear();
  }

  /** @returns the task's id */
  async schedule(action: string, roomId: string, params: JsonObject): Promise<string> {
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
    this.#enqueue(id);
    return id;
  }

  /**
   * The same, unless such a task about the same is waiting or running.
   * @returns the task's id; `undefined` when there is one already
   */
  async scheduleOnce(action: string, roomId: string, params: JsonObject): Promise<string | undefined> {
    const key = `${action} ${roomId}`;
    // Of several requests at a time, all would find nothing yet.
    if (this.#scheduling.has(key)) return undefined;
    this.#scheduling.add(key);
    try {
      const isPending = ({ status, ...task }: RoomTask): boolean =>
        task.action === action && (status === 'active' || status === 'scheduled');
      if ((await this.ofRoom(roomId)).some(isPending)) return undefined;
      return await this.schedule(action, roomId, params);
    } finally {
      this.#scheduling.delete(key);
    }
  }

  async find(id: string): Promise<RoomTask | undefined> {
    const row = await selectTask(this.database, id);
    return row && taskOf(row);
  }

  /** Tasks about a room, the newest first. */
  async ofRoom(roomId: string): Promise<RoomTask[]> {
    return (await selectTasksOf(this.database, roomId)).map(taskOf);
  }

  /** The newest tasks that fit, the newest first; at most a thousand. */
  async list(search: TaskSearch): Promise<RoomTask[]> {
    return (await selectTasks(this.database, search, maxListed)).map(taskOf);
  }

  /** A task that this process has scheduled, once it has come to its end. `undefined` when there is none with that id. */
  async outcome(id: string): Promise<RoomTask | undefined> {
    if (this.#running.has(id) || this.#waiting.includes(id)) {
      await new Promise<void>((resolve) => {
        this.#watchers.set(id, [...(this.#watchers.get(id) ?? []), resolve]);
      });
    }
    return this.find(id);
  }

  /** Resolves when nothing is left to do. */
  async settled(): Promise<void> {
    while (this.#running.size > 0) await Promise.race(this.#running.values());
  }

  #enqueue(id: string): void {
    if (this.#running.has(id) || this.#waiting.includes(id)) return;
    this.#waiting.push(id);
    this.#next();
  }

  #next(): void {
    if (this.#stopped || this.#running.size >= maxRunning) return;
    const id = this.#waiting.shift();
    if (id === undefined) return;
    const run = this.#run(id).finally(() => {
      this.#running.delete(id);
      for (const tell of this.#watchers.get(id) ?? []) tell();
      this.#watchers.delete(id);
      this.#next();
    });
    this.#running.set(id, run);
  }

  async #run(id: string): Promise<void> {
    let result: JsonObject | undefined;
    try {
      const task = await this.find(id);
      const work = task && this.#works.get(task.action);
      if (!task || !work) return;
      result = task.result;
      await this.#update(id, 'active', result);
      result = await work(task, async (progress) => {
        result = progress;
        await this.#update(id, 'active', progress);
      });
      await this.#update(id, 'complete', result);
    } catch (error) {
      if (error instanceof TaskInterrupted) return;
      this.logger.error('A task on a room failed', { task: id, err: error });
      try {
        await this.#update(id, 'failed', result, error instanceof Error ? error.message : String(error));
      } catch (storeError) {
        this.logger.error('The failure of a task could not be noted', { task: id, err: storeError });
      }
    }
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
