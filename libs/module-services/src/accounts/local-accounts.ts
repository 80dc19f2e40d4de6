import { Injectable } from '@nestjs/common';
import { isValidUserId, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { type Account, AccountService, isLocalUser } from '@rookery/users';

/** Finds the local users on whose behalf modules act. */
@Injectable()
export class LocalAccounts {
  constructor(
    private readonly accounts: AccountService,
    private readonly config: Config,
  ) {}

  /** @throws MatrixError 400 `M_INVALID_PARAM` for what is no user of this server */
  assertLocal(userId: string): void {
    if (typeof userId !== 'string' || !isValidUserId(userId)) throw MatrixError.notUserId();
    if (!isLocalUser(userId, this.config.serverName)) throw MatrixError.invalidParam('The user is not of this server');
  }

  /** The account with a full id. @throws MatrixError 400 `M_INVALID_PARAM`, 404 `M_NOT_FOUND` */
  async get(userId: string): Promise<Account> {
    this.assertLocal(userId);
    const account = await this.accounts.find(userId);
    if (!account) throw MatrixError.noSuchUser();
    return account;
  }

  /**
   * A user as whom a module acts: without rate limits, and heard even when shadow-banned.
   * @throws MatrixError 400 `M_INVALID_PARAM`, 404 `M_NOT_FOUND`, 403 `M_USER_DEACTIVATED`
   */
  async actingAs(userId: string): Promise<Requester> {
    const account = await this.get(userId);
    if (account.deactivated) throw MatrixError.userDeactivated();
    return {
      userId: account.userId,
      isGuest: account.isGuest,
      isAdmin: account.isAdmin,
      shadowBanned: false,
      suspended: false,
      locked: false,
      rateLimitExempt: true,
    };
  }
}
