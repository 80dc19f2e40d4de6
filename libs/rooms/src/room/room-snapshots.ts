import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Cache, Config } from '@rookery/platform';
import { PartialRooms } from '../store/partial-rooms.js';
import { loadSnapshot, type RoomSnapshot } from './room-snapshot.js';

interface Load {
  /** Somebody has kept or dropped a snapshot of the room since it began. */
  isOutdated: boolean;
}

const cacheBytes = 128 * 1024 * 1024;

/** The writer's snapshots of rooms, bounded in bytes. */
@Injectable()
export class RoomSnapshots {
  readonly #cache: Cache<string, RoomSnapshot>;
  /** What is being read, by room. */
  readonly #loads = new Map<string, Set<Load>>();

  constructor(
    private readonly database: Database,
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
  async get(roomId: string): Promise<RoomSnapshot | undefined> {
    const cached = this.#cache.get(roomId);
    if (cached) return cached;
    const load: Load = { isOutdated: false };
    const loads = this.#loads.get(roomId) ?? new Set();
    this.#loads.set(roomId, loads.add(load));
    try {
      const loaded = await loadSnapshot(
        this.database,
        roomId,
        this.config.serverName,
        this.partial.get(roomId)?.servers,
      );
      // Not everybody who reads waits for the room's turn: what was written meanwhile may be there by halves.
      if (loaded && !load.isOutdated) this.keep(loaded);
      return loaded;
    } finally {
      loads.delete(load);
      if (loads.size === 0) this.#loads.delete(roomId);
    }
  }

  /** Keeps a snapshot, or weighs it again after it has grown. */
  keep(snapshot: RoomSnapshot): void {
    this.#outdate(snapshot.roomId);
    // Setting the same object again would not weigh it again.
    this.#cache.delete(snapshot.roomId);
    this.#cache.set(snapshot.roomId, snapshot);
  }

  drop(roomId: string): void {
    this.#outdate(roomId);
    this.#cache.delete(roomId);
  }

  #outdate(roomId: string): void {
    for (const load of this.#loads.get(roomId) ?? []) load.isOutdated = true;
  }
}
