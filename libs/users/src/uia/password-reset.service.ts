import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { RequestOrigin } from '@rookery/platform';
import { EmailVerification } from '../threepids/email-verification.service.js';
import { MsisdnVerification } from '../threepids/msisdn-verification.service.js';
import { userOfThreepid } from '../threepids/threepid.query.js';
import { provedAddress } from './stages.js';
import { UiaService } from './uia.service.js';
import { AccountService } from '../accounts/account.service.js';
import { PasswordService } from '../accounts/password.service.js';

/** A new password for somebody who has forgotten the old one and proves an address of the account. */
@Injectable()
export class PasswordReset {
  constructor(
    private readonly database: Database,
    private readonly uia: UiaService,
    private readonly accounts: AccountService,
    private readonly emails: EmailVerification,
    private readonly numbers: MsisdnVerification,
    private readonly passwords: PasswordService,
  ) {}

  /**
   * @throws MatrixError 401 `M_MISSING_TOKEN` where no address can be proved: then only a session can change a password
   * @throws InteractiveAuthRequired until an address is proved
   * @throws MatrixError 400 `M_MISSING_PARAM`, 404 `M_NOT_FOUND` (the address belongs to no account)
   */
  async reset(
    request: RequestOrigin,
    given: JsonObject & { readonly new_password?: string; readonly logout_devices?: boolean },
  ): Promise<void> {
    const flows: string[][] = [];
    if (this.emails.available) flows.push(['m.login.email.identity']);
    if (this.numbers.available) flows.push(['m.login.msisdn']);
    if (flows.length === 0) throw MatrixError.missingToken();
    const { body } = await this.uia.recall(request, given);
    const { new_password: password, logout_devices: logout = true } = body;
    if (password !== undefined) this.passwords.assertAcceptable(password);
    else if (body['auth'] !== undefined) throw MatrixError.missingParam("Missing parameter 'new_password'");
    const { results } = await this.uia.authenticate({
      ...{ request, body, flows, description: 'set a new password' },
      purpose: 'password_reset',
    });
    const proved = provedAddress(results['m.login.email.identity']) ?? provedAddress(results['m.login.msisdn']);
    if (password === undefined) throw MatrixError.missingParam("Missing parameter 'new_password'");
    const userId = proved && (await userOfThreepid(this.database, proved.medium, proved.address));
    const account = userId === undefined ? undefined : await this.accounts.find(userId);
    if (!account || account.deactivated) throw MatrixError.notFound('The address belongs to no account');
    await this.accounts.setPassword(account.userId, password, logout);
  }
}
