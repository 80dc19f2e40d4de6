import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type Infer, json } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { RenewalResult } from '@rookery/module-api';
import { Clock, Config } from '@rookery/platform';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { secretHash } from '../common/secrets.js';
import { findAccount } from '../store/account.query.js';
import { findByRenewalToken, holdRenewalToken, type RenewalLink, renewByToken } from './account-validity.query.js';
import { AccountValidity } from './account-validity.js';
import { RenewalMails } from './renewal-mails.js';

/** What an administrator asks for; other keys are for modules. */
const renewalBody = json.object({
  user_id: json.optional(
    'Whose account it is; it must be there, unless a module renews accounts by itself.',
    json.string(),
  ),
  expiration_ts: json.optional(
    'When the account ends, ms since the epoch; a period from now unless given.',
    json.integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  ),
  enable_renewal_emails: json.optional(
    'Whether the user is reminded by mail; it is so unless this is `false`.',
    json.boolean(),
  ),
});

/** How accounts that expire are renewed: by the links of mails, by `account_validity` or a module. */
@Injectable()
export class AccountRenewal {
  /** The body of what {@link renewByAdmin} takes. */
  static readonly request = renewalBody;

  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly config: Config,
    private readonly validity: AccountValidity,
    private readonly mails: RenewalMails,
    private readonly modules: AccountModules,
  ) {}

  /**
   * Mails a user who asks for it.
   * @throws MatrixError 404 `M_UNRECOGNIZED` where accounts do not expire, 400 `M_UNKNOWN` where no mail can be sent
   */
  async sendMail(userId: string, origin: Origin): Promise<void> {
    if (await this.modules.legacySendMail(userId, origin)) return;
    if (!this.config.get('account_validity.enabled')) throw MatrixError.unrecognized();
    if (!(await this.mails.tell(userId, true))) throw MatrixError.badRequest('There is no address to write to');
  }

  /**
   * Follows a renewal link.
   * @throws MatrixError 404 `M_UNRECOGNIZED` where accounts do not expire
   */
  async renew(token: string, origin: Origin): Promise<RenewalResult> {
    const byModule = await this.modules.legacyRenew(token, origin);
    if (byModule) return byModule;
    if (!this.config.get('account_validity.enabled')) throw MatrixError.unrecognized();
    const nowMs = this.clock.nowMs();
    const hash = secretHash(token);
    // Rubbish is turned away before it costs a transaction, and so is a link that was followed before.
    const known = await findByRenewalToken(this.database, hash);
    if (!isUnused(known)) return refusalOf(known);
    return this.database.write(
      async (tx) => {
        await holdRenewalToken(tx, hash);
        const found = await findByRenewalToken(tx, hash);
        if (!isUnused(found)) return refusalOf(found);
        const expirationTs = nowMs + (this.config.get('account_validity.period') ?? 0);
        this.validity.changes(tx, found.user_id);
        await renewByToken(tx, hash, expirationTs, nowMs);
        return { valid: true, stale: false, expirationTs };
      },
      { name: 'account_renewal' },
    );
  }

  /**
   * Lets an account live on at an administrator's word, or a module's in its place.
   * @param body as it was sent: `user_id`, `expiration_ts`, `enable_renewal_emails`
   * @returns when it expires now, milliseconds since the epoch
   * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM`; 404 `M_NOT_FOUND`
   */
  async renewByAdmin(body: Infer<typeof renewalBody>, origin: Origin): Promise<number> {
    const byModule = await this.modules.legacyAdminRequest(body, origin);
    if (byModule !== undefined) return byModule;
    const { user_id: userId, expiration_ts: expirationTs, enable_renewal_emails: mails = true } = body;
    if (userId === undefined) throw MatrixError.missingParam("Missing parameter 'user_id'");
    if (userId.includes('\0')) throw MatrixError.invalidParam("'user_id' must be a user id");
    const expiresMs = expirationTs ?? this.validity.initialExpiryMs();
    if (expiresMs === undefined) throw MatrixError.missingParam("Missing parameter 'expiration_ts'");
    if (!(await findAccount(this.database, userId))) throw MatrixError.noSuchUser();
    await this.validity.extend(userId, expiresMs, !mails);
    return expiresMs;
  }
}

/** The link of a mail renews once: whoever finds it later must not. */
const isUnused = (link: RenewalLink | undefined): link is RenewalLink => link?.token_used_ts_ms === null;

const refusalOf = (link: RenewalLink | undefined): RenewalResult => ({
  ...{ valid: false, stale: link !== undefined },
  expirationTs: link?.expiration_ts_ms ?? 0,
});
