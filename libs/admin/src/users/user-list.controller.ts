import { Controller, Get } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Inbound, type InboundRequest, queryBoolean, queryChoice, queryString } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { accountOrders, listAccounts, type ListedAccount } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { directionOf, nextFrom, pageOf } from '../http/paging.js';

/** Most types that a request may leave out. */
const maxTypes = 50;

/** Lists of this server's accounts. */
@Controller()
@AdminAccess()
export class UserListController {
  constructor(
    private readonly database: Database,
    private readonly config: Config,
  ) {}

  /** GET /_synapse/admin/v2/users */
  @Get(admin('v2', '/users'))
  list(@Inbound() request: InboundRequest): Promise<object> {
    return this.#list(request, queryBoolean(request, 'deactivated') === true ? undefined : false);
  }

  /** GET /_synapse/admin/v3/users */
  @Get(admin('v3', '/users'))
  listAll(@Inbound() request: InboundRequest): Promise<object> {
    return this.#list(request, queryBoolean(request, 'deactivated'));
  }

  async #list(request: InboundRequest, deactivated: boolean | undefined): Promise<object> {
    const page = pageOf(request);
    const name = queryString(request, 'name');
    const approval = this.config.get('experimental_features.msc3866')?.enabled === true;
    const approved = queryBoolean(request, 'approved') ?? true;
    // Empty, it stands for accounts without a type.
    const notUserTypes = [request.query['not_user_type'] ?? []].flat();
    if (notUserTypes.length > maxTypes) throw MatrixError.invalidParam(`At most ${maxTypes} types can be left out`);
    const withGuests = queryBoolean(request, 'guests');
    if (withGuests === true && this.config.get('matrix_authentication_service.enabled'))
      throw MatrixError.invalidParam('Guests cannot be listed where another service authenticates users');
    const { accounts, total } = await listAccounts(
      this.database,
      {
        userId: queryString(request, 'user_id') || undefined,
        name: name || undefined,
        isGuest: withGuests === false ? false : undefined,
        isAdmin: queryBoolean(request, 'admins'),
        deactivated,
        locked: queryBoolean(request, 'locked') === true ? undefined : false,
        approved: approval && !approved ? false : undefined,
        notUserTypes,
      },
      {
        offset: page.from,
        limit: page.limit,
        orderBy: queryChoice(request, 'order_by', accountOrders) ?? 'name',
        descending: directionOf(request) === 'b',
      },
    );
    const next = nextFrom(page, total);
    return {
      users: accounts.map((account) => toWire(account, approval)),
      total,
      ...(next !== undefined && { next_token: String(next) }),
    };
  }
}

const toWire = (account: ListedAccount, approval: boolean): object => ({
  name: account.userId,
  user_type: account.userType ?? null,
  is_guest: account.isGuest,
  admin: account.isAdmin,
  deactivated: account.deactivated,
  shadow_banned: account.shadowBanned,
  displayname: account.displayName ?? null,
  avatar_url: account.avatarUrl ?? null,
  creation_ts: account.createdMs,
  erased: account.erased,
  last_seen_ts: account.lastSeenMs ?? null,
  locked: account.locked,
  ...(approval && { approved: account.approved }),
});
