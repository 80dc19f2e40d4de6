import { Injectable, type OnModuleInit } from '@nestjs/common';
import { ownUrl } from '@rookery/http';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { RenewalResult } from '@rookery/module-api';
import { BackgroundTasks, Clock, Config, Ids } from '@rookery/platform';
import { AccountModules, type Origin } from '../common/account-modules.js';
import { newSecret, secretHash } from '../common/secrets.js';
import { findProfile } from '../profiles/profile.query.js';
import { AccountMailer } from '../threepids/account-mailer.js';
import { threepidsOf } from '../threepids/threepid.query.js';
import { findAccount } from '../store/account.query.js';
import {
  findByRenewalToken,
  findExpiry,
  findUntold,
  markTold,
  renewByToken,
  setRenewalToken,
} from './account-validity.query.js';
import { AccountValidity } from './account-validity.js';

const lookEveryMs = 30 * 60_000;
/** Accounts told in one look. */
const batchSize = 100;

/** Mails that ask users to renew accounts about to expire, and what their links do; by `account_validity` or a module. */
@Injectable()
export class AccountRenewal implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly validity: AccountValidity,
    private readonly mailer: AccountMailer,
    private readonly modules: AccountModules,
    private readonly tasks: BackgroundTasks,
  ) {}

  onModuleInit(): void {
    if (
      !this.config.get('account_validity.enabled') ||
      this.config.get('account_validity.renew_at') === undefined ||
      !this.mailer.enabled
    )
      return;
    const run = (): Promise<void> => this.tellExpiring();
    this.tasks.add({ name: 'tell_of_expiring_accounts', role: 'background', everyMs: lookEveryMs, run }).start();
  }

  /** Mails all users whose accounts are about to expire. */
  async tellExpiring(): Promise<void> {
    const beforeMs = this.clock.nowMs() + (this.config.get('account_validity.renew_at') ?? 0);
    for (const { user_id: userId } of await findUntold(this.database, beforeMs, batchSize))
      await this.#tell(userId, false);
  }

  /**
   * Mails a user who asks for it.
   * @throws MatrixError 404 `M_UNRECOGNIZED` where accounts do not expire, 400 `M_UNKNOWN` where no mail can be sent
   */
  async sendMail(userId: string, origin: Origin): Promise<void> {
    if (await this.modules.legacySendMail(userId, origin)) return;
    if (!this.config.get('account_validity.enabled')) throw MatrixError.unrecognized();
    if (!this.mailer.enabled || !(await this.#tell(userId, true)))
      throw MatrixError.badRequest('There is no address to write to');
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
    const { userId, ...result } = await this.database.write(
      async (tx) => {
        const found = await findByRenewalToken(tx, hash);
        if (!found) return { valid: false, stale: false, expirationTs: 0 };
        // The link of a mail renews once: whoever finds it later must not.
        if (found.token_used_ts_ms !== null) return { valid: false, stale: true, expirationTs: found.expiration_ts_ms };
        const expirationTs = nowMs + (this.config.get('account_validity.period') ?? 0);
        await renewByToken(tx, hash, expirationTs, nowMs);
        return { valid: true, stale: false, expirationTs, userId: found.user_id };
      },
      { name: 'account_renewal' },
    );
    if (userId !== undefined) this.validity.forget(userId);
    return result;
  }

  /**
   * Lets an account live on at an administrator's word, or a module's in its place.
   * @param body as it was sent: `user_id`, `expiration_ts`, `enable_renewal_emails`
   * @returns when it expires now, milliseconds since the epoch
   * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM`; 404 `M_NOT_FOUND`
   */
  async renewByAdmin(body: JsonObject, origin: Origin): Promise<number> {
    const byModule = await this.modules.legacyAdminRequest(body, origin);
    if (byModule !== undefined) return byModule;
    const { user_id: userId, expiration_ts: expirationTs, enable_renewal_emails: mails = true } = body;
    if (userId === undefined) throw MatrixError.missingParam("Missing parameter 'user_id'");
    if (typeof userId !== 'string' || userId.includes('\0'))
      throw MatrixError.invalidParam("'user_id' must be a user id");
    if (typeof mails !== 'boolean') throw MatrixError.invalidParam("'enable_renewal_emails' must be true or false");
    const expiresMs = expirationTs ?? this.validity.initialExpiryMs();
    if (expiresMs === undefined) throw MatrixError.missingParam("Missing parameter 'expiration_ts'");
    if (typeof expiresMs !== 'number' || !Number.isSafeInteger(expiresMs) || expiresMs < 0)
      throw MatrixError.invalidParam("'expiration_ts' must be a time in milliseconds");
    if (!(await findAccount(this.database, userId))) throw MatrixError.noSuchUser();
    await this.validity.extend(userId, expiresMs, !mails);
    return expiresMs;
  }

  /**
   * @param again mail also who was told before
   * @returns whether the user has an address
   */
  async #tell(userId: string, again: boolean): Promise<boolean> {
    const addresses = (await threepidsOf(this.database, userId)).filter((one) => one.medium === 'email');
    const expiresMs = await findExpiry(this.database, userId);
    const displayName = (await findProfile(this.database, userId))?.displayname ?? userId;
    const token = newSecret(this.ids, 'renew');
    const url = ownUrl(this.config, '_matrix/client/unstable/account_validity/renew', { token });
    await this.database.write(
      async (tx) => {
        const isFirst = await markTold(tx, userId);
        if (addresses.length === 0 || expiresMs === undefined || (!isFirst && !again)) return;
        await setRenewalToken(tx, userId, secretHash(token));
        for (const { address } of addresses)
          await this.mailer.queueExpiry(tx, address, { display_name: displayName, expiration_ts: expiresMs, url });
      },
      { name: 'account_renewal_mail' },
    );
    return addresses.length > 0 && expiresMs !== undefined;
  }
}
