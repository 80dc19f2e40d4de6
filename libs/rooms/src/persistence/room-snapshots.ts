import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Cache, Config } from '@rookery/platform';
import { loadSnapshot, type RoomSnapshot } from './room-snapshot.js';

const cacheBytes = 128 * 1024 * 1024;

/** The writer's snapshots of rooms, bounded in bytes. */
@Injectable()
export class RoomSnapshots {
  readonly #cache: Cache<string, RoomSnapshot>;

  constructor(
    private readonly database: Database,
    private readonly config: Config,
  ) {
    this.#cache = new Cache(config, 'room_snapshots', { max: cacheBytes, sizeOf: (snapshot) => snapshot.sizeBytes });
  }

  /** A room's snapshot, read when it is not in memory; `undefined` when there is no such room. */
  async get(roomId: string): Promise<RoomSnapshot | undefined> {
    const cached = this.#cache.get(roomId);
    if (cached) return cached;
    const loaded = await loadSnapshot(this.database, roomId, this.config.serverName);
    if (loaded) this.keep(loaded);
    return loaded;
  }

  /** Keeps a snapshot, or weighs it again after it has grown. */
  keep(snapshot: RoomSnapshot): void {
    // Setting the same object again would not weigh it again.
    this.#cache.delete(snapshot.roomId);
    this.#cache.set(snapshot.roomId, snapshot);
  }

  drop(roomId: string): void {
    this.#cache.delete(roomId);
  }
}
