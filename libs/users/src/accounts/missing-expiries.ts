import { Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Clock, Config, Ids, Logger } from '@rookery/platform';
import { AccountValidity } from './account-validity.js';
import { findWithoutExpiry, insertExpiries } from './account-validity.query.js';

/** Accounts that get their date together. */
const batchSize = 500;
/** By so much of the period some expire sooner than others: all at once would be too many mails, and too many people locked out. */
const spread = 0.1;

/** Gives accounts an end that were there before `account_validity` was switched on; with each start, those that have none. */
@Injectable()
export class MissingExpiries implements OnApplicationBootstrap {
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
    private readonly validity: AccountValidity,
    private readonly logger: Logger,
  ) {}

  onApplicationBootstrap(): void {
    const periodMs = this.config.get('account_validity.period');
    if (!this.config.get('account_validity.enabled') || periodMs === undefined || this.database.isBesideWriter) return;
    this.fill(periodMs).catch((error: unknown) =>
      this.logger.error('Accounts without an end could not be given one', { err: error }),
    );
  }

  /** Each account without a date gets one a period from now, or up to a tenth of it sooner. */
  async fill(periodMs: number): Promise<void> {
    for (;;) {
      const userIds = await findWithoutExpiry(this.database, batchSize);
      if (userIds.length === 0) return;
      const latestMs = this.clock.nowMs() + periodMs;
      const dates = userIds.map(
        (userId) => [userId, latestMs - this.ids.integer(Math.floor(periodMs * spread) + 1)] as const,
      );
      await this.database.write(
        async (tx) => {
          for (const userId of userIds) this.validity.changes(tx, userId);
          await insertExpiries(tx, dates);
        },
        { name: 'account_validity_missing' },
      );
      this.logger.info('Accounts were given an end', { accounts: userIds.length });
    }
  }
}
