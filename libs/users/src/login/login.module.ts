import { Module } from '@nestjs/common';
import { AccountsModule } from '../accounts/accounts.module.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { UsageModule } from '../usage/usage.module.js';
import { UserHooksModule } from '../user-hooks.module.js';
import { LoginProofs } from './login-proofs.js';
import { LoginService } from './login.service.js';
import { LoginTokens } from './login-tokens.js';
import { PasswordLogin } from './password-login.js';

/** The ways to log in. */
@Module({
  imports: [AccountsModule, SessionsModule, UsageModule, UserHooksModule],
  providers: [LoginProofs, LoginService, LoginTokens, PasswordLogin],
  exports: [LoginProofs, LoginService, PasswordLogin],
})
export class LoginModule {}
