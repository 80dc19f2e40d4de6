import { Controller, Param, Post } from '@nestjs/common';
import { Access, type Infer, json, JsonBody, stable, Who } from '@rookery/http';
import type { Requester } from '@rookery/platform';
import { RoomUpgrade } from '../upgrade/room-upgrade.service.js';

/** Creators of the new room beside the user. */
const maxCreators = 100;

const schema = json.object({
  new_version: json.required('The version of the new room.', json.string()),
  additional_creators: json.optional(
    'Who is a creator of the new room beside the user, in versions that have creators.',
    json.array(json.string(), { maxItems: maxCreators }),
  ),
});

@Controller()
export class UpgradeController {
  constructor(private readonly upgrades: RoomUpgrade) {}

  /** POST /_matrix/client/v3/rooms/{roomId}/upgrade */
  @Post(stable('/rooms/:roomId/upgrade'))
  @Access({ auth: 'required', suspended: false })
  async upgrade(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(schema) body: Infer<typeof schema>,
  ): Promise<object> {
    const replacement = await this.upgrades.upgrade(requester, roomId, body.new_version, body.additional_creators);
    return { replacement_room: replacement };
  }
}
