import type { Db } from '@rookery/database';
import { countPushers } from '@rookery/push';
import { countAccounts, countActiveUsers } from '@rookery/users';

/** How many there are of something, by what the labels of a metric say. */
export interface ServerFigures {
  /** Accounts in use, by the application service that made them; `native` for all others. */
  readonly accounts: readonly { readonly service: string; readonly total: number }[];
  /** Users who made a request since a time. */
  readonly active: number;
  readonly pushers: readonly { readonly kind: string; readonly appId: string; readonly total: number }[];
}

/** Counts what changes slowly; each table is read once. */
export async function serverFigures(db: Db, activeSinceTs: number): Promise<ServerFigures> {
  const [accounts, active, pushers] = await Promise.all([
    countAccounts(db),
    countActiveUsers(db, activeSinceTs),
    countPushers(db),
  ]);
  return { accounts, active, pushers };
}
