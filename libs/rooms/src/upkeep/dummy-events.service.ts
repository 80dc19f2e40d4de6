import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { type BackgroundTask, BackgroundTasks, Clock, Config } from '@rookery/platform';
import { LRUCache } from 'lru-cache';
import { EventPersister } from '../pipeline/event-persister.js';
import { dummyEventType } from '../model/stored-event.js';
import { selectLocalUsers } from '../reading/local-members.query.js';
import { countForwardExtremities, selectSpreadRooms } from './forward-extremities.query.js';

const periodMs = 60_000;
const roomsPerRun = 5;
const roundsPerRoom = 5;
const maxSenders = 10;
/** A room in which nobody of this server may send is left alone for so long. */
const restMs = 3_600_000;

/**
 * Joins forward extremities that have piled up, by an event without meaning that clients never see: every send and every
 * state in a room with many forward extremities costs more.
 */
@Injectable()
export class DummyEvents implements OnModuleInit, OnModuleDestroy {
  readonly #job: BackgroundTask;
  /** Rooms where it did not work, by when. */
  readonly #resting = new LRUCache<string, number>({ maxSize: 10_000, sizeCalculation: () => 1 });

  constructor(
    private readonly database: Database,
    private readonly persister: EventPersister,
    private readonly config: Config,
    private readonly clock: Clock,
    tasks: BackgroundTasks,
  ) {
    const work = (signal: AbortSignal): Promise<void> => this.#joinAll(signal);
    this.#job = tasks.add({ name: 'join_extremities', role: 'writer', everyMs: periodMs, run: work });
  }

  onModuleInit(): void {
    if (this.config.get('cleanup_extremities_with_dummy_events')) this.#job.start();
  }

  onModuleDestroy(): Promise<void> {
    return this.#job.stop();
  }

  /** Works on the rooms with the most forward extremities, now. Never rejects. */
  run(): Promise<void> {
    return this.#job.run();
  }

  async #joinAll(signal: AbortSignal): Promise<void> {
    const now = this.clock.nowMs();
    const resting = [...this.#resting].filter(([, sinceMs]) => sinceMs + restMs > now).map(([roomId]) => roomId);
    const threshold = this.config.get('dummy_events_threshold');
    for (const roomId of await selectSpreadRooms(this.database, resting, threshold, roomsPerRun)) {
      if (signal.aborted) return;
      if (!(await this.#join(roomId))) this.#resting.set(roomId, now);
    }
  }

  /** One event joins as many forward extremities as it can name: a few are sent until all are joined. Whether anybody could. */
  async #join(roomId: string): Promise<boolean> {
    for (let round = 0; round < roundsPerRoom; round++) {
      if ((await countForwardExtremities(this.database, roomId)) <= 1) return true;
      if (!(await this.#sendByAnybody(roomId))) return false;
    }
    return true;
  }

  async #sendByAnybody(roomId: string): Promise<boolean> {
    for (const sender of await selectLocalUsers(this.database, roomId, ['join'], maxSenders)) {
      try {
        await this.persister.send({ roomId, type: dummyEventType, sender, content: {}, unchecked: true });
        return true;
      } catch (error) {
        if (!MatrixError.is(error)) throw error;
      }
    }
    return false;
  }
}
