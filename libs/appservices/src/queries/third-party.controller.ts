import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  type InferQuery,
  param,
  Query,
  queryOf,
  RateLimiter,
  Who,
} from '@rookery/http';
import { isValidRoomAlias, isValidUserId, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { type ThirdPartyKind, ThirdPartyNetworks } from './third-party.service.js';

const paths = (path: string): string[] => client(['v3', 'unstable'], `/thirdparty${path}`);
/** Fields that a search may name. */
const maxFields = 50;

const userOfQuery = queryOf({
  userid: param.string('The user that a network may know under another name.', { required: true }),
});

const locationOfQuery = queryOf({
  alias: param.string('The room that a network may know under another name.', { required: true }),
});

/** Third-party networks. Looking something up makes requests to services, and is limited as other searches for people are. */
@Controller()
export class ThirdPartyController {
  constructor(
    private readonly networks: ThirdPartyNetworks,
    private readonly limiter: RateLimiter,
  ) {}

  /** GET /_matrix/client/v3/thirdparty/protocols */
  @Get(paths('/protocols'))
  @Access({ auth: 'required' })
  protocols(): Promise<object> {
    return this.networks.protocols();
  }

  /** GET /_matrix/client/v3/thirdparty/protocol/{protocol} */
  @Get(paths('/protocol/:protocol'))
  @Access({ auth: 'required' })
  async protocol(@Param('protocol') name: string): Promise<object> {
    const protocol = await this.networks.protocol(name);
    if (!protocol) throw unknownProtocol();
    return protocol;
  }

  /** GET /_matrix/client/v3/thirdparty/user/{protocol} */
  @Get(paths('/user/:protocol'))
  @Access({ auth: 'required' })
  users(
    @Who() requester: Requester,
    @Param('protocol') protocol: string,
    @Inbound() request: InboundRequest,
  ): Promise<object> {
    return this.#search('user', requester, protocol, request);
  }

  /** GET /_matrix/client/v3/thirdparty/location/{protocol} */
  @Get(paths('/location/:protocol'))
  @Access({ auth: 'required' })
  locations(
    @Who() requester: Requester,
    @Param('protocol') protocol: string,
    @Inbound() request: InboundRequest,
  ): Promise<object> {
    return this.#search('location', requester, protocol, request);
  }

  /** GET /_matrix/client/v3/thirdparty/user */
  @Get(paths('/user'))
  @Access({ auth: 'required' })
  async userOf(
    @Who() requester: Requester,
    @Query(userOfQuery) query: InferQuery<typeof userOfQuery>,
  ): Promise<object> {
    const userId = query.userid;
    if (!isValidUserId(userId)) throw MatrixError.invalidParam("'userid' is not a user id");
    await this.limiter.take('rc_user_directory', requester.userId, requester);
    return this.networks.reverse('user', userId);
  }

  /** GET /_matrix/client/v3/thirdparty/location */
  @Get(paths('/location'))
  @Access({ auth: 'required' })
  async locationOf(
    @Who() requester: Requester,
    @Query(locationOfQuery) query: InferQuery<typeof locationOfQuery>,
  ): Promise<object> {
    const { alias } = query;
    if (!isValidRoomAlias(alias)) throw MatrixError.invalidParam("'alias' is not a room alias");
    await this.limiter.take('rc_user_directory', requester.userId, requester);
    return this.networks.reverse('location', alias);
  }

  async #search(
    kind: ThirdPartyKind,
    requester: Requester,
    protocol: string,
    { query }: InboundRequest,
  ): Promise<object> {
    await this.limiter.take('rc_user_directory', requester.userId, requester);
    // What authenticates the client is not for the service.
    const { access_token: _token, user_id: _userId, device_id: _deviceId, ...fields } = query;
    if (Object.keys(fields).length > maxFields) throw MatrixError.invalidParam(`Not more than ${maxFields} fields`);
    const known = Object.fromEntries(
      Object.entries(fields).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
    );
    const found = await this.networks.search(kind, protocol, known);
    if (!found) throw unknownProtocol();
    return found;
  }
}

const unknownProtocol = (): MatrixError => MatrixError.notFound('No application service speaks this protocol');
