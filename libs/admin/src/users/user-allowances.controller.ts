import { Controller, Delete, Get, Inject, Param, Post } from '@nestjs/common';
import { CrossSigningService } from '@rookery/e2ee';
import { Inbound, type InboundRequest, type Infer, json, JsonBody, type RateLimit, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, type Requester } from '@rookery/platform';
import { AccountRenewal, StoredRateLimitOverrides } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';

const renewalBody = AccountRenewal.request;
const count = json.integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const rateLimitBody = json.object({
  messages_per_second: json.optional(
    'Requests per second in the long run; 0 for no limit, which is the default.',
    count,
  ),
  burst_count: json.optional('Requests that may come at once; 0 unless given.', count),
});

/** How long a user may replace the cross-signing keys without confirmation. */
const replacementMs = 600_000;

/** What single users are allowed beyond the rules for all. */
@Controller()
@AdminAccess()
export class UserAllowancesController {
  constructor(
    private readonly targets: AdminTargets,
    // The platform's own object: it was there before any module.
    @Inject(StoredRateLimitOverrides) private readonly overrides: StoredRateLimitOverrides,
    private readonly crossSigning: CrossSigningService,
    private readonly clock: Clock,
  ) {}

  /** GET /_synapse/admin/v1/users/{userId}/override_ratelimit */
  @Get(admin('v1', '/users/:userId/override_ratelimit'))
  async rateLimit(@Param('userId') text: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    const limit = await this.overrides.find(userId);
    return limit ? toWire(limit) : {};
  }

  /** POST /_synapse/admin/v1/users/{userId}/override_ratelimit */
  @Post(admin('v1', '/users/:userId/override_ratelimit'))
  async setRateLimit(
    @Param('userId') text: string,
    @JsonBody(rateLimitBody, { optional: true, wrongType: 'M_INVALID_PARAM' }) body: Infer<typeof rateLimitBody>,
  ): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    const limit = { perSecond: body.messages_per_second ?? 0, burstCount: body.burst_count ?? 0 };
    await this.overrides.set(userId, limit);
    return toWire(limit);
  }

  /** DELETE /_synapse/admin/v1/users/{userId}/override_ratelimit */
  @Delete(admin('v1', '/users/:userId/override_ratelimit'))
  async clearRateLimit(@Param('userId') text: string): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    await this.overrides.set(userId, undefined);
    return {};
  }

  /** POST /_synapse/admin/v1/users/{userId}/_allow_cross_signing_replacement_without_uia */
  @Post(admin('v1', '/users/:userId/_allow_cross_signing_replacement_without_uia'))
  async allowReplacement(@Param('userId') text: string): Promise<object> {
    const untilMs = this.clock.nowMs() + replacementMs;
    if (!(await this.crossSigning.allowReplacement(this.targets.userId(text), untilMs)))
      throw MatrixError.notFound('The user has no cross-signing keys');
    return { updatable_without_uia_before_ms: untilMs };
  }
}

/** Lets accounts that expire live on. */
@Controller()
@AdminAccess()
export class UserValidityController {
  constructor(private readonly renewal: AccountRenewal) {}

  /** POST /_synapse/admin/v1/account_validity/validity */
  @Post(admin('v1', '/account_validity/validity'))
  async renew(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(renewalBody, { wrongType: 'M_INVALID_PARAM' }) body: Infer<typeof renewalBody>,
  ): Promise<object> {
    return { expiration_ts: await this.renewal.renewByAdmin(body, { requester, request, byAdmin: true }) };
  }
}

const toWire = (limit: RateLimit): object => ({
  messages_per_second: limit.perSecond,
  burst_count: limit.burstCount,
});
