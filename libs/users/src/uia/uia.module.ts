import { Module } from '@nestjs/common';
import { AccountsModule } from '../accounts/accounts.module.js';
import { AuthenticationModule } from '../authentication/authentication.module.js';
import { LoginModule } from '../login/login.module.js';
import { ThreepidsModule } from '../threepids/threepids.module.js';
import { UserHooksModule } from '../user-hooks.module.js';
import { CaptchaVerifier } from './captcha-verifier.js';
import { PasswordReset } from './password-reset.service.js';
import { ThreepidStages } from './threepid-stages.js';
import { UiaService } from './uia.service.js';
import { UiaStages } from './uia-stages.js';
import { UserAuthGate } from './user-auth-gate.js';

/** User-interactive authentication, and what it opens to people without a session. */
@Module({
  imports: [AccountsModule, AuthenticationModule, LoginModule, ThreepidsModule, UserHooksModule],
  providers: [CaptchaVerifier, PasswordReset, ThreepidStages, UiaService, UiaStages, UserAuthGate],
  exports: [PasswordReset, UiaService, UserAuthGate],
})
export class UiaModule {}
