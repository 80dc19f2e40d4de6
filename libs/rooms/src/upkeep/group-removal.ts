import { Injectable } from '@nestjs/common';
import { DataStores, type Tx } from '@rookery/database';
import { EventPersister } from '../pipeline/event-persister.js';
import { StateGroups } from '../state/state-groups-cache.js';
import { RoomIds } from '../store/room-ids.js';
import { countDeletion } from '../store/state-database.query.js';
import {
  deleteGroups,
  deleteSomeGroups,
  findUnusedApart,
  selectGroupsOfRoom,
  selectUnusedGroups,
  type UnusedGroup,
} from './purge.query.js';

/** Which state groups are collected, and until when. */
export interface CollectOptions {
  /** Only those that nobody can be about to build upon, so that a room in use makes none of them anew. */
  readonly superseded?: boolean;
  readonly signal?: AbortSignal;
}

/** State groups that are looked at at once. */
const groupsAtOnce = 200;
/** Rows of a room that is deleted as a whole, at once. */
const roomRowsAtOnce = 500;
/** State groups that are looked at at once where they have a database of their own. */
const leavesAtOnce = 200;
/** Rows of state groups that are deleted at once. */
const batchRows = 5_000;

/** Deletes state groups, wherever they lie. */
@Injectable()
export class GroupRemoval {
  constructor(
    private readonly stores: DataStores,
    private readonly persister: EventPersister,
    private readonly groups: StateGroups,
    private readonly ids: RoomIds,
  ) {}

  /**
   * Deletes all state groups of a room of which no event is left, while nothing else can happen in it.
   * @param between done after each step; what it throws ends the work, which may be taken up again
   */
  async removeAll(roomId: string, between: () => Promise<void>): Promise<void> {
    // By number: were another process the writer by now, what it stores of the room has higher ones.
    const upTo = this.ids.lastStateGroup;
    const isAnyLeft = (): Promise<boolean> =>
      this.#deleteGroups((tx) => deleteSomeGroups(tx, roomId, upTo, roomRowsAtOnce), 'purge_groups');
    while (await isAnyLeft()) await between();
  }

  /**
   * Deletes state groups of a room that nothing rests on, a few at a time.
   * @param options `superseded`: only those that nobody can be about to build upon, so that a room in use makes none of them anew
   * @returns how many
   */
  async collect(roomId: string, options: CollectOptions = {}): Promise<number> {
    if (this.stores.isSplit) return this.#collectApart(roomId, options.signal);
    const superseded = options.superseded === true;
    let groups = await selectGroupsOfRoom(this.stores.main, roomId);
    let collected = 0;
    // Nearly all go in the first round; what went in a later part of it may have been all that rested on others before.
    for (let before = -1; before !== collected;) {
      before = collected;
      const left: number[] = [];
      for (let start = 0; start < groups.length; start += groupsAtOnce) {
        const some = new Set(groups.slice(start, start + groupsAtOnce));
        for (let isAnyGone = true; isAnyGone;) {
          if (options.signal?.aborted === true) return collected;
          const gone = await this.persister.exclusively(roomId, async () =>
            this.#deleteUnused(await selectUnusedGroups(this.stores.main, [...some], superseded)),
          );
          for (const group of gone) some.delete(group);
          collected += gone.length;
          isAnyGone = gone.length > 0;
        }
        left.push(...some);
      }
      groups = left;
    }
    return collected;
  }

  /** The same where state has a database of its own: part by part, again and again while what was deleted rested on others. */
  async #collectApart(roomId: string, signal: AbortSignal | undefined): Promise<number> {
    let [collected, inThisRound] = [0, 0];
    let after: number | undefined = Number.MIN_SAFE_INTEGER;
    const part = { limit: leavesAtOnce, writtenBefore: this.ids.stateGroupsBefore };
    while (signal?.aborted !== true) {
      const { count, next }: { count: number; next: number | undefined } = await this.persister.exclusively(
        roomId,
        async () => {
          const found = await findUnusedApart(
            this.stores,
            { ...part, after: after ?? Number.MIN_SAFE_INTEGER },
            roomId,
          );
          const deleted = (await this.#deleteUnused(found.unused)).length;
          // What was too much for one turn is found again from where this one began.
          return { count: deleted, next: deleted < found.unused.length ? after : found.next };
        },
      );
      collected += count;
      inThisRound += count;
      after = next;
      if (after !== undefined) continue;
      if (inThisRound === 0) break;
      inThisRound = 0;
    }
    return collected;
  }

  /** Deletes the first of these groups, as many as may go at once; which. */
  async #deleteUnused(found: readonly UnusedGroup[]): Promise<readonly number[]> {
    let rows = 0;
    // One of them may hold the whole state of a large room.
    const unused = found.filter((one, i) => (rows += one.rows) <= batchRows || i === 0).map(({ group }) => group);
    if (unused.length === 0) return [];
    await this.#deleteGroups((tx) => deleteGroups(tx, unused), 'collect_groups');
    this.groups.forget(unused);
    return unused;
  }

  #deleteGroups<T>(work: (tx: Tx) => Promise<T>, name: string): Promise<T> {
    const { state, isSplit } = this.stores;
    return state.write(
      async (tx) => {
        if (isSplit) await countDeletion(tx);
        return work(tx);
      },
      { name },
    );
  }
}
