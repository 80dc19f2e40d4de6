import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import type { JsonObject } from '@rookery/matrix-types';
import { isRemembered, roomExists } from '../membership/membership.query.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import {
  countLocalDevices,
  countRooms,
  type RoomListSearch,
  roomOrders,
  type RoomRow,
  selectMediaEvents,
  selectRoom,
  selectRooms,
  selectRoomsAfter,
} from './room-library.query.js';

/** What is known of one room beyond its row in a list. */
export interface RoomDetails extends RoomRow {
  /** Devices of the users of this server who are in it. */
  readonly joined_local_devices: number;
  /** No user of this server is in it, or has left it without forgetting it. */
  readonly forgotten: boolean;
  readonly tombstoned: boolean;
  readonly replacement_room: string | null;
}

const batchSize = 1_000;

/** All rooms that this server knows of, for administrators. */
@Injectable()
export class RoomLibrary {
  /** What its lists may be ordered by. */
  static readonly orders = roomOrders;

  constructor(
    private readonly database: Database,
    private readonly state: RoomStateReader,
  ) {}

  /** A page of rooms, with the number of all that fit. */
  async list(search: RoomListSearch): Promise<{ readonly rooms: RoomRow[]; readonly total: number }> {
    const [rooms, total] = await Promise.all([selectRooms(this.database, search), countRooms(this.database, search)]);
    return { rooms, total };
  }

  /** All rooms, in the order of their ids; read some at a time. */
  async *all(): AsyncGenerator<RoomRow> {
    for (let after = ''; ;) {
      const page = await selectRoomsAfter(this.database, after, batchSize);
      yield* page;
      if (page.length < batchSize) return;
      after = page.at(-1)!.room_id;
    }
  }

  /** One room; `undefined` when it is not known. */
  async details(roomId: string): Promise<RoomDetails | undefined> {
    const row = await selectRoom(this.database, roomId);
    if (!row) return undefined;
    const [devices, isKept, tombstone] = await Promise.all([
      countLocalDevices(this.database, roomId),
      isRemembered(this.database, roomId),
      this.state.currentEvent(roomId, 'm.room.tombstone'),
    ]);
    const replacement = tombstone?.event.content['replacement_room'];
    return {
      ...row,
      joined_local_devices: devices,
      forgotten: !isKept,
      tombstoned: tombstone !== undefined,
      replacement_room: typeof replacement === 'string' ? replacement : null,
    };
  }

  /** Whether anything is known of a room. */
  has(roomId: string): Promise<boolean> {
    return roomExists(this.database, roomId);
  }

  /**
   * Contents of the events of a room that may show files which are not encrypted, redacted ones included, in lists of some
   * hundred, in order of arrival.
   */
  async *contentsWithMedia(roomId: string): AsyncGenerator<readonly JsonObject[]> {
    for (let after = Number.MIN_SAFE_INTEGER; ;) {
      const found = await selectMediaEvents(this.database, roomId, after, batchSize);
      if (!found) return;
      if (found.events.length > 0)
        yield found.events.map((json) => (JSON.parse(json) as { content: JsonObject }).content);
      after = found.last;
    }
  }
}
