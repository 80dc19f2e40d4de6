import { Controller, Get } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { accountOrders, listAccounts, type ListedAccount } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { direction, nextFrom, pageOf, pageParams } from '../http/paging.js';

/** Most types that a request may leave out. */
const maxTypes = 50;

const accountParams = {
  ...pageParams,
  dir: direction,
  order_by: param.choice('What the list is ordered by.', accountOrders, { otherwise: 'name' }),
  user_id: param.string('Only accounts whose user id has this in it.'),
  name: param.string('Only accounts whose user id or display name has this in it; counts for more than `user_id`.'),
  guests: param.boolean('Whether guests are listed, too.'),
  admins: param.boolean('Only administrators, or all others.'),
  locked: param.boolean('Whether locked accounts are listed, too.', { otherwise: false }),
  approved: param.boolean('Whether approved accounts are listed, too (MSC3866).', { otherwise: true }),
  not_user_type: param.strings('Types of accounts to leave out; empty for accounts without one.', {
    max: maxTypes,
    empty: true,
  }),
};
const listQuery = queryOf({
  ...accountParams,
  deactivated: param.boolean('Whether deactivated accounts are listed, too.', { otherwise: false }),
});
const listAllQuery = queryOf({
  ...accountParams,
  deactivated: param.boolean('Only deactivated accounts, or those that are not.'),
});

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
  list(@Query(listQuery) query: InferQuery<typeof listQuery>): Promise<object> {
    return this.#list(query, query.deactivated ? undefined : false);
  }

  /** GET /_synapse/admin/v3/users */
  @Get(admin('v3', '/users'))
  listAll(@Query(listAllQuery) query: InferQuery<typeof listAllQuery>): Promise<object> {
    return this.#list(query, query.deactivated);
  }

  async #list(query: InferQuery<typeof listAllQuery>, deactivated: boolean | undefined): Promise<object> {
    const page = pageOf(query);
    const approval = this.config.get('experimental_features.msc3866')?.enabled === true;
    if (query.guests === true && this.config.get('matrix_authentication_service.enabled'))
      throw MatrixError.invalidParam('Guests cannot be listed where another service authenticates users');
    const { accounts, total } = await listAccounts(
      this.database,
      {
        userId: query.user_id,
        name: query.name,
        isGuest: query.guests === false ? false : undefined,
        isAdmin: query.admins,
        deactivated,
        locked: query.locked ? undefined : false,
        approved: approval && !query.approved ? false : undefined,
        notUserTypes: query.not_user_type,
      },
      {
        offset: page.from,
        limit: page.limit,
        orderBy: query.order_by,
        descending: query.dir === 'b',
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
