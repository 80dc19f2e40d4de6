import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, type RequestOrigin } from '@rookery/platform';
import { AccountService } from '../accounts/account.service.js';
import { assertServerOpen } from '../common/server-gate.js';
import { EmailVerification } from '../threepids/email-verification.service.js';
import { MsisdnVerification } from '../threepids/msisdn-verification.service.js';
import { findRegistrationToken, isUsable } from '../store/registration-token.query.js';

const tokenStage = 'm.login.registration_token';

/** Who may register, and what they have to go through. */
@Injectable()
export class RegistrationFlows {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly emails: EmailVerification,
    private readonly numbers: MsisdnVerification,
    private readonly limiter: RateLimiter,
    private readonly accounts: AccountService,
  ) {}

  /** The lists of stages of which a registration has to pass one. */
  list(): string[][] {
    const required = this.config.get('registrations_require_3pid');
    const offersPhone =
      !this.config.get('disable_msisdn_registration') &&
      this.config.get('account_threepid_delegates.msisdn') !== undefined;
    const offersEmail = this.emails.available;
    const needsEmail = required.includes('email');
    const needsPhone = required.includes('msisdn') && !this.config.get('disable_msisdn_registration');
    const flows: string[][] = [];
    if (!needsEmail && !needsPhone) flows.push(['m.login.dummy']);
    if (!needsPhone && offersEmail) flows.push(['m.login.email.identity']);
    if (!needsEmail && offersPhone) flows.push(['m.login.msisdn']);
    if (offersEmail && offersPhone) flows.push(['m.login.msisdn', 'm.login.email.identity']);
    // In place of addresses, and of nothing else.
    if (this.config.get('enable_registration_token_3pid_bypass')) flows.push([tokenStage]);
    if (this.config.get('user_consent.require_at_registration')) for (const flow of flows) flow.push('m.login.terms');
    if (this.config.get('enable_registration_captcha')) for (const flow of flows) flow.unshift('m.login.recaptcha');
    if (this.config.get('registration_requires_token'))
      for (const flow of flows) if (!flow.includes(tokenStage)) flow.unshift(tokenStage);
    return flows;
  }

  /** @throws MatrixError 403 `M_FORBIDDEN` when nobody may register, `M_RESOURCE_LIMIT_EXCEEDED` while the server is closed */
  assertEnabled(): void {
    assertServerOpen(this.config);
    if (!this.config.get('enable_registration')) throw MatrixError.forbidden('Registration is disabled on this server');
  }

  /**
   * Whether a name may be registered.
   * @throws MatrixError 400 `M_INVALID_USERNAME`, `M_USER_IN_USE`, `M_EXCLUSIVE`; 403 `M_FORBIDDEN`; 429
   */
  async checkAvailable(username: string, request: RequestOrigin): Promise<void> {
    this.assertEnabled();
    if (this.config.get('inhibit_user_in_use_error')) {
      await this.accounts.checkAvailable(username, { tellInUse: false });
      return;
    }
    await this.limiter.take('rc_registration', request.ip);
    await this.accounts.checkAvailable(username);
  }

  /** Whether a registration token may be used once more. @throws MatrixError 403 `M_FORBIDDEN`, 429 */
  async tokenIsValid(token: string, request: RequestOrigin): Promise<boolean> {
    await this.limiter.take('rc_registration_token_validity', request.ip);
    this.assertEnabled();
    if (token.length > 64 || token.includes('\0')) return false;
    const found = await findRegistrationToken(this.database, token);
    return found !== undefined && isUsable(found, this.clock.nowMs());
  }
}
