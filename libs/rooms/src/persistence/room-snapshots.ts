import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { Config } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import { loadSnapshot, type RoomSnapshot } from './room-snapshot.js';

const cacheBytes = 192 * 1024 * 1024;

/** The writer's snapshots of rooms, bounded in bytes. */
@Injectable()
export class RoomSnapshots {
  readonly #cache = new LRUCache<string, RoomSnapshot>({
    maxSize: cacheBytes,
    sizeCalculation: (snapshot) => snapshot.sizeBytes,
  });

  constructor(
    private readonly database: Database,
    private readonly config: Config,
  ) {}

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
