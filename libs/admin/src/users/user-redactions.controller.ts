import { Controller, Get, Param, Post } from '@nestjs/common';
import { type Infer, json, JsonBody, Who } from '@rookery/http';
import { isValidRoomId, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { UserRedactions } from '@rookery/rooms';
import { isLocalUser } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';

const schema = json.object({
  rooms: json.required(
    'The rooms in which it is done; all rooms of the user when empty.',
    json.array(json.string(), { maxItems: 10_000 }),
  ),
  reason: json.optional('The reason of the redactions.', json.nullable(json.string({ maxLength: 4096 }))),
  limit: json.optional(
    'How many events of each room at most, the newest first.',
    json.nullable(json.integer({ minimum: 1, maximum: 1_000_000 })),
  ),
  use_admin: json.optional('Whether the administrator redacts, rather than the user.', json.nullable(json.boolean())),
  before_ts: json.optional(
    'Only what was sent before this, ms since the epoch.',
    json.nullable(json.integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  ),
  after_ts: json.optional(
    'Only what was sent after this, ms since the epoch.',
    json.nullable(json.integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  ),
});
const defaultLimit = 1_000;

/** Redacts what a user said. */
@Controller()
@AdminAccess()
export class UserRedactionsController {
  constructor(
    private readonly targets: AdminTargets,
    private readonly redactions: UserRedactions,
    private readonly config: Config,
  ) {}

  /** POST /_synapse/admin/v1/user/{userId}/redact */
  @Post(admin('v1', '/user/:userId/redact'))
  async redact(
    @Who() requester: Requester,
    @Param('userId') text: string,
    @JsonBody(schema) body: Infer<typeof schema>,
  ): Promise<object> {
    const userId = this.targets.userId(text);
    if (!body.rooms.every(isValidRoomId)) throw MatrixError.invalidParam("'rooms' must hold room ids");
    const isOurs = isLocalUser(userId, this.config.serverName);
    const id = await this.redactions.start({
      userId,
      roomIds: [...new Set(body.rooms)],
      sender: isOurs && body.use_admin !== true ? userId : requester.userId,
      reason: body.reason ?? undefined,
      limit: body.limit ?? defaultLimit,
      beforeTs: body.before_ts ?? undefined,
      afterTs: body.after_ts ?? undefined,
    });
    return { redact_id: id };
  }

  /** GET /_synapse/admin/v1/user/redact_status/{redactId} */
  @Get(admin('v1', '/user/redact_status/:redactId'))
  async status(@Param('redactId') redactId: string): Promise<object> {
    const task = await this.redactions.find(redactId);
    if (task === undefined) throw MatrixError.notFound('There is no such redaction');
    return {
      status: task.status,
      ...(task.status === 'complete' && { failed_redactions: task.result?.['failed_redactions'] ?? {} }),
      ...(task.status === 'failed' && { error: task.error ?? 'Unknown' }),
    };
  }
}
