import { Controller, Get, Inject, Param } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { AccountService, ExternalIds, searchAccounts, ThreepidService } from '@rookery/users';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { AdminTargets } from '../http/admin-targets.js';
import { maxPageSize } from '../http/paging.js';

const usernameAvailableQuery = queryOf({
  username: param.string('The local part that somebody would like to have.', { required: true }),
});

const searchQuery = queryOf({
  term: param.string('What names are searched for.', { required: true }),
});

/** Who has a name, an address, an id at a provider. */
@Controller()
@AdminAccess()
export class LookupsController {
  constructor(
    private readonly targets: AdminTargets,
    private readonly accounts: AccountService,
    private readonly threepids: ThreepidService,
    private readonly externalIds: ExternalIds,
    @Inject(Database) private readonly database: Database,
  ) {}

  /** GET /_synapse/admin/v1/username_available */
  @Get(admin('v1', '/username_available'))
  async usernameAvailable(
    @Query(usernameAvailableQuery) query: InferQuery<typeof usernameAvailableQuery>,
  ): Promise<object> {
    await this.accounts.checkAvailable(query.username, { exact: true });
    return { available: true };
  }

  /** GET /_synapse/admin/v1/auth_providers/{provider}/users/{externalId} */
  @Get(admin('v1', '/auth_providers/:provider/users/:externalId'))
  async byExternalId(@Param('provider') provider: string, @Param('externalId') externalId: string): Promise<object> {
    const isStorable = !provider.includes('\0') && !externalId.includes('\0');
    return found(isStorable ? await this.externalIds.userOf(provider, externalId) : undefined);
  }

  /** GET /_synapse/admin/v1/threepid/{medium}/users/{address} */
  @Get(admin('v1', '/threepid/:medium/users/:address'))
  async byThreepid(@Param('medium') medium: string, @Param('address') address: string): Promise<object> {
    let userId: string | undefined;
    try {
      userId = await this.threepids.userOf(medium, address);
    } catch (error) {
      // What is no address is nobody's.
      if (!MatrixError.is(error)) throw error;
    }
    return found(userId);
  }

  /**
   * GET /_synapse/admin/v1/search_users/{userId}, of which the user id has no meaning any more
   *
   * NOTSPEC: tools expect a key `password_hash`; hashes of passwords do not leave the server.
   */
  @Get(admin('v1', '/search_users/:userId'))
  async search(
    @Query(searchQuery) query: InferQuery<typeof searchQuery>,
    @Param('userId') userId: string,
  ): Promise<object> {
    this.targets.localUserId(userId);
    const rows = await searchAccounts(this.database, query.term, maxPageSize);
    return rows.map((row) => ({
      name: row.name,
      password_hash: null,
      is_guest: Boolean(row.is_guest),
      admin: Boolean(row.admin),
      user_type: row.user_type,
    }));
  }
}

function found(userId: string | undefined): object {
  if (userId === undefined) throw MatrixError.noSuchUser();
  return { user_id: userId };
}
