import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { DataStores } from '@rookery/database';
import { type BackgroundTask, BackgroundTasks, Clock, Logger, Metrics } from '@rookery/platform';
import { RoomIds } from '../store/room-ids.js';
import { findUnusedApart, selectNextGroup, selectRoomsWithLeftovers } from './purge.query.js';
import { PurgeService } from './purge.service.js';

const periodMs = 10 * 60_000;
/** State groups that are looked at in one step, and steps of a run. */
const groupsPerStep = 2_000;
const stepsPerRun = 50;
/** Others ask the database between two steps. */
const pauseMs = 100;
/** Rows for which it is worth it to have the room's next event wait. */
const minRows = 50;

interface Leftovers {
  readonly roomIds: readonly string[];
  readonly last: number | undefined;
}

/**
 * Deletes state groups on which nothing rests, in the background. State resolution makes one for the forward extremities of a room
 * together; once the room has moved on before an event followed upon them, nobody needs it.
 */
@Injectable()
export class StateGroupCollector implements OnModuleInit, OnModuleDestroy {
  readonly #job: BackgroundTask;
  readonly #collected;
  /** Up to where the groups were looked at; then it begins anew. */
  #after = Number.MIN_SAFE_INTEGER;

  constructor(
    private readonly stores: DataStores,
    private readonly clock: Clock,
    private readonly purges: PurgeService,
    private readonly ids: RoomIds,
    private readonly logger: Logger,
    metrics: Metrics,
    tasks: BackgroundTasks,
  ) {
    this.#collected = metrics.counter({
      name: 'rookery_state_groups_collected',
      help: 'State groups that were deleted in the background since nothing rested on them.',
    });
    const work = (signal: AbortSignal): Promise<void> => this.#collect(signal);
    this.#job = tasks.add({ name: 'collect_state_groups', role: 'writer', everyMs: periodMs, run: work });
  }

  onModuleInit(): void {
    this.#job.start();
  }

  onModuleDestroy(): Promise<void> {
    return this.#job.stop();
  }

  /** Goes on from where it was, now. Never rejects. */
  run(): Promise<void> {
    return this.#job.run();
  }

  async #collect(signal: AbortSignal): Promise<void> {
    for (let step = 0; step < stepsPerRun && !signal.aborted; step++) {
      if (step > 0) await this.clock.sleep(pauseMs, signal);
      const { roomIds, last } = await (this.stores.isSplit ? this.#lookApart() : this.#look());
      for (const roomId of roomIds) await this.#collectIn(roomId, signal);
      this.#after = last ?? Number.MIN_SAFE_INTEGER;
      if (last === undefined) return;
    }
  }

  /** Rooms with leftovers among the next groups, and the last of these; nothing when there are no more. */
  async #look(): Promise<Leftovers> {
    const { main } = this.stores;
    const last = await selectNextGroup(main, this.#after, groupsPerStep);
    return { roomIds: await selectRoomsWithLeftovers(main, this.#after, last, minRows), last };
  }

  /** The same where state has a database of its own, with what a process has left there that was killed before anything named it. */
  async #lookApart(): Promise<Leftovers> {
    const writtenBefore = this.ids.stateGroupsBefore;
    const last = await selectNextGroup(this.stores.state, this.#after, groupsPerStep);
    const search = { writtenBefore, after: this.#after, upTo: last, limit: groupsPerStep };
    const { unused } = await findUnusedApart(this.stores, search);
    const roomIds: string[] = [];
    for (const [roomId, groups] of Map.groupBy(unused, (one) => one.roomId)) {
      const rows = groups.reduce((total, one) => total + one.rows, 0);
      if (rows >= minRows || groups.some(({ group }) => group <= writtenBefore)) roomIds.push(roomId);
    }
    return { roomIds, last };
  }

  async #collectIn(roomId: string, signal: AbortSignal): Promise<void> {
    try {
      const count = await this.purges.collectGroups(roomId, { superseded: true, signal });
      this.#collected.inc({}, count);
      this.logger.info('State groups that nothing rested on were deleted', { room_id: roomId, count });
    } catch (error) {
      // It is tried again when its groups are looked at again, and holds up no other.
      this.logger.error('State groups of a room could not be deleted', { room_id: roomId, err: error });
    }
  }
}
