import { Controller, Get, Param } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { RoomRepair } from '@rookery/rooms';
import { FederationAccess, Origin } from '../inbound/federation-access.js';
import { ResidentRooms } from './resident-rooms.js';

/** Tells servers in a room what the next event would rest upon (MSC4370): behind a switch. */
@Controller()
export class ExtremitiesController {
  constructor(
    private readonly rooms: ResidentRooms,
    private readonly repair: RoomRepair,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/federation/unstable/org.matrix.msc4370/extremities/{roomId} */
  @Get('/_matrix/federation/unstable/org.matrix.msc4370/extremities/:roomId')
  @FederationAccess()
  async extremities(@Origin() origin: string, @Param('roomId') roomId: string): Promise<object> {
    if (!this.config.get('experimental_features.msc4370_enabled')) throw MatrixError.unrecognized();
    await this.rooms.shared(origin, roomId);
    return { prev_events: (await this.repair.forwardExtremities(roomId)).map((head) => head.eventId) };
  }
}
