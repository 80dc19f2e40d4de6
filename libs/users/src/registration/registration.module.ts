import { Module } from '@nestjs/common';
import { AccountsModule } from '../accounts/accounts.module.js';
import { LoginModule } from '../login/login.module.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { ThreepidsModule } from '../threepids/threepids.module.js';
import { UiaModule } from '../uia/uia.module.js';
import { UsageModule } from '../usage/usage.module.js';
import { UserHooksModule } from '../user-hooks.module.js';
import { AdminRegistrationService } from './admin-registration.service.js';
import { AppserviceRegistration } from './appservice-registration.js';
import { GuestRegistration } from './guest-registration.js';
import { RegistrationAnswers } from './registration-answers.js';
import { RegistrationFlows } from './registration-flows.js';
import { RegistrationPlans } from './registration-plans.js';
import { RegistrationService } from './registration.service.js';
import { SsoRegistration } from './sso-registration.service.js';

const services = [
  AdminRegistrationService,
  AppserviceRegistration,
  GuestRegistration,
  RegistrationFlows,
  RegistrationService,
  SsoRegistration,
];

/** The ways to an account. */
@Module({
  imports: [AccountsModule, LoginModule, SessionsModule, ThreepidsModule, UiaModule, UsageModule, UserHooksModule],
  providers: [...services, RegistrationAnswers, RegistrationPlans],
  exports: services,
})
export class RegistrationModule {}
