import { Controller, Get, Param, Put } from '@nestjs/common';
import { Access, type Infer, json, JsonBody, RateLimiter, stable, Who } from '@rookery/http';
import { isValidUserId, MatrixError } from '@rookery/matrix-types';
import { Clock, type Requester } from '@rookery/platform';
import { presenceContent, type PresenceName } from '../model/presence-state.js';
import { PresenceReader } from './presence-reader.js';
import { PresenceService } from './presence.service.js';

const schema = json.object({
  presence: json.required('How present the user is.', json.enum('online', 'offline', 'unavailable', 'busy')),
  status_msg: json.optional('What the user says of it.', json.nullable(json.string())),
});

@Controller()
export class PresenceController {
  constructor(
    private readonly presence: PresenceService,
    private readonly reader: PresenceReader,
    private readonly clock: Clock,
    private readonly limiter: RateLimiter,
  ) {}

  /** PUT /_matrix/client/v3/presence/{userId}/status */
  @Put(stable('/presence/:userId/status'))
  @Access({ auth: 'required', guests: true })
  async set(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @JsonBody(schema) body: Infer<typeof schema>,
  ): Promise<object> {
    if (userId !== requester.userId) throw MatrixError.forbidden('You cannot set the presence of somebody else');
    // A bucket of its own: a sync has said something of the user a moment ago, as a rule.
    await this.limiter.take('rc_presence.per_user', `${userId} by hand`, requester);
    const { presence, status_msg: statusMsg } = body as { presence: PresenceName; status_msg?: string | null };
    await this.presence.setByClient(userId, requester.deviceId, presence, statusMsg ?? undefined);
    return {};
  }

  /** GET /_matrix/client/v3/presence/{userId}/status */
  @Get(stable('/presence/:userId/status'))
  @Access({ auth: 'required', guests: true })
  async get(@Who() requester: Requester, @Param('userId') userId: string): Promise<object> {
    if (!isValidUserId(userId)) throw MatrixError.notUserId();
    return presenceContent(await this.reader.visibleTo(requester.userId, userId), this.clock.nowMs());
  }
}
