import { Injectable } from '@nestjs/common';
import { ownUrl } from '@rookery/http';
import { Database, type Tx } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { Clock, Config, Ids } from '@rookery/platform';
import { newSecret, secretHash } from '../common/secrets.js';
import { AccountMailer } from './account-mailer.js';
import { checkClientSecret, checkNextLink } from './verification-rules.js';
import {
  consumeSession,
  findSession,
  findSessionOf,
  findToken,
  insertToken,
  upsertSession,
  validate,
} from './validation.query.js';

/** What a proved address is for: decides the mail and its link. */
export type EmailPurpose = 'registration' | 'add_threepid' | 'password_reset';

/** A client's wish to prove an address. */
export interface EmailRequest {
  readonly purpose: EmailPurpose;
  /** In canonical form. */
  readonly address: string;
  readonly clientSecret: string;
  /** A mail is sent again only when this is higher than before. */
  readonly sendAttempt: number;
  readonly nextLink?: string | undefined;
}

/** An address that a client has proved. */
export interface ProvedEmail {
  readonly sid: string;
  readonly address: string;
  readonly validatedMs: number;
}

/** How long a proof can be used, once it is begun. */
export const validationLifetimeMs = 24 * 3_600_000;

const paths: Readonly<Record<EmailPurpose, string>> = {
  registration: '_matrix/client/unstable/registration/email/submit_token',
  add_threepid: '_matrix/client/unstable/add_threepid/email/submit_token',
  password_reset: '_synapse/client/password_reset/email/submit_token',
};

/**
 * Proofs of email addresses: a mail with a link, the link followed, the proof used once. The database holds hashes of what
 * the client and the link know.
 */
@Injectable()
export class EmailVerification {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly mailer: AccountMailer,
  ) {}

  /** Whether addresses can be proved here. */
  get available(): boolean {
    return this.mailer.enabled;
  }

  /**
   * Sends the mail.
   * @returns the id of the session
   * @throws MatrixError 400 `M_INVALID_PARAM`
   */
  request(request: EmailRequest): Promise<string> {
    const nextLink = checkNextLink(this.config, request.nextLink);
    return this.#begin(request, async (tx, sessionId) => {
      const token = newSecret(this.ids, 'mail');
      await insertToken(
        tx,
        secretHash(token),
        sessionId,
        nextLink,
        this.clock.nowMs() + this.config.get('email.validation_token_lifetime'),
      );
      const query = { token, client_secret: request.clientSecret, sid: sessionId };
      await this.mailer.queueLink(
        tx,
        request.purpose,
        request.address,
        ownUrl(this.config, paths[request.purpose], query),
      );
    });
  }

  /**
   * What {@link request} would look like to the client where no link may be sent, so that it does not tell whether an
   * address is known.
   * @param tell write to the address that somebody tried to use it
   */
  pretend(request: EmailRequest, tell: boolean): Promise<string> {
    checkNextLink(this.config, request.nextLink);
    return this.#begin(request, async (tx) => {
      if (tell) await this.mailer.queueAlreadyInUse(tx, request.address);
    });
  }

  /**
   * Follows a link: the address is proved.
   * @returns where to send the browser, when the client wanted that
   * @throws MatrixError 400 `M_THREEPID_AUTH_FAILED` (unknown), `M_TOKEN_INCORRECT`, `M_TOKEN_EXPIRED`
   */
  async submit(sid: string, clientSecret: string, token: string): Promise<string | undefined> {
    const { nextLink } = await this.#checkLink(sid, clientSecret, token);
    await this.database.write((tx) => validate(tx, sid, this.clock.nowMs()), { name: 'email_validated' });
    return nextLink;
  }

  /**
   * The address that a client has proved for a purpose.
   * @throws MatrixError 401 `M_THREEPID_AUTH_FAILED` while it has not
   */
  async proved(sid: string, clientSecret: string, purpose: EmailPurpose): Promise<ProvedEmail> {
    const session = isClean(sid) ? await findSession(this.database, sid, secretHash(clientSecret)) : undefined;
    if (
      !session ||
      session.medium !== 'email' ||
      session.purpose !== purpose ||
      session.validatedMs === undefined ||
      this.clock.nowMs() - session.validatedMs > validationLifetimeMs
    ) {
      throw MatrixError.threepidNotProved('The address has not been proved');
    }
    return { sid: session.sessionId, address: session.address, validatedMs: session.validatedMs };
  }

  /** Whether a proof of an email address was begun, by whoever knows its secret. */
  async isBegun(sid: string, clientSecret: string): Promise<boolean> {
    return isClean(sid) && (await findSession(this.database, sid, secretHash(clientSecret))) !== undefined;
  }

  /** Whether a link leads somewhere. @throws MatrixError 400 like {@link submit} */
  async check(sid: string, clientSecret: string, token: string): Promise<void> {
    await this.#checkLink(sid, clientSecret, token);
  }

  /** Uses a proof up. @returns whether it was still there */
  use(tx: Tx, sid: string): Promise<boolean> {
    return consumeSession(tx, sid);
  }

  async #checkLink(sid: string, clientSecret: string, token: string): Promise<{ nextLink: string | undefined }> {
    const session = isClean(sid) ? await findSession(this.database, sid, secretHash(clientSecret)) : undefined;
    if (!session) throw MatrixError.threepidAuthFailed('This link is not known here');
    const row = await findToken(this.database, secretHash(token), session.sessionId);
    if (!row) throw MatrixError.tokenIncorrect();
    if (row.expires <= this.clock.nowMs()) throw MatrixError.tokenExpired();
    return { nextLink: row.next_link ?? undefined };
  }

  /** Notes an attempt, and sends what belongs to it unless a mail was sent for it before. */
  async #begin(request: EmailRequest, send: (tx: Tx, sessionId: string) => Promise<void>): Promise<string> {
    const hash = secretHash(checkClientSecret(request.clientSecret));
    const { address, purpose, sendAttempt } = request;
    const nowMs = this.clock.nowMs();
    const known = await findSessionOf(this.database, hash, { medium: 'email', address, purpose });
    const live = known && nowMs - known.createdMs < validationLifetimeMs ? known : undefined;
    // A complete proof is not started over: the client is repeating itself.
    if (live && (sendAttempt <= live.lastSendAttempt || live.validatedMs !== undefined)) return live.sessionId;
    const sessionId = live?.sessionId ?? this.ids.letters(24);
    await this.database.write(
      async (tx) => {
        await upsertSession(tx, hash, {
          sessionId,
          medium: 'email',
          address,
          purpose,
          lastSendAttempt: sendAttempt,
          createdMs: nowMs,
        });
        await send(tx, sessionId);
      },
      { name: 'email_validation' },
    );
    return sessionId;
  }
}

/** Ids that we make have letters only; what has not would find nothing, or upset the database. */
const isClean = (sid: string): boolean => /^[A-Za-z]{1,255}$/.test(sid);
