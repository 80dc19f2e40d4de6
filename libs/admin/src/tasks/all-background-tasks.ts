import { Injectable, type OnModuleInit } from '@nestjs/common';
import { type BackgroundTaskReport, BackgroundTasks } from '@rookery/platform';
import { defineRpc, Roles, Rpc } from '@rookery/replication';

/** What is known of a task, and where it runs. */
export interface PlacedTaskReport extends BackgroundTaskReport {
  /** Name of the process. */
  readonly process: string;
}

const tasksHere = defineRpc<null, readonly PlacedTaskReport[]>('background_tasks');

/** The background tasks of all processes of the server. */
@Injectable()
export class AllBackgroundTasks implements OnModuleInit {
  constructor(
    private readonly tasks: BackgroundTasks,
    private readonly roles: Roles,
    private readonly rpc: Rpc,
  ) {}

  onModuleInit(): void {
    this.rpc.handle(tasksHere, () => Promise.resolve(this.#here()));
  }

  /**
   * Every task, by name, as the process tells that has its role; those of every process, and of roles that nobody has now, as this one
   * does.
   */
  async list(): Promise<readonly PlacedTaskReport[]> {
    const byName = new Map(this.#all().map((task) => [task.name, task]));
    for (const tasks of (await this.rpc.callOthers(tasksHere, null)).values())
      for (const task of tasks) byName.set(task.name, task);
    for (const task of this.#here()) byName.set(task.name, task);
    return [...byName.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  #all(): readonly PlacedTaskReport[] {
    return this.tasks.list().map((task) => ({ ...task, process: this.roles.instance }));
  }

  /** Those of roles that one process has at a time, which is this one. */
  #here(): readonly PlacedTaskReport[] {
    return this.#all().filter(({ role }) => role !== 'every_process' && this.tasks.holds(role));
  }
}
