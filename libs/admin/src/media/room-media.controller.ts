import { Controller, Get, Param } from '@nestjs/common';
import { formatMxc } from '@rookery/media';
import { Config } from '@rookery/platform';
import { admin, AdminAccess } from '../http/admin-endpoint.js';
import { RoomMedia } from './room-media.js';

/** Which files a room shows; told also where another process keeps the files. */
@Controller()
@AdminAccess()
export class RoomMediaController {
  constructor(
    private readonly rooms: RoomMedia,
    private readonly config: Config,
  ) {}

  /** GET /_synapse/admin/v1/room/{roomId}/media */
  @Get(admin('v1', '/room/:roomId/media'))
  async ofRoom(@Param('roomId') roomId: string): Promise<object> {
    const local: string[] = [];
    const remote: string[] = [];
    for await (const keys of this.rooms.of(roomId)) {
      for (const { origin, mediaId } of keys)
        (origin === undefined ? local : remote).push(formatMxc(origin ?? this.config.serverName, mediaId));
    }
    return { local, remote };
  }
}
