import { Injectable } from '@nestjs/common';
import { DataStores } from '@rookery/database';
import { Cache, Config } from '@rookery/platform';
import { PartialRooms } from '../store/partial-rooms.js';
import { loadSnapshot, type RoomSnapshot } from './room-snapshot.js';

const cacheBytes = 128 * 1024 * 1024;

/** The writer's snapshots of rooms, bounded in bytes. */
@Injectable()
export class RoomSnapshots {
  readonly #cache: Cache<string, RoomSnapshot>;

  constructor(
    private readonly stores: DataStores,
    readonly partial: PartialRooms,
    private readonly config: Config,
  ) {
    this.#cache = new Cache(config, 'room_snapshots', {
      invalidation: 'on write',
      elsewhere: 'not kept',
      max: cacheBytes,
      sizeOf: (snapshot) => snapshot.sizeBytes,
    });
  }

  /** A room's snapshot, read when it is not in memory; `undefined` when there is no such room. */
  get(roomId: string): Promise<RoomSnapshot | undefined> {
    // Not everybody who reads waits for the room's turn: of what is written meanwhile only a half may be there, and it is not kept.
    return this.#cache.fetch(roomId, () =>
      loadSnapshot(this.stores, roomId, this.config.serverName, this.partial.get(roomId)?.servers),
    );
  }

  /** Keeps a snapshot, or weighs it again after it has grown. */
  keep(snapshot: RoomSnapshot): void {
    this.#cache.set(snapshot.roomId, snapshot);
  }

  drop(roomId: string): void {
    this.#cache.delete(roomId);
  }
}
