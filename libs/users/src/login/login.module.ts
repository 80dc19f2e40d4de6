import { Module } from '@nestjs/common';
import { AccountsModule } from '../accounts/accounts.module.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { UsageModule } from '../usage/usage.module.js';
import { UserHooksModule } from '../user-hooks.module.js';
import { JwtLogin } from './jwt.js';
import { LoginProofs } from './login-proofs.js';
import { LoginService } from './login.service.js';
import { LoginTokens } from './login-tokens.js';
import { ModuleLogin } from './module-login.js';
import { PasswordLogin } from './password-login.js';

/** The ways to log in. */
@Module({
  imports: [AccountsModule, SessionsModule, UsageModule, UserHooksModule],
  providers: [JwtLogin, LoginProofs, LoginService, LoginTokens, ModuleLogin, PasswordLogin],
  exports: [LoginService, LoginTokens, ModuleLogin, PasswordLogin],
})
export class LoginModule {}
