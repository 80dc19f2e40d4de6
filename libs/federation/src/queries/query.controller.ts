import { Controller, Get } from '@nestjs/common';
import { type InferQuery, param, Query, queryOf } from '@rookery/http';
import { isValidUserId, MatrixError, parseRoomAlias } from '@rookery/matrix-types';
import { Config, Metrics } from '@rookery/platform';
import { AliasService } from '@rookery/rooms';
import { isLocalUser, ProfileService } from '@rookery/users';
import { FederationAccess } from '../inbound/federation-access.js';

const profileQuery = queryOf({
  user_id: param.string('The user.', { required: true }),
  field: param.string('Only this field of the profile.'),
});

const directoryQuery = queryOf({
  room_alias: param.string('The alias.', { required: true }),
});

/** What other servers ask about users and aliases of this one. */
@Controller()
export class FederationQueryController {
  readonly #count;

  constructor(
    private readonly config: Config,
    private readonly profiles: ProfileService,
    private readonly aliases: AliasService,
    metrics: Metrics,
  ) {
    this.#count = metrics.counter('synapse_federation_server_received_queries');
  }

  /** GET /_matrix/federation/v1/query/profile */
  @Get('/_matrix/federation/v1/query/profile')
  @FederationAccess()
  async profile(@Query(profileQuery) query: InferQuery<typeof profileQuery>): Promise<object> {
    this.#count.inc({ type: 'profile' });
    if (!this.config.get('allow_profile_lookup_over_federation'))
      throw MatrixError.forbidden('Profiles are not shown to other servers');
    const { user_id: userId, field } = query;
    if (!isValidUserId(userId) || !isLocalUser(userId, this.config.serverName))
      throw MatrixError.invalidParam('user_id is not a user of this server');
    const profile = await this.profiles.get(userId);
    if (profile === undefined) throw MatrixError.notFound('There is no profile for this user');
    if (field === undefined) return profile;
    if (Object.hasOwn(profile, field)) return { [field]: profile[field] };
    if (field === 'displayname' || field === 'avatar_url') return {};
    throw MatrixError.notFound('The profile has no such field');
  }

  /** GET /_matrix/federation/v1/query/directory */
  @Get('/_matrix/federation/v1/query/directory')
  @FederationAccess()
  async directory(@Query(directoryQuery) query: InferQuery<typeof directoryQuery>): Promise<object> {
    this.#count.inc({ type: 'directory' });
    const alias = query.room_alias;
    if (parseRoomAlias(alias)?.serverName !== this.config.serverName)
      throw MatrixError.invalidParam('room_alias is not an alias of this server');
    const resolved = await this.aliases.resolve(alias);
    if (resolved === undefined) throw MatrixError.noSuchAlias();
    return { room_id: resolved.roomId, servers: resolved.servers };
  }
}
