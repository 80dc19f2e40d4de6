import { Controller, Param, Post, Put } from '@nestjs/common';
import { Access, JsonBody, stable, Who } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { AnsweredTransactions } from '../sending/answered-transactions.js';
import { type CreateRoomRequest, createRoomSchema } from '../creation/create-room.schema.js';
import { RoomCreation } from '../creation/room-creation.service.js';

@Controller()
export class CreateRoomController {
  constructor(
    private readonly creation: RoomCreation,
    private readonly transactions: AnsweredTransactions,
  ) {}

  /** PUT /_matrix/client/v3/createRoom/{txnId}, of clients from before the specification */
  @Put(stable('/createRoom/:txnId'))
  @Access({ auth: 'required', suspended: false })
  createOnce(
    @Who() requester: Requester,
    @Param('txnId') txnId: string,
    @JsonBody(createRoomSchema) body: CreateRoomRequest,
  ): Promise<object> {
    return this.transactions.once(requester, ['createRoom', txnId], () => this.create(requester, body));
  }

  /** POST /_matrix/client/v3/createRoom */
  @Post(stable('/createRoom'))
  @Access({ auth: 'required', suspended: false })
  async create(@Who() requester: Requester, @JsonBody(createRoomSchema) body: CreateRoomRequest): Promise<object> {
    const room = await this.creation.create(requester, body);
    const notInvited = [...room.notInvited].map(([userId, { errcode, message }]) => [
      userId,
      { errcode, error: message },
    ]);
    return {
      room_id: room.roomId,
      ...(room.alias !== undefined && { room_alias: room.alias }),
      // NOTSPEC: there is no place for it; the room exists, so an error would only have it made once more.
      ...(notInvited.length > 0 && { 'io.rookery.not_invited': Object.fromEntries(notInvited) as JsonObject }),
    };
  }
}
