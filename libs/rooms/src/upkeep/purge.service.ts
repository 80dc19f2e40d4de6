import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import { batchesOf, Config, type Requester } from '@rookery/platform';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { RoomHooks } from '../hooks.js';
import { EventPersister } from '../pipeline/event-persister.js';
import { EventStore } from '../store/event-store.js';
import {
  deleteEvents,
  deleteRoomRows,
  deleteSomeState,
  type PurgeBefore,
  type PurgePoint,
  selectPurgeable,
  selectPurgePlace,
  selectSomeEvents,
  setAside,
} from './purge.query.js';
import { type CollectOptions, GroupRemoval } from './group-removal.js';
import { assertMayRemoveHistory, mayRemoveHistory } from './history-removal.js';
import { RoomTasks, TaskInterrupted } from './room-tasks.js';
import { holdForDeletion } from '../store/room-hold.query.js';

/** Up to where history is to be purged: one of the two. */
export interface PurgeLimit {
  readonly eventId?: string | undefined;
  readonly ts?: number | undefined;
}

/** Events that are looked at in one step, and those of them that are deleted in one transaction. */
const lookedAtOnce = 1_000;
const batchSize = 200;
/** Of a whole room, events and rows that are deleted at once: others get a turn in between. */
const roomEventsAtOnce = 50;
const roomRowsAtOnce = 500;

/** Deletes history, and whole rooms, from the database. */
@Injectable()
export class PurgeService implements OnModuleInit {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly groups: GroupRemoval,
    private readonly persister: EventPersister,
    private readonly hooks: RoomHooks,
    private readonly tasks: RoomTasks,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    this.tasks.define('purge_history', async (task, report) => {
      const { topological, stream, includeLocal } = task.params as unknown as PurgeBefore & { includeLocal: boolean };
      const before = Number(task.result?.['deleted'] ?? 0);
      const point: PurgePoint = {
        roomId: task.roomId,
        before: { topological, stream },
        includeLocal,
        serverName: this.config.serverName,
      };
      const deleted = before + (await this.#purgeTo(point, (count) => this.#goOn(report({ deleted: before + count }))));
      await this.collectGroups(task.roomId);
      return { deleted };
    });
    this.tasks.define('purge_room', async (task) => {
      await this.purgeRoom(task.roomId);
      return {};
    });
  }

  /**
   * Purges messages before a point, in the background. State stays: the room lives on.
   * @param includeLocal otherwise what users of this server said is shown to nobody any more, but stays in the database
   * @param by who wants it, for modules
   * @returns the id of the task
   * @throws MatrixError 400 `M_BAD_JSON` without a point, 400 `M_UNKNOWN` for an event of another room, 403 `M_FORBIDDEN` when a module
   *   refuses, 404 `M_NOT_FOUND`
   */
  async purgeHistory(roomId: string, limit: PurgeLimit, includeLocal: boolean, by?: Requester): Promise<string> {
    await assertMayRemoveHistory(this.hooks, roomId, 'purge', by);
    const before = await this.#placeOf(roomId, limit);
    return this.tasks.schedule('purge_history', roomId, { ...before, includeLocal });
  }

  /**
   * Purges messages that have lived long enough: those that were stored at or before a time, now. State stays, and so does the newest
   * event; and everything, where a module keeps it.
   * @returns how many are gone
   */
  async purgeOlder(roomId: string, ts: number, signal?: AbortSignal): Promise<number> {
    const before = await selectPurgePlace(this.database, roomId, ts);
    if (!before || !(await mayRemoveHistory(this.hooks, roomId, 'retention'))) return 0;
    const point = { roomId, before, includeLocal: true, serverName: this.config.serverName };
    const deleted = await this.#purgeTo(point, undefined, signal);
    if (deleted > 0) await this.collectGroups(roomId, { signal });
    return deleted;
  }

