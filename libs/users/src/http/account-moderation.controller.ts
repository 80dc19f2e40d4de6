import { Controller, Get, Param, Put } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Access, client, type Infer, json, JsonBody, Who } from '@rookery/http';
import { isValidUserId, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { isLocalUser } from '../common/user-names.js';
import { ClientActivity } from '../sessions/client-activity.js';
import { addressesOf } from '../sessions/client-activity.query.js';
import type { Account } from '../store/account.query.js';
import { AccountService } from '../accounts/account.service.js';

const lockedSchema = json.object({ locked: json.required('Whether the account is locked.', json.boolean()) });
const suspendedSchema = json.object({ suspended: json.required('Whether the account is suspended.', json.boolean()) });

/** What server administrators do to accounts through the client API (MSC4323), and what is known of a user's sessions. */
@Controller()
export class AccountModerationController {
  constructor(
    private readonly accounts: AccountService,
    private readonly activity: ClientActivity,
    private readonly database: Database,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/v1/admin/lock/{userId} */
  @Get(client(['v1'], '/admin/lock/:userId'))
  @Access({ auth: 'required', admin: true })
  async isLocked(@Who() requester: Requester, @Param('userId') userId: string): Promise<object> {
    return { locked: (await this.#person(requester, userId)).locked };
  }

  /** PUT /_matrix/client/v1/admin/lock/{userId} */
  @Put(client(['v1'], '/admin/lock/:userId'))
  @Access({ auth: 'required', admin: true })
  async lock(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @JsonBody(lockedSchema) body: Infer<typeof lockedSchema>,
  ): Promise<object> {
    await this.#other(requester, userId);
    await this.accounts.setFlags(userId, { locked: body.locked });
    return { locked: body.locked };
  }

  /** GET /_matrix/client/v1/admin/suspend/{userId} */
  @Get(client(['v1'], '/admin/suspend/:userId'))
  @Access({ auth: 'required', admin: true })
  async isSuspended(@Who() requester: Requester, @Param('userId') userId: string): Promise<object> {
    return { suspended: (await this.#person(requester, userId)).suspended };
  }

  /** PUT /_matrix/client/v1/admin/suspend/{userId} */
  @Put(client(['v1'], '/admin/suspend/:userId'))
  @Access({ auth: 'required', admin: true })
  async suspend(
    @Who() requester: Requester,
    @Param('userId') userId: string,
    @JsonBody(suspendedSchema) body: Infer<typeof suspendedSchema>,
  ): Promise<object> {
    await this.#other(requester, userId);
    await this.accounts.setFlags(userId, { suspended: body.suspended });
    return { suspended: body.suspended };
  }

  /** GET /_matrix/client/v3/admin/whois/{userId}, for administrators and the user */
  @Get(client(['v3', 'api/v1', 'unstable'], '/admin/whois/:userId'))
  @Access({ auth: 'required' })
  async whois(@Who() requester: Requester, @Param('userId') userId: string): Promise<object> {
    if (!requester.isAdmin && requester.userId !== userId) throw MatrixError.notAdmin();
    await this.#account(userId);
    await this.activity.flush();
    const addresses = await addressesOf(this.database, userId);
    const devices = [...Map.groupBy(addresses, (address) => address.device_id)].map(([deviceId, connections]) => [
      deviceId,
      {
        sessions: [
          { connections: connections.map(({ ip, user_agent, last_seen }) => ({ ip, user_agent, last_seen })) },
        ],
      },
    ]);
    return { user_id: userId, devices: Object.fromEntries(devices) as object };
  }

  async #account(userId: string): Promise<Account> {
    if (!isValidUserId(userId) || !isLocalUser(userId, this.config.serverName)) {
      throw MatrixError.invalidParam('Only users of this server can be looked up');
    }
    const account = await this.accounts.find(userId);
    if (account === undefined) throw MatrixError.noSuchUser();
    return account;
  }

  /**
   * An account that is in use, and the administrator's own or no other administrator's.
   * @spec client-server-api#server-administration
   */
  async #person(requester: Requester, userId: string): Promise<Account> {
    const account = await this.#account(userId);
    if (account.deactivated) throw MatrixError.noSuchUser();
    if (account.isAdmin && userId !== requester.userId)
      throw MatrixError.forbidden('You cannot do this to another administrator');
    return account;
  }

  /** An account that the administrator may act upon: as {@link #person}, and not their own. */
  async #other(requester: Requester, userId: string): Promise<void> {
    await this.#person(requester, userId);
    if (userId === requester.userId) throw MatrixError.forbidden('You cannot do this to your own account');
  }
}
