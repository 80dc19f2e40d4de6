import { Injectable } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type RequestOrigin } from '@rookery/platform';
import { AccountService } from '../accounts/account.service.js';
import { qualifyUserId } from '../common/user-names.js';
import { accessTokenOf, type TokenCarrier } from '../sessions/access-token.js';
import { AppserviceDirectory } from '../sessions/appservice-directory.js';
import { unknownToken } from '../sessions/session.service.js';
import { RegistrationAnswers } from './registration-answers.js';
import type { RegistrationBody } from './registration-body.js';

/** Accounts that application services make for their users. */
@Injectable()
export class AppserviceRegistration {
  constructor(
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly appservices: AppserviceDirectory,
    private readonly answers: RegistrationAnswers,
  ) {}

  /**
   * Makes an account for an application service.
   * @spec application-service-api#server-admin-style-permissions
   * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_USERNAME`, `M_EXCLUSIVE`, `M_USER_IN_USE`; 401
   */
  async register(request: RequestOrigin & TokenCarrier, body: RegistrationBody): Promise<JsonObject> {
    const found = accessTokenOf(request);
    if (!found) throw MatrixError.missingToken('The token of an application service is required');
    const appservice = this.appservices.byToken(found.token, request.ip);
    if (!appservice) throw unknownToken('Not the token of an application service', false);
    if (this.config.get('matrix_authentication_service.enabled') && body.inhibit_login !== true) {
      throw MatrixError.appserviceLoginUnsupported();
    }
    const { username: localpart } = body;
    if (typeof localpart !== 'string') throw MatrixError.missingParam("Missing parameter 'username'");
    await this.accounts.checkAvailableTo(appservice.id, localpart);
    if (!appservice.covers(qualifyUserId(localpart, this.config.serverName)))
      throw MatrixError.exclusive('The user name lies outside the namespaces of the application service');
    const userId = await this.accounts.register({ localpart, appserviceId: appservice.id, origin: { request } });
    return this.answers.for(userId, body, request);
  }
}
