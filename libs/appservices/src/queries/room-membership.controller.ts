import { Controller, Get, Param } from '@nestjs/common';
import { Access, client, type InferQuery, param, Query, queryOf, Who } from '@rookery/http';
import { isValidRoomId, isValidServerName, isValidUserId, MatrixError } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { MembershipReader, RoomServers } from '@rookery/rooms';
import { AppserviceRegistry } from '../registration/appservice-registry.js';

const scope = 'urn:matrix:client:io.element.msc4502:rooms:is_joined';

const isJoinedQuery = queryOf({
  mxid: param.string('The user that is asked about.'),
  server_name: param.string('The server that is asked about.'),
});

/** Tells application services with leave to ask who is in a room (MSC4502): behind a switch. */
@Controller()
export class RoomMembershipController {
  constructor(
    private readonly registry: AppserviceRegistry,
    private readonly memberships: MembershipReader,
    private readonly servers: RoomServers,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/unstable/io.element.msc4502/rooms/{roomId}/is_joined */
  @Get(client(['unstable'], '/io.element.msc4502/rooms/:roomId/is_joined'))
  @Access({ auth: 'required' })
  async isJoined(
    @Who() { appserviceId }: Requester,
    @Param('roomId') roomId: string,
    @Query(isJoinedQuery) query: InferQuery<typeof isJoinedQuery>,
  ): Promise<object> {
    if (!this.config.get('experimental_features.msc4502_enabled')) throw MatrixError.unrecognized();
    const service = appserviceId === undefined ? undefined : this.registry.byId(appserviceId);
    if (!service?.fields.scopes.includes(scope)) throw MatrixError.forbidden(`Missing scope ${scope}`);
    if (!isValidRoomId(roomId)) throw MatrixError.invalidParam('Not a room id');
    const userId = query.mxid;
    const serverName = query.server_name;
    if ((userId === undefined) === (serverName === undefined))
      throw MatrixError.missingParam("One of 'mxid' and 'server_name' must be there, and one only");
    return { joined: await this.#isJoined(roomId, userId, serverName) };
  }

  async #isJoined(roomId: string, userId: string | undefined, serverName: string | undefined): Promise<boolean> {
    if (userId !== undefined) {
      if (!isValidUserId(userId)) throw MatrixError.invalidParam('Not a user id');
      return (await this.memberships.currentOf(roomId, userId)) === 'join';
    }
    if (serverName === undefined || !isValidServerName(serverName))
      throw MatrixError.invalidParam('Not the name of a server');
    return this.servers.isIn(roomId, serverName);
  }
}
