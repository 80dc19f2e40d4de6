import { Controller, Param, Put } from '@nestjs/common';
import { Access, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import { isValidRoomId, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { PresenceService } from '../presence/presence.service.js';
import { TypingService } from './typing.service.js';

const schema = json.object({
  typing: json.required('Whether the user is typing.', json.boolean()),
  timeout: json.optional('For how long, ms.', json.number()),
});

@Controller()
export class TypingController {
  constructor(
    private readonly typing: TypingService,
    private readonly presence: PresenceService,
  ) {}

  /** PUT /_matrix/client/v3/rooms/{roomId}/typing/{userId} */
  @Put(stable('/rooms/:roomId/typing/:userId'))
  @Access({ auth: 'required', guests: true })
  async set(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('userId') userId: string,
    @JsonBody(schema) body: Infer<typeof schema>,
  ): Promise<object> {
    if (userId !== requester.userId) throw MatrixError.forbidden('You cannot type for somebody else');
    if (!isValidRoomId(roomId)) throw MatrixError.notRoomId();
    // A shadow-banned user's typing is answered as if it went somewhere.
    if (requester.shadowBanned) return {};
    const { typing, timeout } = body as { typing: boolean; timeout?: number };
    await this.typing.setByClient(roomId, userId, typing, timeout === undefined ? undefined : Math.floor(timeout));
    this.presence.active(userId, requester.deviceId);
    return {};
  }
}
