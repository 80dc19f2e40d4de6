import { Injectable } from '@nestjs/common';
import { DataStores, type Db } from '@rookery/database';
import { authStateOf, type PowerLevels, powerLevelsOf, stateKeyOf, type StateMap } from '@rookery/state-res';
import { EventStore } from '../store/event-store.js';
import type { StoredEvent } from '../model/stored-event.js';
import { PartialRooms } from '../store/partial-rooms.js';
import { RecentEvents } from '../store/recent-events.js';
import { RoomIds } from '../store/room-ids.js';
import {
  hasLocalMember,
  selectAllStateDeltas,
  selectCurrentId,
  selectCurrentState,
  selectRoomVersions,
  type StateDelta,
  type WantedEntry,
} from './room-state.query.js';
import type { StateFilter } from './state-filter.js';
import { selectGroupsOf } from './state-groups.query.js';
import { readCurrentEntries, readCurrentState, readStateDeltas, readStates } from './state-pages.js';

/** The state that says what members may do: who made the room has power of its own. */
const decisive = [
  ['m.room.create', ''],
  ['m.room.power_levels', ''],
] as const;

/** State of rooms, now and at events. Every method takes a bounded number of queries, whatever is asked; of large rooms one for each page. */
@Injectable()
export class RoomStateReader {
  constructor(
    private readonly stores: DataStores,
    private readonly events: EventStore,
    private readonly recent: RecentEvents,
    private readonly partial: PartialRooms,
    private readonly ids: RoomIds,
  ) {}

  /** Whether all of a room's state is here: without, some members may not be known (MSC3902). */
  isWhole(roomId: string): boolean {
    return !this.partial.has(roomId);
  }

  /** Waits until all of a room's state is here. @throws MatrixError 503 when that takes too long */
  whole(roomId: string): Promise<void> {
    return this.partial.whole(roomId);
  }

  /** Current state, by {@link stateKeyOf}. Empty for a room that is not known. */
  async currentIds(roomId: string, filter?: StateFilter, db: Db = this.stores.main): Promise<Map<string, string>> {
    return (await this.currentIdsOf([roomId], filter, db)).get(roomId) ?? new Map();
  }

  /** Current state of many rooms; rooms without any matching entry are absent. */
  currentIdsOf(
    roomIds: readonly string[],
    filter?: StateFilter,
    db: Db = this.stores.main,
  ): Promise<Map<string, Map<string, string>>> {
    // A transaction waits for nothing but the database.
    if (db !== this.stores.main) return selectCurrentState(db, roomIds, filter);
    return readCurrentState(db, roomIds, filter, () => this.ids.events.current());
  }

  /** Entries of current state, of each room its own, by room and {@link stateKeyOf}; rooms without any of them are absent. */
  currentEntries(wanted: Iterable<WantedEntry>): Promise<Map<string, Map<string, string>>> {
    return readCurrentEntries(this.stores.main, wanted);
  }

  /** Current state, loaded. */
  async current(roomId: string, filter?: StateFilter): Promise<StoredEvent[]> {
    return this.events.inOrder([...(await this.currentIds(roomId, filter)).values()]);
  }

  /** Current state of many rooms, loaded; rooms without any matching entry are absent. */
  async currentOf(roomIds: readonly string[], filter?: StateFilter): Promise<Map<string, StoredEvent[]>> {
    const states = await this.currentIdsOf(roomIds, filter);
    const found = await this.events.many([...states.values()].flatMap((state) => [...state.values()]));
    return new Map(
      [...states].map(([roomId, state]) => [roomId, [...state.values()].flatMap((id) => found.get(id) ?? [])]),
    );
  }

  /** One entry of current state. */
  async currentEvent(roomId: string, type: string, stateKey = ''): Promise<StoredEvent | undefined> {
    const eventId = await this.currentId(roomId, type, stateKey);
    return eventId === undefined ? undefined : this.events.one(eventId);
  }

  /** Who may do what in a room now, by its auth rules; `undefined` for a room that is not known. */
  async powerLevels(roomId: string): Promise<PowerLevels | undefined> {
    const events = (await this.current(roomId, { types: decisive })).map((stored) => stored.event);
    return events[0] && powerLevelsOf(authStateOf(events), events[0].rules);
  }

  /** The id of one entry of current state. */
  currentId(roomId: string, type: string, stateKey = ''): Promise<string | undefined> {
    return selectCurrentId(this.stores.main, roomId, type, stateKey);
  }

  /** State after events, by event id. Outliers and unknown events are absent. */
  async idsAfter(eventIds: readonly string[], filter?: StateFilter): Promise<Map<string, StateMap>> {
    const groups = await selectGroupsOf(this.stores.main, eventIds);
    const states = await readStates(this.stores.state, [...new Set(groups.values())], filter);
    return new Map([...groups].map(([eventId, group]) => [eventId, states.get(group)!]));
  }

  /** State before an event: that after it, with its own entry set back. `undefined` for an outlier. */
  async idsBefore(stored: StoredEvent, filter?: StateFilter): Promise<StateMap | undefined> {
    const { eventId, type, stateKey } = stored.event;
    const after = (await this.idsAfter([eventId], filter)).get(eventId);
    if (!after || stateKey === undefined) return after;
    const key = stateKeyOf(type, stateKey);
    if (after.get(key) !== eventId) return after;
    const before = new Map(after);
    if (stored.replacesState === undefined) before.delete(key);
    else before.set(key, stored.replacesState);
    return before;
  }

  /** Changes of current state with `after < stream id <= upTo`, oldest first. */
  async deltas(roomIds: readonly string[], after: number, upTo: number): Promise<StateDelta[]> {
    const changed = this.recent.stateChanged(roomIds, after);
    return changed.length === 0 ? [] : readStateDeltas(this.stores.main, changed, after, upTo);
  }

  /** The same over all rooms, for followers; at most `limit` rows, whole stream ids only. */
  allDeltas(after: number, upTo: number, limit: number): Promise<StateDelta[]> {
    return selectAllStateDeltas(this.stores.main, after, upTo, limit);
  }

  /** Whether a user of this server is in a room: then its current state is kept up to date. */
  isOurs(roomId: string): Promise<boolean> {
    return hasLocalMember(this.stores.main, roomId);
  }

  /** Versions of the rooms that are known. */
  versions(roomIds: readonly string[]): Promise<Map<string, string>> {
    return selectRoomVersions(this.stores.main, roomIds);
  }
}
