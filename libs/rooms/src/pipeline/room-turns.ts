import { Injectable } from '@nestjs/common';
import { roomVersionRules } from '@rookery/events';
import { MatrixError } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';
import type { StoredEvent } from '../model/stored-event.js';
import { BatchQueue } from '../room/room-queue.js';
import { RoomSnapshot } from '../room/room-snapshot.js';
import { RoomSnapshots } from '../room/room-snapshots.js';
import { WorkingRoom } from '../room/working-room.js';
import { BatchCommitter, type CommitOptions } from './batch-committer.js';
import { EventContexts } from './event-context.js';
import { insertRemoteRoom } from './new-room.query.js';

/** Something that needs the room's tables to itself. Settles itself and never rejects. */
interface ExclusiveTask {
  readonly alone: () => Promise<void>;
}

/** Something to be done with a room, in its turn. */
export interface RoomTask {
  /** Rooms that are not known yet are made with this version; absent: they are refused. */
  readonly roomVersion?: string;
  /** The version comes from the room's state: it counts more than what an invite to the room said. */
  readonly isVersionProven?: boolean;
  /** Commits alone: its options are its own. */
  readonly options?: CommitOptions;
  /** Stages events. What it returns is called once they are durable; nothing where it is settled and has staged none. */
  readonly stage: (room: WorkingRoom) => Promise<((stored: ReadonlyMap<string, StoredEvent>) => void) | undefined>;
  /** Asked when a batch has failed: whether this task was done by an earlier one after all. */
  readonly alreadyDone?: () => Promise<boolean>;
  readonly reject: (error: unknown) => void;
}

const maxBatch = 64;

/** A room that is not known here has no members here. */
export const unknownRoom = (): MatrixError => MatrixError.notInRoom();

/** The turns of rooms: what is to be done with a room is done one after the other, what comes meanwhile in one transaction. */
@Injectable()
export class RoomTurns {
  readonly #queue = new BatchQueue<RoomTask | ExclusiveTask>((roomId, tasks) => this.#work(roomId, tasks), maxBatch);

  constructor(
    private readonly snapshots: RoomSnapshots,
    private readonly contexts: EventContexts,
    private readonly committer: BatchCommitter,
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  /** Has something done in the room's turn; the task hears how that went. */
  push(roomId: string, task: RoomTask): void {
    this.#queue.push(roomId, task);
  }

  /** Does something that needs the room's tables to itself, in its turn. */
  exclusively<T>(roomId: string, work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#queue.push(roomId, {
        alone: async () => {
          this.snapshots.drop(roomId);
          try {
            resolve(await work());
          } catch (error) {
            reject(error);
          } finally {
            // Whoever looked at the room meanwhile saw it by halves.
            this.snapshots.drop(roomId);
            this.contexts.forgetRoom(roomId);
          }
        },
      });
    });
  }

  async #work(roomId: string, tasks: readonly (RoomTask | ExclusiveTask)[]): Promise<void> {
    let together: RoomTask[] = [];
    for (const task of tasks) {
      const isPlain = !('alone' in task) && !task.options && task.roomVersion === undefined;
      if (isPlain) together.push(task);
      else {
        if (together.length > 0) await this.#attempt(roomId, together);
        together = [];
        if ('alone' in task) await task.alone();
        else await this.#attempt(roomId, [task]);
      }
    }
    if (together.length > 0) await this.#attempt(roomId, together);
  }

  /** Does tasks in one transaction; when that fails, each in its own. Settles all of them. */
  async #attempt(roomId: string, tasks: readonly RoomTask[]): Promise<void> {
    let room: WorkingRoom | undefined;
    const done: ((stored: ReadonlyMap<string, StoredEvent>) => void)[] = [];
    const settled = new Set<RoomTask>();
    try {
      room = await this.#open(roomId, tasks[0]!);
      for (const task of tasks) {
        const { length } = room.staged;
        try {
          const settle = await task.stage(room);
          if (settle) done.push(settle);
          else settled.add(task);
        } catch (error) {
          // What failed half-way has left the room in an unknown state.
          if (room.staged.length !== length || !MatrixError.is(error)) throw error;
          settled.add(task);
          task.reject(error);
        }
      }
      const stored = room.staged.length > 0 || room.rejudged || room.found ? await this.#commit(room, tasks[0]!) : [];
      const byId = new Map(stored.map((entry) => [entry.event.eventId, entry]));
      for (const settle of done) settle(byId);
    } catch (error) {
      this.snapshots.drop(roomId);
      if (room) this.contexts.forget(room);
      await this.#afterFailure(
        roomId,
        tasks.filter((task) => !settled.has(task)),
        error,
      );
    }
  }

  async #afterFailure(roomId: string, tasks: readonly RoomTask[], error: unknown): Promise<void> {
    for (const [index, task] of tasks.entries()) {
      try {
        if (await task.alreadyDone?.()) continue;
      } catch (lookUpError) {
        // The database is away: each would wait for it anew.
        for (const each of tasks.slice(index)) each.reject(lookUpError);
        return;
      }
      if (tasks.length > 1) await this.#attempt(roomId, [task]);
      else {
        if (!MatrixError.is(error)) this.logger.error('An event could not be stored', { roomId, err: error });
        task.reject(error);
      }
    }
  }

  async #open(roomId: string, { roomVersion, isVersionProven }: RoomTask): Promise<WorkingRoom> {
    const snapshot = await this.snapshots.get(roomId);
    const isWrong =
      isVersionProven && snapshot && snapshot.rules.version !== roomVersion && snapshot.extremities.size === 0;
    if (snapshot && !isWrong) return new WorkingRoom(snapshot);
    const rules = roomVersion === undefined ? undefined : roomVersionRules(roomVersion);
    if (!rules) throw unknownRoom();
    return new WorkingRoom(new RoomSnapshot(roomId, rules, this.config.serverName), true);
  }

  async #commit(room: WorkingRoom, { options }: RoomTask): Promise<StoredEvent[]> {
    if (room.rejudged) this.contexts.forgetRoom(room.roomId);
    const stored = await this.committer.commit(room, {
      ...options,
      ...(room.isNew && { first: (tx) => insertRemoteRoom(tx, room.roomId, room.rules.version) }),
    });
    this.snapshots.keep(room.base);
    return stored;
  }
}
