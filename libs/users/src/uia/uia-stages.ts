import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config } from '@rookery/platform';
import { PasswordLogin } from '../sessions/password-login.js';
import { DummyStage, PasswordStage, RegistrationTokenStage, TermsStage } from './stages.js';
import { UiaService } from './uia.service.js';

/** Puts the stages of this lib in place. */
@Injectable()
export class UiaStages {
  constructor(uia: UiaService, database: Database, clock: Clock, config: Config, logins: PasswordLogin) {
    uia.addStage(new DummyStage());
    uia.addStage(new PasswordStage(logins));
    uia.addStage(new RegistrationTokenStage(database, clock));
    uia.addStage(new TermsStage(config));
  }
}
