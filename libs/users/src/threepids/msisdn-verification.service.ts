import { Injectable } from '@nestjs/common';
import type { Tx } from '@rookery/database';
import { OutboundError, OutboundHttp, ownUrl, RateLimiter } from '@rookery/http';
import { errorOfOther, isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids, Logger, type RequestOrigin } from '@rookery/platform';
import { secretHash } from '../common/secrets.js';
import { canonicalMsisdn } from './addresses.js';
import { validationLifetimeMs } from './email-verification.service.js';
import { consumeRemoteProof } from './validation.query.js';
import { checkClientSecret, checkNextLink } from './verification-rules.js';

/** A client's wish to prove a phone number. */
export interface MsisdnRequest {
  readonly country: string;
  readonly phoneNumber: string;
  readonly clientSecret: string;
  readonly sendAttempt: number;
  readonly nextLink?: string | undefined;
}

/** A phone number that a client has proved. */
export interface ProvedMsisdn {
  /** In international form without a plus. */
  readonly address: string;
  readonly validatedMs: number;
  /** Stands for this proof, so that it is used once. */
  readonly proofHash: string;
}

const base = '/_matrix/identity/api/v1';

/** Proofs of phone numbers, which the identity server of `account_threepid_delegates.msisdn` makes for us. */
@Injectable()
export class MsisdnVerification {
  constructor(
    private readonly http: OutboundHttp,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly logger: Logger,
    private readonly limiter: RateLimiter,
  ) {}

  /** Whether numbers can be proved here. */
  get available(): boolean {
    return this.config.get('account_threepid_delegates.msisdn') !== undefined;
  }

  /**
   * Has a text message sent.
   * @returns what the client gets: the session and where to send the code
   * @throws MatrixError 400, 502
   */
  async request(request: MsisdnRequest): Promise<JsonObject> {
    const answer = await this.#ask('POST', '/validate/msisdn/requestToken', {
      country: request.country,
      phone_number: request.phoneNumber,
      client_secret: checkClientSecret(request.clientSecret),
      send_attempt: request.sendAttempt,
      next_link: checkNextLink(this.config, request.nextLink),
    });
    const { sid, msisdn, intl_fmt: formatted } = answer;
    if (typeof sid !== 'string') throw unreachable();
    return { sid, msisdn, intl_fmt: formatted, submit_url: this.#submitUrl() };
  }

  /** What {@link request} would look like to the client where nothing may be sent. */
  pretend(address: string): JsonObject {
    return { sid: this.ids.letters(16), msisdn: address, submit_url: this.#submitUrl() };
  }

  /**
   * Hands on the code that the user typed.
   * @returns what the identity server says of it
   * @throws MatrixError 400, 502; 429 for too many codes from one address, or for one session
   */
  async submit(sid: string, clientSecret: string, token: string, request: RequestOrigin): Promise<JsonObject> {
    checkClientSecret(clientSecret);
    this.#delegate();
    await this.limiter.take('rc_ui_auth', request.ip);
    // The secret stands for the session: its id can be guessed, for others to use up the tries, and some servers read it in several spellings.
    await this.limiter.take('rc_3pid_validation', `code:${secretHash(clientSecret)}`);
    const answer = await this.#ask('POST', '/validate/msisdn/submitToken', { sid, client_secret: clientSecret, token });
    return { success: answer['success'] === true };
  }

  /**
   * The number that a client has proved.
   * @throws MatrixError 401 `M_THREEPID_AUTH_FAILED` while it has not, and when that was too long ago; 502
   */
  async proved(sid: string, clientSecret: string): Promise<ProvedMsisdn> {
    const query = new URLSearchParams({ sid: sid.slice(0, 255), client_secret: checkClientSecret(clientSecret) });
    const answer = await this.#ask('GET', `/3pid/getValidated3pid?${query.toString()}`);
    const { medium, address: number, validated_at: validatedMs } = answer;
    if (
      medium !== 'msisdn' ||
      typeof number !== 'string' ||
      typeof validatedMs !== 'number' ||
      // Whether it was used is remembered for twice as long.
      this.clock.nowMs() - validatedMs > validationLifetimeMs
    )
      throw MatrixError.threepidNotProved('The number has not been proved');
    const address = canonicalMsisdn(number);
    // A session is one of a secret and a number. The id of it may be read in several spellings, each of which would be another proof.
    return { address, validatedMs, proofHash: secretHash(`${clientSecret}\n${address}`) };
  }

  /** Uses a proof up. @returns whether it had not been used */
  use(tx: Tx, proof: Pick<ProvedMsisdn, 'address' | 'proofHash'>): Promise<boolean> {
    return consumeRemoteProof(tx, proof.proofHash, 'msisdn', proof.address, this.clock.nowMs());
  }

  /** Who is asked. @throws MatrixError 400 where nobody is */
  #delegate(): string {
    const delegate = this.config.get('account_threepid_delegates.msisdn');
    if (delegate === undefined)
      throw MatrixError.threepidMediumNotSupported('Phone numbers cannot be proved on this server');
    return delegate;
  }

  #submitUrl(): string {
    return ownUrl(this.config, '_matrix/client/unstable/add_threepid/msisdn/submit_token');
  }

  /** Refusals of the identity server come back as what it says; anything else is 502. */
  async #ask(method: 'GET' | 'POST', path: string, json?: object): Promise<JsonObject> {
    const delegate = this.#delegate();
    try {
      const { status, body } = await this.http.request({
        method,
        url: `${delegate.replace(/\/$/, '')}${base}${path}`,
        headers: { 'content-type': 'application/json', accept: 'application/json' },
        ...(json === undefined ? {} : { body: JSON.stringify(json) }),
        timeoutMs: 20_000,
        maxBytes: 65_536,
        maxRedirects: 0,
        operatorsChoice: true,
      });
      const answer: unknown = JSON.parse(body.toString('utf8'));
      if (!isJsonObject(answer)) throw unreachable();
      if (status >= 400 && status < 500) throw refusal(answer);
      if (status !== 200) throw unreachable();
      return answer;
    } catch (error) {
      if (MatrixError.is(error)) throw error;
      if (!(error instanceof OutboundError) && !(error instanceof SyntaxError)) throw error;
      this.logger.warn('The identity server for phone numbers cannot be used', { err: error });
      throw unreachable();
    }
  }
}

const unreachable = (): MatrixError => MatrixError.identityServerSilent();

function refusal(answer: JsonObject): MatrixError {
  const message = 'The identity server refused';
  return errorOfOther(400, answer['errcode'], message) ?? MatrixError.badRequest(message);
}
