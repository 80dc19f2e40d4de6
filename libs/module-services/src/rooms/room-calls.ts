import { Injectable } from '@nestjs/common';
import type { RoomApi } from '@rookery/module-api';
import { callsOf } from '../calls-of.js';
import { ModulePublicRoomList } from './public-room-list.js';
import { ModuleRoomCreation } from './room-creation.js';
import { ModuleRoomEvents } from './room-events.js';
import { ModuleRoomLookups } from './room-lookups.js';
import { ModuleRoomMedia } from './room-media.js';
import { ModuleRoomRemoval } from './room-removal.js';

/** The part of the module API that is about rooms. */
@Injectable()
export class RoomCalls {
  readonly calls: RoomApi;

  constructor(
    lookups: ModuleRoomLookups,
    events: ModuleRoomEvents,
    creation: ModuleRoomCreation,
    removal: ModuleRoomRemoval,
    media: ModuleRoomMedia,
    list: ModulePublicRoomList,
  ) {
    this.calls = {
      ...callsOf(lookups),
      ...callsOf(events),
      ...callsOf(creation),
      ...callsOf(removal),
      ...callsOf(media),
      publicRoomListManager: callsOf(list),
    };
  }
}
