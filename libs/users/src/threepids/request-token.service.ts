import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type Infer, json, RateLimiter } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config, Metrics, type RequestOrigin } from '@rookery/platform';
import { findAccount } from '../store/account.query.js';
import { AccountModules } from '../common/account-modules.js';
import { canonicalEmail, canonicalPhone } from './addresses.js';
import { type EmailPurpose, EmailVerification } from './email-verification.service.js';
import { MsisdnVerification } from './msisdn-verification.service.js';
import { checkAllowedThreepid } from './threepid-rules.js';
import { userOfThreepid } from './threepid.query.js';

const text = json.string({ maxLength: 2000 });
const common = {
  client_secret: json.required('A secret that the client has drawn; it names the session together with its id.', text),
  send_attempt: json.required(
    'Counts attempts: the same number does not send again.',
    json.integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  ),
  next_link: json.optional('Where the browser goes when the link of the message was followed.', json.nullable(text)),
};

/** The body of every `requestToken` endpoint for email. */
export const emailTokenSchema = json.object({ ...common, email: json.required('The email address.', text) });
export type EmailTokenBody = Infer<typeof emailTokenSchema>;

/** The body of every `requestToken` endpoint for phone numbers. */
export const msisdnTokenSchema = json.object({
  ...common,
  country: json.required('The country that the number is dialled from, two letters.', text),
  phone_number: json.required('The telephone number.', text),
});
export type MsisdnTokenBody = Infer<typeof msisdnTokenSchema>;

/** What dashboards call the purposes. */
const reasons: Readonly<Record<EmailPurpose, string>> = {
  registration: 'register',
  add_threepid: 'add_threepid',
  password_reset: 'password_reset',
};

/** Begins proofs of addresses: whether the address may be proved for that purpose, and how often. */
@Injectable()
export class RequestTokenService {
  readonly #tries;

  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly emails: EmailVerification,
    private readonly numbers: MsisdnVerification,
    private readonly modules: AccountModules,
    private readonly limiter: RateLimiter,
    metrics: Metrics,
  ) {
    this.#tries = metrics.histogram('synapse_threepid_send_requests_with_tries');
  }

  /**
   * Has a mail sent to an address.
   * @throws MatrixError 400 `M_THREEPID_IN_USE`, `M_THREEPID_NOT_FOUND`, unless the settings hide them; 403
   *   `M_THREEPID_DENIED`, `M_FORBIDDEN`; 429
   */
  async forEmail(purpose: EmailPurpose, body: EmailTokenBody, request: RequestOrigin): Promise<JsonObject> {
    this.#assertAllowed(purpose);
    if (!this.emails.available)
      throw MatrixError.threepidMediumNotSupported('Email addresses cannot be proved on this server');
    const address = canonicalEmail(body.email);
    await this.#check(purpose, 'email', address, request);
    const asked = {
      purpose,
      address,
      clientSecret: body.client_secret,
      sendAttempt: body.send_attempt,
      nextLink: body.next_link ?? undefined,
    };
    const refusal = await this.#refusal(purpose, 'email', address);
    if (!refusal) {
      const sid = await this.emails.request(asked);
      this.#tries.observe({ type: 'email', reason: reasons[purpose] }, body.send_attempt);
      return { sid };
    }
    if (!this.config.get('request_token_inhibit_3pid_errors')) throw refusal;
    return { sid: await this.emails.pretend(asked, purpose !== 'password_reset') };
  }

  /** Has a text message sent to a number. @throws MatrixError as {@link forEmail} */
  async forMsisdn(purpose: EmailPurpose, body: MsisdnTokenBody, request: RequestOrigin): Promise<JsonObject> {
    this.#assertAllowed(purpose);
    if (!this.numbers.available)
      throw MatrixError.threepidMediumNotSupported('Phone numbers cannot be proved on this server');
    const address = canonicalPhone(body.country, body.phone_number);
    await this.#check(purpose, 'msisdn', address, request);
    const refusal = await this.#refusal(purpose, 'msisdn', address);
    if (refusal && !this.config.get('request_token_inhibit_3pid_errors')) throw refusal;
    if (refusal) return this.numbers.pretend(address);
    const answer = await this.numbers.request({
      country: body.country,
      phoneNumber: body.phone_number,
      clientSecret: body.client_secret,
      sendAttempt: body.send_attempt,
      nextLink: body.next_link ?? undefined,
    });
    this.#tries.observe({ type: 'msisdn', reason: reasons[purpose] }, body.send_attempt);
    return answer;
  }

  #assertAllowed(purpose: EmailPurpose): void {
    if (purpose === 'add_threepid' && !this.config.get('enable_3pid_changes'))
      throw MatrixError.forbidden('Addresses cannot be changed on this server');
    if (purpose === 'registration' && !this.config.get('enable_registration'))
      throw MatrixError.forbidden('Registration is disabled on this server');
    if (
      purpose === 'password_reset' &&
      (!this.config.get('password_config.localdb_enabled') || this.config.get('password_config.enabled') === false)
    ) {
      throw MatrixError.forbidden('Passwords cannot be changed on this server');
    }
  }

  async #check(purpose: EmailPurpose, medium: string, address: string, request: RequestOrigin): Promise<void> {
    await this.limiter.take('rc_3pid_validation', request.ip);
    await this.limiter.take('rc_3pid_validation', `${medium}:${address}`);
    if (purpose === 'password_reset') return;
    checkAllowedThreepid(this.config, medium, address);
    await this.modules.checkThreepid(medium, address, purpose === 'registration', { request });
  }

  /** Why no proof may begin, which tells whether somebody has an account. */
  async #refusal(purpose: EmailPurpose, medium: string, address: string): Promise<MatrixError | undefined> {
    const userId = await userOfThreepid(this.database, medium, address);
    if (purpose !== 'password_reset')
      return userId === undefined ? undefined : MatrixError.threepidInUse('This address belongs to an account');
    const account = userId === undefined ? undefined : await findAccount(this.database, userId);
    return account && !account.deactivated
      ? undefined
      : MatrixError.threepidNotFound('This address belongs to no account');
  }
}
