import { Controller, Get } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { RoomTasks } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';

const statuses = ['scheduled', 'active', 'complete', 'cancelled', 'failed'] as const;

const listQuery = queryOf({
  action_name: param.strings('Only tasks of these kinds.'),
  resource_id: param.string('Only tasks about this room.'),
  status: param.choices('Only tasks in these states.', statuses, { also: ['job_status'] }),
  max_timestamp: param.integer('Only tasks of before then, milliseconds.'),
});

/** Long work in the background. */
@Controller()
@AdminAccess()
export class ScheduledTasksController {
  constructor(private readonly tasks: RoomTasks) {}

  /** GET /_synapse/admin/v1/scheduled_tasks */
  @Get(admin('v1', '/scheduled_tasks'))
  async list(@Query(listQuery) query: InferQuery<typeof listQuery>): Promise<object> {
    const tasks = await this.tasks.list({
      actions: query.action_name,
      resourceId: query.resource_id,
      statuses: query.status,
      maxTimestamp: query.max_timestamp,
    });
    return {
      scheduled_tasks: tasks.map((task) => ({
        id: task.id,
        action: task.action,
        status: task.status,
        timestamp_ms: task.timestamp,
        resource_id: task.roomId === '' ? null : task.roomId,
        result: task.result ?? null,
        error: task.error ?? null,
      })),
    };
  }
}
