import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type MissingEventsSource, type RemoteRoomGateway, RoomPorts } from './ports.js';

/** What other servers can do for rooms. Without federation those of other servers cannot be reached. */
@Injectable()
export class RemoteRooms {
  constructor(
    private readonly database: Database,
    private readonly ports: RoomPorts,
  ) {}

  /** @throws OnlyAtWriterError where another process writes: what other servers give is to be stored */
  get gateway(): RemoteRoomGateway | undefined {
    const { given } = this.ports.remoteRooms;
    if (given !== undefined) this.database.onlyAtWriter('help of other servers');
    return given;
  }

  /** Where events that are missing before remote ones come from. */
  get missingEvents(): MissingEventsSource | undefined {
    return this.ports.missingEvents.given;
  }
}
