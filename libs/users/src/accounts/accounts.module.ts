import { Module } from '@nestjs/common';
import { ProfilesModule } from '../profiles/profiles.module.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { ThreepidsModule } from '../threepids/threepids.module.js';
import { UserHooksModule } from '../user-hooks.module.js';
import { AccountRenewal } from './account-renewal.service.js';
import { AccountService } from './account.service.js';
import { AccountStatusService } from './account-status.service.js';
import { AccountValidity } from './account-validity.js';
import { DeactivationService } from './deactivation.service.js';
import { ExternalIds } from './external-ids.js';
import { MissingExpiries } from './missing-expiries.js';
import { PasswordService } from './password.service.js';
import { RenewalMails } from './renewal-mails.js';

const services = [
  AccountRenewal,
  AccountService,
  AccountStatusService,
  AccountValidity,
  DeactivationService,
  ExternalIds,
  PasswordService,
  RenewalMails,
];

/** Accounts, from their making to their end. */
@Module({
  imports: [ProfilesModule, SessionsModule, ThreepidsModule, UserHooksModule],
  providers: [...services, MissingExpiries],
  exports: services,
})
export class AccountsModule {}
