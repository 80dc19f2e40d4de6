import { Controller, Delete, Get, Param, Put } from '@nestjs/common';
import { Access, client, Inbound, type InboundRequest, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { RoomAccess } from '../history/room-access.js';
import { AliasService } from '../directory/alias.service.js';
import { RemoteLookups } from '../directory/remote-lookups.js';

const createBody = json.object({ room_id: json.required('The room that the alias stands for.', json.string()) });

@Controller()
export class AliasController {
  constructor(
    private readonly aliases: AliasService,
    private readonly access: RoomAccess,
    private readonly lookups: RemoteLookups,
  ) {}

  /** GET /_matrix/client/v3/directory/room/{roomAlias} */
  @Get(stable('/directory/room/:roomAlias'))
  @Access({ auth: 'optional', guests: true })
  async resolve(
    @Who() requester: Requester | undefined,
    @Inbound() request: InboundRequest,
    @Param('roomAlias') alias: string,
  ): Promise<object> {
    await this.lookups.count([this.aliases.serverOf(alias)], requester ?? request);
    const resolved = await this.aliases.resolve(alias);
    if (!resolved) throw MatrixError.notFound(`The alias ${alias} is not known`);
    return { room_id: resolved.roomId, servers: resolved.servers };
  }

  /** PUT /_matrix/client/v3/directory/room/{roomAlias} */
  @Put(stable('/directory/room/:roomAlias'))
  @Access({ auth: 'required', suspended: false })
  async create(
    @Who() requester: Requester,
    @Param('roomAlias') alias: string,
    @JsonBody(createBody) body: Infer<typeof createBody>,
  ): Promise<object> {
    await this.aliases.create(requester, alias, body.room_id);
    return {};
  }

  /** DELETE /_matrix/client/v3/directory/room/{roomAlias} */
  @Delete(stable('/directory/room/:roomAlias'))
  @Access({ auth: 'required', suspended: false })
  async delete(@Who() requester: Requester, @Param('roomAlias') alias: string): Promise<object> {
    await this.aliases.delete(requester, alias);
    return {};
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/aliases */
  @Get([...stable('/rooms/:roomId/aliases'), ...client(['unstable'], '/org.matrix.msc2432/rooms/:roomId/aliases')])
  @Access({ auth: 'required' })
  async aliasesOf(@Who() requester: Requester, @Param('roomId') roomId: string): Promise<object> {
    const isLeft = !requester.isAdmin && (await this.access.read(requester, roomId)).kind === 'left';
    if (isLeft) throw MatrixError.notInRoom();
    return { aliases: await this.aliases.aliasesOf(roomId) };
  }
}
