import { Controller, Delete, Get, Param, Post, Put } from '@nestjs/common';
import { HttpReply, Inbound, type InboundRequest, type Infer, json, JsonBody, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { AccountService, DeactivationService, SessionService } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';
import { userChange, UserChanges } from './user-changes.service.js';
import { UserDetails } from './user-details.service.js';

const flag = json.boolean();
const deactivateBody = json.object({
  erase: json.optional('Whether what the user has written is hidden from those who join later.', flag),
});
const suspendBody = json.object({ suspend: json.required('Whether the account is suspended.', flag) });
const resetPasswordBody = json.object({
  new_password: json.required('The password from now on.', json.string({ maxLength: 512 })),
  logout_devices: json.optional('Whether all devices are signed out; they are unless this is `false`.', flag),
});
const loginBody = json.object({
  valid_until_ms: json.optional('When the token ends, ms since the epoch; never unless given.', json.unknown()),
});
const setAdminBody = json.object({ admin: json.required('Whether the user may administer the server.', flag) });

/** One account of this server. */
@Controller()
@AdminAccess()
export class UserController {
  constructor(
    private readonly targets: AdminTargets,
    private readonly details: UserDetails,
    private readonly changes: UserChanges,
    private readonly accounts: AccountService,
    private readonly deactivation: DeactivationService,
  ) {}

  /** GET /_synapse/admin/v2/users/{userId} */
  @Get(admin('v2', '/users/:userId'))
  async get(@Param('userId') userId: string): Promise<object> {
    return this.details.of(await this.targets.localAccount(userId));
  }

  /** PUT /_synapse/admin/v2/users/{userId} */
  @Put(admin('v2', '/users/:userId'))
  async put(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('userId') userId: string,
    @JsonBody(userChange) body: Infer<typeof userChange>,
  ): Promise<object> {
    const isNew = await this.changes.apply(requester, request, this.targets.localUserId(userId), body);
    const details = await this.get(userId);
    return isNew ? HttpReply.json(201, details) : details;
  }

  /** POST /_synapse/admin/v1/deactivate/{userId} */
  @Post(admin('v1', '/deactivate/:userId'))
  async deactivate(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('userId') text: string,
    @JsonBody(deactivateBody, { optional: true }) body: Infer<typeof deactivateBody>,
  ): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    const origin = { requester, request, byAdmin: true };
    const unbound = await this.deactivation.deactivate(userId, body.erase ?? false, true, origin);
    return { id_server_unbind_result: unbound ? 'success' : 'no-support' };
  }

  /** PUT /_synapse/admin/v1/suspend/{userId} */
  @Put(admin('v1', '/suspend/:userId'))
  async suspend(
    @Param('userId') text: string,
    @JsonBody(suspendBody) body: Infer<typeof suspendBody>,
  ): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    await this.accounts.setFlags(userId, { suspended: body.suspend });
    return { [`user_${userId}_suspended`]: body.suspend };
  }

  /** POST /_synapse/admin/v1/users/{userId}/shadow_ban */
  @Post(admin('v1', '/users/:userId/shadow_ban'))
  async shadowBan(@Param('userId') userId: string): Promise<object> {
    await this.accounts.setFlags(this.targets.localUserId(userId), { shadowBanned: true });
    return {};
  }

  /** DELETE /_synapse/admin/v1/users/{userId}/shadow_ban */
  @Delete(admin('v1', '/users/:userId/shadow_ban'))
  async liftShadowBan(@Param('userId') userId: string): Promise<object> {
    await this.accounts.setFlags(this.targets.localUserId(userId), { shadowBanned: false });
    return {};
  }
}

/** What only makes sense where this server checks passwords and issues tokens itself. */
@Controller()
@AdminAccess()
export class UserCredentialsController {
  constructor(
    private readonly targets: AdminTargets,
    private readonly changes: UserChanges,
    private readonly accounts: AccountService,
    private readonly sessions: SessionService,
  ) {}

  /** POST /_synapse/admin/v1/reset_password/{userId} */
  @Post(admin('v1', '/reset_password/:userId'))
  async resetPassword(
    @Param('userId') text: string,
    @JsonBody(resetPasswordBody)
    body: Infer<typeof resetPasswordBody>,
  ): Promise<object> {
    this.changes.checkPassword(body.new_password);
    await this.accounts.setPassword(this.targets.userId(text), body.new_password, body.logout_devices ?? true);
    return {};
  }

  /** GET /_synapse/admin/v1/users/{userId}/admin */
  @Get(admin('v1', '/users/:userId/admin'))
  async isAdmin(@Param('userId') userId: string): Promise<object> {
    return { admin: (await this.targets.localAccount(userId)).isAdmin };
  }

  /** PUT /_synapse/admin/v1/users/{userId}/admin */
  @Put(admin('v1', '/users/:userId/admin'))
  async setAdmin(
    @Who() requester: Requester,
    @Param('userId') text: string,
    @JsonBody(setAdminBody) body: Infer<typeof setAdminBody>,
  ): Promise<object> {
    const userId = this.targets.localUserId(text);
    this.changes.checkDemotion(requester, userId, body.admin);
    await this.accounts.setFlags(userId, { isAdmin: body.admin });
    return {};
  }

  /** POST /_synapse/admin/v1/users/{userId}/login */
  @Post(admin('v1', '/users/:userId/login'))
  async login(
    @Who() requester: Requester,
    @Param('userId') text: string,
    @JsonBody(loginBody, { optional: true }) body: Infer<typeof loginBody>,
  ): Promise<object> {
    const { userId } = await this.targets.localAccount(text);
    const { valid_until_ms: validUntilMs } = body;
    if (validUntilMs !== undefined && !Number.isSafeInteger(validUntilMs))
      throw MatrixError.badRequest("'valid_until_ms' must be an integer");
    if (userId === requester.userId) throw MatrixError.badRequest('You are logged in as yourself already');
    const until = typeof validUntilMs === 'number' ? validUntilMs : undefined;
    return { access_token: await this.sessions.openPuppet(requester.userId, userId, until) };
  }
}
