import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { domainOf, isJsonObject, isValidUserId, MatrixError } from '@rookery/matrix-types';
import { Config, eachLimit, type Requester } from '@rookery/platform';
import { UserPorts } from '../ports.js';
import { accountStates } from '../store/account.query.js';
import { AccountValidity } from './account-validity.js';

/** What is told of an account (MSC3720). */
export interface AccountStatus {
  readonly exists: boolean;
  readonly deactivated?: boolean;
  readonly 'org.matrix.expired'?: boolean;
}

/** Statuses by user id, and the users of whom nothing could be found out. */
export interface AccountStatuses {
  readonly statuses: Readonly<Record<string, AccountStatus>>;
  readonly failures: readonly string[];
}

/** Most users of one request. */
const maxUsers = 200;
/** Other servers that one request has asked at a time. */
const maxServersAtOnce = 20;

/** Tells whether accounts exist and are open, here and on other servers. */
@Injectable()
export class AccountStatusService {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
    private readonly validity: AccountValidity,
    private readonly ports: UserPorts,
    private readonly limiter: RateLimiter,
  ) {}

  /**
   * What somebody may know of some accounts.
   * @param userIds as they came in
   * @throws MatrixError 400 `M_INVALID_PARAM`, also for more servers than may ever be asked at once; 429 `M_LIMIT_EXCEEDED`
   */
  async of(requester: Requester, userIds: readonly unknown[]): Promise<AccountStatuses> {
    const byServer = Map.groupBy(checked(userIds), domainOf);
    const others = [...byServer.keys()].filter((server) => server !== this.config.serverName).length;
    if (others > 0) await this.limiter.take('rc_profile', requester.userId, requester, others);
    const statuses: Record<string, AccountStatus> = {};
    const failures: string[] = [];
    await eachLimit(byServer, maxServersAtOnce, async ([server, users]) => {
      const found = server === this.config.serverName ? await this.#local(users) : await this.#ask(server, users);
      for (const userId of users) {
        const status = found?.get(userId);
        if (status) statuses[userId] = status;
        else failures.push(userId);
      }
    });
    return { statuses, failures: failures.sort() };
  }

  /** The same for users of this server alone: what other servers may ask. @throws MatrixError 400 `M_INVALID_PARAM` */
  async ofLocal(userIds: readonly unknown[]): Promise<AccountStatuses> {
    const users = checked(userIds);
    const local = users.filter((userId) => domainOf(userId) === this.config.serverName);
    if (local.length < users.length) throw MatrixError.invalidParam('Not a user of this server');
    return { statuses: Object.fromEntries(await this.#local(local)), failures: [] };
  }

  async #local(userIds: readonly string[]): Promise<Map<string, AccountStatus>> {
    const states = await accountStates(this.database, userIds);
    const tellsExpiry = this.config.get('use_account_validity_in_account_status');
    const expired = await this.validity.expiredAmong(tellsExpiry ? [...states.keys()] : []);
    const statuses = new Map<string, AccountStatus>();
    for (const userId of userIds) {
      const deactivated = states.get(userId);
      if (deactivated === undefined) statuses.set(userId, { exists: false });
      else
        statuses.set(userId, {
          exists: true,
          deactivated,
          ...(tellsExpiry && { 'org.matrix.expired': expired.has(userId) }),
        });
    }
    return statuses;
  }

  /** What another server says of its own users; nothing where it says nothing sensible. */
  async #ask(server: string, userIds: readonly string[]): Promise<Map<string, AccountStatus> | undefined> {
    const answer = await this.ports.remoteAccountStatuses.given?.(server, userIds).catch(() => undefined);
    const given = answer?.['account_statuses'];
    if (!isJsonObject(given)) return undefined;
    const statuses = new Map<string, AccountStatus>();
    for (const userId of userIds) {
      const status = given[userId];
      if (!isJsonObject(status) || typeof status['exists'] !== 'boolean') continue;
      const { exists, deactivated, 'org.matrix.expired': expired } = status;
      statuses.set(userId, {
        exists,
        ...(typeof deactivated === 'boolean' && { deactivated }),
        ...(typeof expired === 'boolean' && { 'org.matrix.expired': expired }),
      });
    }
    return statuses;
  }
}

function checked(userIds: readonly unknown[]): string[] {
  if (userIds.length > maxUsers) throw MatrixError.invalidParam(`At most ${maxUsers} users at once`);
  return [...new Set(userIds)].map((userId) => {
    if (typeof userId !== 'string' || !isValidUserId(userId)) throw MatrixError.notUserId();
    return userId;
  });
}
