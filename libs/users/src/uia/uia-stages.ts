import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config } from '@rookery/platform';
import { ModuleLogin } from '../login/module-login.js';
import { PasswordLogin } from '../login/password-login.js';
import { CaptchaVerifier } from './captcha-verifier.js';
import {
  DummyStage,
  ModuleStage,
  PasswordStage,
  RecaptchaStage,
  RegistrationTokenStage,
  TermsStage,
} from './stages.js';
import { UiaService } from './uia.service.js';

/** Puts the stages of this lib in place, but those of addresses. */
@Injectable()
export class UiaStages {
  constructor(
    uia: UiaService,
    database: Database,
    clock: Clock,
    config: Config,
    logins: PasswordLogin,
    byModules: ModuleLogin,
    captchas: CaptchaVerifier,
  ) {
    uia.addStage(new DummyStage());
    uia.addStage(new PasswordStage(logins));
    uia.addStage(new RegistrationTokenStage(database, clock));
    uia.addStage(new TermsStage(config));
    uia.addStage(new RecaptchaStage(config, captchas));
    uia.addStages((type) => (byModules.has(type) ? new ModuleStage(type, byModules) : undefined));
  }
}
