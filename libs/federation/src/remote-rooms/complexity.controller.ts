import { Controller, Get, Param } from '@nestjs/common';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { ComplexRooms, RoomSummaries } from '@rookery/rooms';
import { FederationAccess, Origin } from '../inbound/federation-access.js';

/** Tells other servers how large rooms are, before they join. */
@Controller()
export class ComplexityController {
  constructor(
    private readonly rooms: ComplexRooms,
    private readonly summaries: RoomSummaries,
  ) {}

  /** GET /_matrix/federation/unstable/rooms/{roomId}/complexity. MSC1965 */
  @Get('/_matrix/federation/unstable/rooms/:roomId/complexity')
  @FederationAccess()
  async complexity(@Origin() origin: string, @Param('roomId') roomId: string): Promise<JsonObject> {
    const room = await this.summaries.visibleToServer(origin, roomId);
    if (typeof room === 'string') throw MatrixError.notFound('The room is not known here');
    return { v1: await this.rooms.of(roomId) };
  }
}
