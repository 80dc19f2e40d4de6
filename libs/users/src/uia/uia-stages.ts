import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config } from '@rookery/platform';
import { AccountModules } from '../common/account-modules.js';
import { LoginProofs } from '../login/login-proofs.js';
import { PasswordLogin } from '../login/password-login.js';
import { EmailVerification } from '../threepids/email-verification.service.js';
import { MsisdnVerification } from '../threepids/msisdn-verification.service.js';
import { CaptchaVerifier } from './captcha-verifier.js';
import {
  DummyStage,
  ModuleStage,
  PasswordStage,
  RecaptchaStage,
  RegistrationTokenStage,
  TermsStage,
} from './stages.js';
import { EmailStage, MsisdnStage } from './threepid-stages.js';
import { UiaService } from './uia.service.js';

/** Puts the stages of this lib in place. */
@Injectable()
export class UiaStages {
  constructor(
    uia: UiaService,
    database: Database,
    clock: Clock,
    config: Config,
    logins: PasswordLogin,
    proofs: LoginProofs,
    modules: AccountModules,
    captchas: CaptchaVerifier,
    emails: EmailVerification,
    numbers: MsisdnVerification,
  ) {
    uia.addStage(new DummyStage());
    uia.addStage(new PasswordStage(logins));
    uia.addStage(new RegistrationTokenStage(database, clock));
    uia.addStage(new TermsStage(config));
    uia.addStage(new RecaptchaStage(config, captchas));
    uia.addStage(new EmailStage(emails));
    uia.addStage(new MsisdnStage(numbers));
    uia.addStages((type) => (modules.loginTypes.has(type) ? new ModuleStage(type, proofs) : undefined));
  }
}
