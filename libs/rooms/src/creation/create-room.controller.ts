import { Controller, Post } from '@nestjs/common';
import { Access, JsonBody, stable, Who } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { type CreateRoomRequest, inviteReasonKey, inviteReasonsKey, RoomCreation } from './room-creation.service.js';

const text = { type: 'string' };
const schema = {
  properties: {
    visibility: { enum: ['public', 'private'] },
    room_alias_name: text,
    name: text,
    topic: text,
    invite: { type: 'array', items: text },
    invite_3pid: {
      type: 'array',
      items: {
        type: 'object',
        required: ['id_server', 'medium', 'address'],
        properties: { id_server: text, id_access_token: text, medium: text, address: text },
      },
    },
    room_version: text,
    creation_content: { type: 'object' },
    initial_state: {
      type: 'array',
      items: {
        type: 'object',
        required: ['type', 'content'],
        properties: { type: text, state_key: text, content: { type: 'object' } },
      },
    },
    preset: { enum: ['private_chat', 'public_chat', 'trusted_private_chat'] },
    is_direct: { type: 'boolean' },
    power_level_content_override: { type: 'object' },
    [inviteReasonKey]: { type: 'string' },
    [inviteReasonsKey]: { type: 'object', additionalProperties: { type: 'string' } },
  },
};

@Controller()
export class CreateRoomController {
  constructor(private readonly creation: RoomCreation) {}

  /** POST /_matrix/client/v3/createRoom */
  @Post(stable('/createRoom'))
  @Access({ auth: 'required', suspended: false })
  async create(@Who() requester: Requester, @JsonBody(schema) body: CreateRoomRequest): Promise<object> {
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
