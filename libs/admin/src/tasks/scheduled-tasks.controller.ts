import { Controller, Get } from '@nestjs/common';
import { Inbound, type InboundRequest, queryChoice, queryInteger, queryString } from '@rookery/http';
import { RoomTasks } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';

const statuses = ['scheduled', 'active', 'complete', 'cancelled', 'failed'] as const;

/** Long work in the background. */
@Controller()
@AdminAccess()
export class ScheduledTasksController {
  constructor(private readonly tasks: RoomTasks) {}

  /** GET /_synapse/admin/v1/scheduled_tasks */
  @Get(admin('v1', '/scheduled_tasks'))
  async list(@Inbound() request: InboundRequest): Promise<object> {
    const tasks = await this.tasks.list({
      action: queryString(request, 'action_name'),
      resourceId: queryString(request, 'resource_id'),
      status: queryChoice(request, 'status', statuses) ?? queryChoice(request, 'job_status', statuses),
      maxTimestamp: queryInteger(request, 'max_timestamp'),
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
