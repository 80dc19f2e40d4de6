import { Controller, Get, Post } from '@nestjs/common';
import { BackgroundUpdates } from '@rookery/database';
import { type Infer, json, JsonBody } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { jobOf } from './jobs.js';

/** There is one database; the API knows several. */
const databaseName = 'master';

const enabledSchema = json.object({
  enabled: json.optional('Whether background updates run; they do unless this is `false`.', json.boolean()),
});
const jobSchema = json.object({ job_name: json.required('The job that is to run, by name.', json.string()) });

/** Work on the data that runs while the server does. */
@Controller()
@AdminAccess()
export class BackgroundUpdatesController {
  constructor(private readonly updates: BackgroundUpdates) {}

  /** GET /_synapse/admin/v1/background_updates/status */
  @Get(admin('v1', '/background_updates/status'))
  status(): object {
    const current = this.updates.current();
    return {
      enabled: this.updates.enabled,
      current_updates: current
        ? {
            [databaseName]: {
              name: current.name,
              total_item_count: current.totalItems,
              total_duration_ms: current.totalDurationMs,
              average_items_per_ms: current.itemsPerMs ?? 0,
            },
          }
        : {},
    };
  }

  /** GET /_synapse/admin/v1/background_updates/enabled */
  @Get(admin('v1', '/background_updates/enabled'))
  isEnabled(): object {
    return { enabled: this.updates.enabled };
  }

  /** POST /_synapse/admin/v1/background_updates/enabled */
  @Post(admin('v1', '/background_updates/enabled'))
  setEnabled(@JsonBody(enabledSchema) { enabled = true }: Infer<typeof enabledSchema>): object {
    this.updates.setEnabled(enabled);
    return { enabled: this.updates.enabled };
  }

  /** POST /_synapse/admin/v1/background_updates/start_job */
  @Post(admin('v1', '/background_updates/start_job'))
  async startJob(@JsonBody(jobSchema) body: Infer<typeof jobSchema>): Promise<object> {
    const { update, progress } = jobOf(body);
    if (!(await this.updates.queue(update, { progress })))
      throw MatrixError.badRequest(`The job ${body.job_name} is queued already`);
    return {};
  }
}
