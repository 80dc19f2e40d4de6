import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type BackgroundTask, BackgroundTasks, Logger } from '@rookery/platform';
import { EventPersister } from '../pipeline/event-persister.js';
import { RoomIds } from '../store/room-ids.js';
import { coverEvents, markCovered, selectUncovered, selectUncoveredEvents } from './chain-covers.query.js';

const periodMs = 60_000;
const batchSize = 500;
const maxRoomsAtOnce = 100;
/** Auth events lie before an event in the stream as a rule; what lies the other way round costs a pass more. */
const maxPasses = 20;

/**
 * Completes the chain covers of rooms in the background: of those from before generations were counted, and of those that
 * came to know a part of an auth chain late, as after an invite from another server.
 */
@Injectable()
export class ChainCovers implements OnApplicationBootstrap, OnModuleDestroy {
  readonly #job: BackgroundTask;

  constructor(
    private readonly database: Database,
    private readonly persister: EventPersister,
    private readonly ids: RoomIds,
    private readonly logger: Logger,
    tasks: BackgroundTasks,
  ) {
    const work = (signal: AbortSignal): Promise<void> => this.#completeAll(signal);
    this.#job = tasks.add({ name: 'complete_chain_covers', role: 'writer', everyMs: periodMs, run: work });
  }

  onApplicationBootstrap(): void {
    this.#job.start();
  }

  onModuleDestroy(): Promise<void> {
    return this.#job.stop();
  }

  /** Completes every cover that is not, now. Never rejects. */
  completeAll(): Promise<void> {
    return this.#job.run();
  }

  /**
   * Gives every state event of a room its place, except those whose auth events are not known here. Sends in the room wait
   * for one batch at most.
   */
  async complete(roomId: string, signal?: AbortSignal): Promise<void> {
    for (let pass = 0; pass < maxPasses; pass++) {
      let after = Number.MIN_SAFE_INTEGER;
      let advanced = 0;
      let left = 0;
      while (!signal?.aborted) {
        const step = await this.persister.exclusively(roomId, () => this.#step(roomId, after));
        advanced += step.advanced;
        left += step.seen - step.advanced;
        after = step.last;
        if (step.seen < batchSize) break;
      }
      if (signal?.aborted) return;
      if (advanced === 0 || left === 0) break;
    }
    await this.database.write((tx) => markCovered(tx, roomId), { name: 'mark_chain_cover' });
  }

  async #step(roomId: string, after: number): Promise<{ seen: number; advanced: number; last: number }> {
    const events = await selectUncoveredEvents(this.database, roomId, after, batchSize);
    const last = events.at(-1)?.streamOrdering ?? after;
    if (events.length === 0) return { seen: 0, advanced: 0, last };
    const chainIds = await this.ids.authChains(events.filter((event) => !event.isPlaced).length);
    const advanced = await this.database.write((tx) => coverEvents(tx, events, chainIds), {
      name: 'complete_chain_cover',
    });
    return { seen: events.length, advanced, last };
  }

  async #completeAll(signal: AbortSignal): Promise<void> {
    let after = '';
    while (!signal.aborted) {
      const rooms = await selectUncovered(this.database, after, maxRoomsAtOnce);
      for (const roomId of rooms) {
        if (signal.aborted) return;
        try {
          await this.complete(roomId, signal);
        } catch (error) {
          // It is tried again with the next run, and holds up no other.
          this.logger.error('The chain cover of a room could not be completed', { roomId, err: error });
        }
      }
      if (rooms.length < maxRoomsAtOnce) return;
      after = rooms.at(-1)!;
    }
  }
}
