import { Controller, Get } from '@nestjs/common';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AllBackgroundTasks } from './all-background-tasks.js';

/** Work that the server does again and again. */
@Controller()
@AdminAccess()
export class BackgroundTasksController {
  constructor(private readonly tasks: AllBackgroundTasks) {}

  /** GET /_synapse/admin/v1/background_tasks */
  @Get(admin('v1', '/background_tasks'))
  async list(): Promise<object> {
    return {
      background_tasks: (await this.tasks.list()).map((task) => ({
        name: task.name,
        role: task.role,
        process: task.process,
        interval_ms: task.everyMs,
        running: task.isRunning,
        runs: task.runs,
        failures: task.failures,
        last_started_ts: task.lastStartedTs ?? null,
        last_duration_ms: task.lastDurationMs === undefined ? null : Math.round(task.lastDurationMs),
        last_error: task.lastError ?? null,
      })),
    };
  }
}
