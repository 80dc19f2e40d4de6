import { Module } from '@nestjs/common';
import { UserHooksModule } from '../user-hooks.module.js';
import { AccountMailer } from './account-mailer.js';
import { EmailVerification } from './email-verification.service.js';
import { IdentityServer } from './identity-server.js';
import { MsisdnVerification } from './msisdn-verification.service.js';
import { RequestTokenService } from './request-token.service.js';
import { ThreepidService } from './threepid.service.js';

const services = [
  AccountMailer,
  EmailVerification,
  IdentityServer,
  MsisdnVerification,
  RequestTokenService,
  ThreepidService,
];

/** Mail addresses and telephone numbers of users. */
@Module({ imports: [UserHooksModule], providers: services, exports: services })
export class ThreepidsModule {}