  /**
   * Deletes a room and all that hangs on it. Whether people are in it, and who may ask, is the caller's business.
   * @param isDue asked once nothing else can happen in the room; by default it is
   * @param signal ends it between two steps
   * @returns whether it was deleted
   * @throws TaskInterrupted when it was ended: what is left is deleted the next time
   */
  async purgeRoom(roomId: string, isDue?: () => Promise<boolean>, signal?: AbortSignal): Promise<boolean> {
    return this.persister.exclusively(roomId, async () => {
      if (isDue && !(await isDue())) return false;
      for (;;) {
        const eventIds = await selectSomeEvents(this.database, roomId, roomEventsAtOnce);
        if (eventIds.length === 0) break;
        await this.#goOn(this.#deleteEvents(roomId, eventIds), signal);
      }
      const others = (): Promise<void> => this.#goOn(nextTurn(), signal);
      await this.groups.removeAll(roomId, others);
      const isStateLeft = (): Promise<boolean> =>
        this.database.write((tx) => deleteSomeState(tx, roomId, roomRowsAtOnce), { name: 'purge_state' });
      while (await isStateLeft()) await others();
      for (const hook of this.hooks.all) {
        const isMoreLeft = (): Promise<boolean> =>
          this.database.write(async (tx) => (await hook.purgeSome?.(tx, roomId)) ?? false, { name: 'purge_derived' });
        while (hook.purgeSome && (await isMoreLeft())) await others();
      }
      await this.database.write(
        async (tx) => {
          await holdForDeletion(tx, roomId);
          for (const hook of this.hooks.all) await hook.onRoomPurged?.(tx, roomId);
          await deleteRoomRows(tx, roomId);
        },
        { name: 'purge_room', erase: true },
      );
      return true;
    });
  }

  /**
   * Deletes state groups of a room that nothing rests on, a few at a time.
   * @param options `superseded`: only those that nobody can be about to build upon, so that a room in use makes none of them anew
   * @returns how many
   */
  collectGroups(roomId: string, options: CollectOptions = {}): Promise<number> {
    return this.groups.collect(roomId, options);
  }

  /** A large room must not keep the server from its end: what is left is deleted after the next start. */
  async #goOn(step: Promise<void>, signal?: AbortSignal): Promise<void> {
    await step;
    if (this.tasks.stopping || signal?.aborted === true) throw new TaskInterrupted();
  }

  async #purgeTo(
    point: PurgePoint,
    report?: (deleted: number) => Promise<void>,
    signal?: AbortSignal,
  ): Promise<number> {
    let deleted = 0;
    let behind: PurgeBefore | undefined;
    while (!signal?.aborted) {
      const found = await selectPurgeable(this.database, point, behind, lookedAtOnce);
      if (!found) break;
      behind = found.last;
      const due = [
        ...batchesOf(found.deleted, batchSize).map((ids) => ({
          ids,
          remove: () => this.#deleteEvents(point.roomId, ids),
        })),
        ...batchesOf(found.setAside, batchSize).map((ids) => ({
          ids,
          remove: () => this.#setAside(point.roomId, ids),
        })),
      ];
      for (const { ids, remove } of due) {
        if (signal?.aborted) return deleted;
        await remove();
        deleted += ids.length;
        await report?.(deleted);
      }
      if (due.length === 0) await nextTurn();
    }
    return deleted;
  }

  async #deleteEvents(roomId: string, eventIds: readonly string[]): Promise<void> {
    await this.database.write(
      async (tx) => {
        for (const hook of this.hooks.all) await hook.onEventsPurged?.(tx, roomId, eventIds, false);
        await deleteEvents(tx, roomId, eventIds);
        tx.unlessRolledBack(() => this.events.forget(eventIds));
      },
      { name: 'purge_events', erase: true },
    );
  }

  async #setAside(roomId: string, eventIds: readonly string[]): Promise<void> {
    await this.database.write(
      async (tx) => {
        for (const hook of this.hooks.all) await hook.onEventsPurged?.(tx, roomId, eventIds, true);
        await setAside(tx, roomId, eventIds);
        tx.unlessRolledBack(() => this.events.forget(eventIds));
      },
      { name: 'purge_events' },
    );
  }

  async #placeOf(roomId: string, limit: PurgeLimit): Promise<PurgeBefore> {
    if (limit.eventId !== undefined) {
      const stored = await this.events.one(limit.eventId);
      if (!stored) throw MatrixError.noSuchEvent();
      if (stored.event.roomId !== roomId) throw MatrixError.badRequest('The event is of another room');
      return { topological: stored.event.depth, stream: stored.streamOrdering };
    }
    if (limit.ts === undefined) throw MatrixError.badJson('An event or a time is needed');
    const place = await selectPurgePlace(this.database, roomId, limit.ts);
    if (!place) throw MatrixError.notFound('There is no event before that time');
    return place;
  }
}
