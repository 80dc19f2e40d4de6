import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database, isTransient } from '@rookery/database';
import { ownUrl } from '@rookery/http';
import { BackgroundTasks, Clock, Config, Ids, Logger } from '@rookery/platform';
import { isMailAddress } from '@rookery/templates';
import { newSecret, secretHash } from '../common/secrets.js';
import { findProfile } from '../profiles/profile.query.js';
import { AccountMailer } from '../threepids/account-mailer.js';
import { threepidsOf } from '../threepids/threepid.query.js';
import { type ExpiringAccount, findExpiry, findUntold, markTold, setRenewalToken } from './account-validity.query.js';

const lookEveryMs = 30 * 60_000;
/** Accounts looked for at a time. */
const batchSize = 100;

/** Mails that ask users to renew accounts about to expire. */
@Injectable()
export class RenewalMails implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly mailer: AccountMailer,
    private readonly tasks: BackgroundTasks,
    private readonly logger: Logger,
  ) {}

  onModuleInit(): void {
    if (
      !this.config.get('account_validity.enabled') ||
      this.config.get('account_validity.renew_at') === undefined ||
      !this.mailer.enabled
    )
      return;
    const run = (signal: AbortSignal): Promise<void> => this.tellExpiring(signal);
    this.tasks.add({ name: 'tell_of_expiring_accounts', role: 'writer', everyMs: lookEveryMs, run }).start();
  }

  /** Mails all users whose accounts are about to expire, unless it is cut short. One for whom that fails keeps nobody else from it. */
  async tellExpiring(signal?: AbortSignal): Promise<void> {
    if (!this.mailer.enabled) return;
    const beforeMs = this.clock.nowMs() + (this.config.get('account_validity.renew_at') ?? 0);
    let after: ExpiringAccount | undefined;
    do {
      const untold: ExpiringAccount[] = await findUntold(this.database, beforeMs, after, batchSize);
      for (const { user_id: userId } of untold) {
        if (signal?.aborted) return;
        await this.#tellOrLog(userId);
      }
      after = untold.length < batchSize ? undefined : untold.at(-1);
    } while (after);
  }

  async #tellOrLog(userId: string): Promise<void> {
    try {
      await this.tell(userId, false);
    } catch (error) {
      if (isTransient(error)) throw error;
      this.logger.error('A user could not be told that the account expires', { userId, err: error });
    }
  }

  /**
   * Mails one user, at each of their addresses to which mails can be written. Who has none counts as told.
   * @param again mail also who was told before
   * @returns whether there was somewhere to write to
   */
  async tell(userId: string, again: boolean): Promise<boolean> {
    if (!this.mailer.enabled) return false;
    const addresses = (await threepidsOf(this.database, userId)).filter(
      ({ medium, address }) => medium === 'email' && isMailAddress(address),
    );
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
