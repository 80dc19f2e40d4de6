import { Injectable } from '@nestjs/common';
import type { Tx } from '@rookery/database';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { EmailVerification } from '../threepids/email-verification.service.js';
import { MsisdnVerification } from '../threepids/msisdn-verification.service.js';
import { UiaService } from './uia.service.js';
import type { StageAttempt, UiaStage } from './uia-stage.js';

/** The proof that a client refers to. */
export function threepidCredentials(auth: JsonObject): { sid: string; clientSecret: string } {
  const creds = auth['threepid_creds'] ?? auth['threepidCreds'] ?? auth['three_pid_creds'] ?? auth['threePidCreds'];
  if (!isJsonObject(creds)) throw MatrixError.missingParam("Missing 'threepid_creds'");
  const { sid, client_secret: clientSecret } = creds;
  if (typeof sid !== 'string' || typeof clientSecret !== 'string')
    throw MatrixError.missingParam("'threepid_creds' needs 'sid' and 'client_secret'");
  return { sid, clientSecret };
}

/** `m.login.email.identity`: an address that was proved; the proof is used up. */
class EmailStage implements UiaStage {
  readonly type = 'm.login.email.identity';
  constructor(private readonly verification: EmailVerification) {}

  async check({ auth, purpose }: StageAttempt): Promise<unknown> {
    const { sid, clientSecret } = threepidCredentials(auth);
    // A proof counts for what its mail said that it is for.
    const proved = await this.verification.proved(sid, clientSecret, purpose ?? 'registration');
    return { medium: 'email', address: proved.address, validated_at: proved.validatedMs, sid: proved.sid };
  }

  accept(tx: Tx, result: unknown): Promise<boolean> {
    return this.verification.use(tx, (result as { sid: string }).sid);
  }
}

/** `m.login.msisdn`: a phone number that was proved, which another server is asked about; the proof is used up. */
class MsisdnStage implements UiaStage {
  readonly type = 'm.login.msisdn';
  readonly failures = 'rc_ui_auth';
  constructor(private readonly verification: MsisdnVerification) {}

  async check({ auth }: StageAttempt): Promise<unknown> {
    const { sid, clientSecret } = threepidCredentials(auth);
    const proved = await this.verification.proved(sid, clientSecret);
    return { medium: 'msisdn', address: proved.address, validated_at: proved.validatedMs, proofHash: proved.proofHash };
  }

  accept(tx: Tx, result: unknown): Promise<boolean> {
    return this.verification.use(tx, result as { address: string; proofHash: string });
  }
}

/** Puts the stages of addresses in place. */
@Injectable()
export class ThreepidStages {
  constructor(uia: UiaService, emails: EmailVerification, numbers: MsisdnVerification) {
    uia.addStage(new EmailStage(emails));
    uia.addStage(new MsisdnStage(numbers));
  }
}
