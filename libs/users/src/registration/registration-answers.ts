import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Config, type RequestOrigin } from '@rookery/platform';
import { AccountService } from '../accounts/account.service.js';
import { assertApproved } from '../accounts/approval.js';
import { AccountModules } from '../common/account-modules.js';
import { type DeviceRequest, LoginService } from '../login/login.service.js';
import { type SessionProof, SessionService } from '../sessions/session.service.js';
import type { RegistrationBody } from './registration-body.js';

type DeviceOptions = Pick<
  RegistrationBody,
  'inhibit_login' | 'device_id' | 'initial_device_display_name' | 'refresh_token'
>;

/** What a client is answered that has an account now. */
@Injectable()
export class RegistrationAnswers {
  constructor(
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly sessions: SessionService,
    private readonly modules: AccountModules,
    private readonly logins: LoginService,
  ) {}

  /**
   * Signs the device in that the client asks for, unless it asks for none.
   * @param proof the registration, where its client may ask again
   * @throws MatrixError 403 while the account waits for approval, or where the proof does not hold anymore
   */
  async for(userId: string, body: DeviceOptions, request: RequestOrigin, proof?: SessionProof): Promise<JsonObject> {
    if (body.inhibit_login) return { user_id: userId, home_server: this.config.serverName };
    const account = await this.accounts.find(userId);
    if (account) assertApproved(this.config, account);
    const device: DeviceRequest = {
      deviceId: body.device_id ?? undefined,
      initialDisplayName: body.initial_device_display_name ?? undefined,
      refreshable: body.refresh_token ?? false,
    };
    const session = await this.sessions.open({ userId, ...device, proof });
    await this.modules.loggedIn(userId, undefined, undefined, { request });
    return this.logins.response(session);
  }
}
