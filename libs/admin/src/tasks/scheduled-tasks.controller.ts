import { Controller, Get } from '@nestjs/common';
import { Inbound, type InboundRequest, queryInteger, queryString, queryStrings } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { RoomTasks } from '@rookery/rooms';
import { admin, AdminAccess } from '../http/admin-endpoint.js';

const statuses = ['scheduled', 'active', 'complete', 'cancelled', 'failed'] as const;

/** @throws MatrixError 400 `M_INVALID_PARAM` */
function status(text: string): (typeof statuses)[number] {
  const found = statuses.find((one) => one === text);
  if (found === undefined)
    throw MatrixError.invalidParam(`Query parameter 'status' must be one of ${statuses.join(', ')}`);
  return found;
}

/** Long work in the background. */
@Controller()
@AdminAccess()
export class ScheduledTasksController {
  constructor(private readonly tasks: RoomTasks) {}

  /** GET /_synapse/admin/v1/scheduled_tasks */
  @Get(admin('v1', '/scheduled_tasks'))
  async list(@Inbound() request: InboundRequest): Promise<object> {
    const tasks = await this.tasks.list({
      actions: queryStrings(request, 'action_name'),
      resourceId: queryString(request, 'resource_id'),
      statuses: [...queryStrings(request, 'status'), ...queryStrings(request, 'job_status')].map(status),
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
