import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { type JsonObject, localpartOf, MatrixError } from '@rookery/matrix-types';
import { Config, type RequestOrigin } from '@rookery/platform';
import { AccountService } from '../accounts/account.service.js';
import { AccountModules } from '../common/account-modules.js';
import { assertServerOpen } from '../common/server-gate.js';
import { LoginService } from '../login/login.service.js';
import { SessionService } from '../sessions/session.service.js';
import { ParticipationGate } from '../usage/participation-gate.js';
import type { RegistrationBody } from './registration-body.js';

/** Guests: how they come, and how they become ordinary users. */
@Injectable()
export class GuestRegistration {
  constructor(
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly sessions: SessionService,
    private readonly modules: AccountModules,
    private readonly logins: LoginService,
    private readonly limiter: RateLimiter,
    private readonly participation: ParticipationGate,
  ) {}

  /**
   * Makes a guest account. Guests get what they ask for least: everything but the device's name is ignored.
   * @throws MatrixError 403 `M_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED`; 429
   */
  async register(request: RequestOrigin, body: RegistrationBody): Promise<JsonObject> {
    assertServerOpen(this.config);
    if (!this.config.get('allow_guest_access')) throw MatrixError.forbidden('Guests are not allowed on this server');
    await this.limiter.take('rc_registration', request.ip);
    await this.participation.assertRoomFor({});
    const shadowBanned = await this.modules.checkRegistration(
      {
        email: undefined,
        username: undefined,
        authProviderId: undefined,
      },
      { request },
    );
    const userId = await this.accounts.register({ isGuest: true, shadowBanned, origin: { request } });
    const session = await this.sessions.open({
      userId,
      isGuest: true,
      initialDisplayName: body.initial_device_display_name ?? undefined,
    });
    await this.modules.loggedIn(userId, undefined, undefined, { request });
    return this.logins.response(session);
  }

  /**
   * The guest who registers to become an ordinary user of the same name.
   * @throws MatrixError 403 `M_FORBIDDEN` where the token is no guest's, does not work anymore, or the name is another one's
   */
  async upgradedBy({ guest_access_token: token, username }: RegistrationBody): Promise<string | undefined> {
    if (token === undefined || token === null) return undefined;
    const owner = await this.sessions.findActing(token);
    if (!owner?.isGuest || (username !== undefined && username !== null && username !== localpartOf(owner.userId)))
      throw MatrixError.forbidden('This is not the token of a guest with that name');
    return owner.userId;
  }
}
