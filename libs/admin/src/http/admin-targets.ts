import { Injectable } from '@nestjs/common';
import { isValidUserId, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { type Account, AccountService, isLocalUser } from '@rookery/users';

/** Whom an admin request is about. */
@Injectable()
export class AdminTargets {
  constructor(
    private readonly accounts: AccountService,
    private readonly config: Config,
  ) {}

  /**
   * A user id of any server.
   * @throws MatrixError 400 `M_INVALID_PARAM`
   */
  userId(text: string): string {
    if (!isValidUserId(text)) throw MatrixError.notUserId();
    return text;
  }

  /**
   * A user id of this server, whether or not there is such an account.
   * @throws MatrixError 400 `M_INVALID_PARAM` when it is none, 400 `M_UNKNOWN` when it is another server's
   */
  localUserId(text: string): string {
    const userId = this.userId(text);
    if (!isLocalUser(userId, this.config.serverName))
      throw MatrixError.badRequest('This works for users of this server only');
    return userId;
  }

  /**
   * An account of this server, guests and closed accounts included.
   * @throws MatrixError as {@link localUserId}, and 404 `M_NOT_FOUND`
   */
  async localAccount(text: string): Promise<Account> {
    const account = await this.accounts.find(this.localUserId(text));
    if (account === undefined) throw MatrixError.noSuchUser();
    return account;
  }
}
