import { Controller, Get, Post } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { authField } from '../uia/auth-field.js';
import { UserAuthGate } from '../uia/user-auth-gate.js';
import { DeactivationService } from '../accounts/deactivation.service.js';
import { PasswordReset } from '../uia/password-reset.service.js';
import { AccountService } from '../accounts/account.service.js';
import { PasswordService } from '../accounts/password.service.js';

const changePasswordBody = json.object({
  auth: authField,
  new_password: json.optional('The password from now on.', json.string()),
  logout_devices: json.optional(
    'Whether all other devices are signed out; they are unless this is `false`.',
    json.boolean(),
  ),
});
const deactivateBody = json.object({
  auth: authField,
  erase: json.optional('Whether what the user has written is hidden from those who join later.', json.boolean()),
  id_server: json.optional(
    'An identity server that forgets the addresses of the user, beside those that were told through this server.',
    json.string(),
  ),
});

@Controller()
export class AccountController {
  constructor(
    private readonly accounts: AccountService,
    private readonly passwords: PasswordService,
    private readonly resets: PasswordReset,
    private readonly deactivation: DeactivationService,
    private readonly gate: UserAuthGate,
  ) {}

  /** GET /_matrix/client/v3/password_policy (MSC2000) */
  @Get(stable('/password_policy'))
  @Access({ auth: 'none' })
  passwordPolicy(): object {
    return this.passwords.policy() ?? {};
  }

  /** POST /_matrix/client/v3/account/password: with a token for oneself, without one after proving an address */
  @Post(stable('/account/password'))
  @Access({ ownAuth: true, auth: 'optional', expired: true })
  async changePassword(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @JsonBody(changePasswordBody, { optional: true })
    body: Infer<typeof changePasswordBody>,
  ): Promise<object> {
    if (!this.passwords.mayBeChanged) throw MatrixError.forbidden('Passwords cannot be changed on this server');
    if (!requester) {
      await this.resets.reset(request, body);
      return {};
    }
    const { new_password: password, logout_devices: logout = true } = body;
    if (password !== undefined) this.passwords.assertAcceptable(password);
    else if ('auth' in body) throw MatrixError.missingParam("Missing parameter 'new_password'");
    if (requester.puppetedBy !== undefined) throw MatrixError.forbidden('Not while acting as another user');
    await this.gate.require(requester, request, body, { description: 'change your password' });
    if (password === undefined) throw MatrixError.missingParam("Missing parameter 'new_password'");
    await this.accounts.setPassword(requester.userId, password, logout, requester.deviceId);
    return {};
  }

  /** POST /_matrix/client/v3/account/deactivate */
  @Post(stable('/account/deactivate'))
  @Access({ ownAuth: true, auth: 'required', expired: true })
  async deactivate(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @JsonBody(deactivateBody, { optional: true })
    body: Infer<typeof deactivateBody>,
  ): Promise<object> {
    if (requester.puppetedBy !== undefined) throw MatrixError.forbidden('Not while acting as another user');
    await this.gate.require(requester, request, body, { description: 'deactivate your account' });
    const { erase = false, id_server: idServer } = body;
    const unbound = await this.deactivation.deactivate(requester.userId, erase, false, { requester }, idServer);
    return { id_server_unbind_result: unbound ? 'success' : 'no-support' };
  }
}
