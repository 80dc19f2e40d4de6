import { Controller, Param, Post } from '@nestjs/common';
import { Access, client, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { Reports } from '../reports/reports.service.js';

const reason = json.string({ maxLength: 4096 });
const eventSchema = json.object({
  reason: json.optional('Why it is reported.', reason),
  score: json.optional('How bad it is, from -100 (most offensive) to 0.', json.integer({ minimum: -100, maximum: 0 })),
});
const reasonSchema = json.object({ reason: json.required('Why it is reported; may be empty.', reason) });

@Controller()
export class ReportsController {
  constructor(private readonly reports: Reports) {}

  /** POST /_matrix/client/v3/rooms/{roomId}/report/{eventId} */
  @Post(stable('/rooms/:roomId/report/:eventId'))
  @Access({ auth: 'required' })
  async event(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @JsonBody(eventSchema, { optional: true }) body: Infer<typeof eventSchema>,
  ): Promise<object> {
    await this.reports.event(requester, roomId, eventId, body);
    return {};
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/report */
  @Post([...stable('/rooms/:roomId/report'), ...client(['unstable'], '/org.matrix.msc4151/rooms/:roomId/report')])
  @Access({ auth: 'required' })
  async room(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(reasonSchema) body: Infer<typeof reasonSchema>,
  ): Promise<object> {
    await this.reports.room(requester, roomId, body.reason.replaceAll('\0', ''));
    return {};
  }

  /** POST /_matrix/client/v3/users/{userId}/report */
  @Post([...stable('/users/:userId/report'), ...client(['unstable'], '/org.matrix.msc4260/users/:userId/report')])
  @Access({ auth: 'required' })
  async user(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @JsonBody(reasonSchema) body: Infer<typeof reasonSchema>,
  ): Promise<object> {
    await this.reports.user(requester, userId, body.reason.replaceAll('\0', ''));
    return {};
  }
}
