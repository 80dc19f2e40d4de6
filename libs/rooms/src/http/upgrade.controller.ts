import { Controller, Param, Post } from '@nestjs/common';
import { Access, JsonBody, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { RoomUpgrade } from '../upgrade/room-upgrade.service.js';

const schema = {
  required: ['new_version'],
  properties: {
    new_version: { type: 'string' },
    additional_creators: { type: 'array', maxItems: 100, items: { type: 'string' } },
  },
};

@Controller()
export class UpgradeController {
  constructor(private readonly upgrades: RoomUpgrade) {}

  /** POST /_matrix/client/v3/rooms/{roomId}/upgrade */
  @Post(stable('/rooms/:roomId/upgrade'))
  @Access({ auth: 'required', suspended: false })
  async upgrade(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(schema) body: { readonly new_version: string; readonly additional_creators?: readonly string[] },
  ): Promise<object> {
    const replacement = await this.upgrades.upgrade(requester, roomId, body.new_version, body.additional_creators);
    return { replacement_room: replacement };
  }
}
