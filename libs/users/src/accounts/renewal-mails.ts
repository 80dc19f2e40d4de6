import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { ownUrl } from '@rookery/http';
import { BackgroundTasks, Clock, Config, Ids } from '@rookery/platform';
import { newSecret, secretHash } from '../common/secrets.js';
import { findProfile } from '../profiles/profile.query.js';
import { AccountMailer } from '../threepids/account-mailer.js';
import { threepidsOf } from '../threepids/threepid.query.js';
import { findExpiry, findUntold, markTold, setRenewalToken } from './account-validity.query.js';

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

  /** Mails all users whose accounts are about to expire, unless it is cut short. */
  async tellExpiring(signal?: AbortSignal): Promise<void> {
    if (!this.mailer.enabled) return;
    const beforeMs = this.clock.nowMs() + (this.config.get('account_validity.renew_at') ?? 0);
    for (;;) {
      const untold = await findUntold(this.database, beforeMs, batchSize);
      // Each is told, or has no address and counts as told: none comes twice.
      for (const { user_id: userId } of untold) {
        if (signal?.aborted) return;
        await this.tell(userId, false);
      }
      if (untold.length < batchSize) return;
    }
  }

  /**
   * Mails one user, at each of their addresses.
   * @param again mail also who was told before
   * @returns whether there was somewhere to write to
   */
  async tell(userId: string, again: boolean): Promise<boolean> {
    if (!this.mailer.enabled) return false;
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
