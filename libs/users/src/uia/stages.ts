import { ownUrl } from '@rookery/http';
import type { Database, Tx } from '@rookery/database';
import { isJsonObject, MatrixError } from '@rookery/matrix-types';
import type { Clock, Config } from '@rookery/platform';
import { abandonUse, beginUse, findRegistrationToken, isUsable } from '../store/registration-token.query.js';
import type { ModuleLogin } from '../login/module-login.js';
import type { PasswordLogin } from '../login/password-login.js';
import type { CaptchaVerifier } from './captcha-verifier.js';
import { OtherUserProved } from './uia-errors.js';
import type { StageAttempt, UiaStage } from './uia-stage.js';

/** `m.login.dummy`: nothing to prove. */
export class DummyStage implements UiaStage {
  readonly type = 'm.login.dummy';
  async check(): Promise<unknown> {
    return true;
  }
}

/** `m.login.password`: the logged-in user's own password. */
export class PasswordStage implements UiaStage {
  readonly type = 'm.login.password';
  constructor(private readonly logins: PasswordLogin) {}

  async check({ auth, userId, request }: StageAttempt): Promise<unknown> {
    if (userId === undefined) throw MatrixError.forbidden('There is nobody whose password could be checked');
    const proved = await this.logins.checkOwn(userId, auth, request);
    if (proved !== userId) throw new OtherUserProved();
    return proved;
  }
}

/** A login type that a module checks. */
export class ModuleStage implements UiaStage {
  constructor(
    readonly type: string,
    private readonly proofs: ModuleLogin,
  ) {}

  async check({ auth, userId, request }: StageAttempt): Promise<unknown> {
    if (userId === undefined) throw MatrixError.forbidden('There is nobody who could prove anything');
    const proved = await this.proofs.proveOwn(userId, this.type, auth, request);
    if (proved !== userId) throw new OtherUserProved();
    return proved;
  }
}

/** `m.login.registration_token`: a token that an administrator gave away. */
export class RegistrationTokenStage implements UiaStage {
  readonly type = 'm.login.registration_token';
  readonly failures = 'rc_registration_token_validity';
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
  ) {}

  async check({ auth }: StageAttempt): Promise<unknown> {
    const token = auth['token'];
    if (typeof token !== 'string') throw MatrixError.missingParam("Missing 'token'");
    const found =
      token.length > 64 || token.includes('\0') ? undefined : await findRegistrationToken(this.database, token);
    if (!found || !isUsable(found, this.clock.nowMs()))
      throw MatrixError.unauthorized('Unknown or used-up registration token');
    return token;
  }

  /** Holds one use of the token until the registration is complete or the session expires. */
  accept(tx: Tx, result: unknown): Promise<boolean> {
    return beginUse(tx, result as string, this.clock.nowMs());
  }

  release(tx: Tx, result: unknown): Promise<void> {
    return abandonUse(tx, result as string);
  }
}

/** `m.login.terms`: agreeing to the server's policies. */
export class TermsStage implements UiaStage {
  readonly type = 'm.login.terms';
  constructor(private readonly config: Config) {}

  params(): object | undefined {
    const version = this.config.get('user_consent.version');
    if (version === undefined) return undefined;
    const url = ownUrl(this.config, '_matrix/consent', { v: version });
    return {
      policies: { privacy_policy: { version, en: { name: this.config.get('user_consent.policy_name'), url } } },
    };
  }

  async check(): Promise<unknown> {
    return true;
  }
}

/** `m.login.recaptcha`. */
export class RecaptchaStage implements UiaStage {
  readonly type = 'm.login.recaptcha';
  readonly failures = 'rc_ui_auth';
  constructor(
    private readonly config: Config,
    private readonly verifier: CaptchaVerifier,
  ) {}

  params(): object | undefined {
    return { public_key: this.config.get('recaptcha_public_key') };
  }

  async check({ auth, request }: StageAttempt): Promise<unknown> {
    const { response } = auth;
    if (typeof response !== 'string' || response === '') throw MatrixError.captchaNeeded();
    if (response.length > 10_000 || !(await this.verifier.verify(response, request.ip)))
      throw MatrixError.captchaInvalid();
    return true;
  }
}

/** An address that was proved in a stage. */
export interface ProvedAddress {
  readonly medium: string;
  readonly address: string;
  /** Milliseconds. */
  readonly validated_at: number;
}

/** Reads a stage's result back. */
export function provedAddress(result: unknown): ProvedAddress | undefined {
  return isJsonObject(result) &&
    typeof result['medium'] === 'string' &&
    typeof result['address'] === 'string' &&
    typeof result['validated_at'] === 'number'
    ? (result as unknown as ProvedAddress)
    : undefined;
}
