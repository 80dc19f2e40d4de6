import { Injectable } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, type RequestOrigin } from '@rookery/platform';
import { AccountService, type Registration } from '../accounts/account.service.js';
import { PasswordService } from '../accounts/password.service.js';
import { AccountModules } from '../common/account-modules.js';
import { checkAllowedThreepid } from '../threepids/threepid-rules.js';
import { provedAddress } from '../uia/stages.js';
import { ParticipationGate } from '../usage/participation-gate.js';
import type { RegistrationBody } from './registration-body.js';

/** What account a registration may become. */
@Injectable()
export class RegistrationPlans {
  constructor(
    private readonly config: Config,
    private readonly accounts: AccountService,
    private readonly passwords: PasswordService,
    private readonly modules: AccountModules,
    private readonly participation: ParticipationGate,
  ) {}

  /**
   * Whether name and password will do; told before anybody goes through the stages in vain.
   * @param username absent where none is asked for
   * @throws MatrixError 400 `M_INVALID_USERNAME`, `M_USER_IN_USE`, `M_EXCLUSIVE`, `M_MISSING_PARAM`, `M_WEAK_PASSWORD`
   */
  async check(username: string | undefined, body: RegistrationBody): Promise<void> {
    if (username !== undefined)
      await this.accounts.checkAvailable(username, {
        tellInUse: !this.config.get('inhibit_user_in_use_error'),
      });
    const { password, auth } = body;
    if (password !== undefined && password !== null) this.passwords.assertAcceptable(password);
    else if (auth !== undefined && auth !== null) throw MatrixError.missingParam("Missing parameter 'password'");
  }

  /** The account that is to be made of what was proved. @throws MatrixError as settings and modules say; 400, 403 */
  async of(
    request: RequestOrigin,
    body: RegistrationBody,
    results: JsonObject,
    addresses: readonly { ip: string; userAgent: string }[],
  ): Promise<Omit<Registration, 'origin'>> {
    const origin = { request };
    const email = provedAddress(results['m.login.email.identity']);
    const phone = provedAddress(results['m.login.msisdn']);
    const threepids = [email, phone].filter((one) => one !== undefined);
    await this.participation.assertRoomFor({ threepids });
    for (const { medium, address } of threepids) {
      checkAllowedThreepid(this.config, medium, address);
      await this.modules.checkThreepid(medium, address, true, origin);
    }
    const username =
      (await this.modules.usernameForRegistration(results, withoutSecrets(body), origin)) ?? body.username ?? undefined;
    const localpart = username === undefined ? undefined : await this.accounts.checkAvailable(username);
    const displayName = await this.modules.displayNameForRegistration(results, withoutSecrets(body), origin);
    const shadowBanned = await this.modules.checkRegistration(
      {
        email: email && { medium: 'email', address: email.address },
        username: localpart,
        requests: addresses,
        authProviderId: undefined,
      },
      origin,
    );
    return {
      localpart,
      displayName,
      shadowBanned,
      consentVersion: results['m.login.terms'] === undefined ? undefined : this.config.get('user_consent.version'),
      threepids: threepids.map(({ medium, address, validated_at: validatedMs }) => ({ medium, address, validatedMs })),
    };
  }
}

/** What modules see of the body: no password, no proof. */
function withoutSecrets(body: RegistrationBody): JsonObject {
  const { password: _password, auth: _auth, guest_access_token: _token, ...rest } = body;
  return rest;
}
