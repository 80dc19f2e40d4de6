import { Injectable } from '@nestjs/common';
import type { AccountApi } from '@rookery/module-api';
import { callsOf } from '../calls-of.js';
import { ModuleAccountActivity } from './account-activity.js';
import { ModuleAccountChanges } from './account-changes.js';
import { ModuleAccountLookups } from './account-lookups.js';
import { ModuleAccountSessions } from './account-sessions.js';
import { ModuleAccountData } from './module-account-data.js';

/** The part of the module API that is about accounts. */
@Injectable()
export class AccountCalls {
  readonly calls: Omit<AccountApi, 'completeSsoLogin'>;

  constructor(
    lookups: ModuleAccountLookups,
    changes: ModuleAccountChanges,
    sessions: ModuleAccountSessions,
    activity: ModuleAccountActivity,
    accountData: ModuleAccountData,
  ) {
    this.calls = {
      ...callsOf(lookups),
      ...callsOf(changes),
      ...callsOf(sessions),
      ...callsOf(activity),
      accountDataManager: callsOf(accountData),
    };
  }
}
