import { Module } from '@nestjs/common';
import { RequestAuthenticator } from '@rookery/http';
import { AccountsModule } from '../accounts/accounts.module.js';
import { SessionsModule } from '../sessions/sessions.module.js';
import { UsageModule } from '../usage/usage.module.js';
import { AuthenticationService } from './authentication-service.js';
import { UserRequestAuthenticator } from './request-authenticator.js';
import { SessionWatch } from './session-watch.js';

/** Whose request this is. */
@Module({
  imports: [AccountsModule, SessionsModule, UsageModule],
  providers: [
    AuthenticationService,
    UserRequestAuthenticator,
    SessionWatch,
    { provide: RequestAuthenticator, useExisting: UserRequestAuthenticator },
  ],
  exports: [AuthenticationService, RequestAuthenticator, SessionWatch],
})
export class AuthenticationModule {}
