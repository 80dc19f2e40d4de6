import { Injectable, type OnModuleInit } from '@nestjs/common';
import { BackgroundUpdates } from '@rookery/database';
import { OwnKeys } from '@rookery/federation-client';
import { EventStore, roomUpdates } from '@rookery/rooms';

/** Makes the jobs known that administrators start by hand. */
@Injectable()
export class RoomUpdates implements OnModuleInit {
  constructor(
    private readonly updates: BackgroundUpdates,
    private readonly events: EventStore,
    private readonly keys: OwnKeys,
  ) {}

  onModuleInit(): void {
    const { serverName, current: key } = this.keys;
    for (const update of roomUpdates({ serverName, key, events: this.events })) this.updates.register(update);
  }
}
