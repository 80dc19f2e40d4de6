import { Injectable } from '@nestjs/common';
import { Database, type Db } from '@rookery/database';
import { stateKeyOf, type StateMap } from '@rookery/state-res';
import { EventStore } from '../store/event-store.js';
import type { StoredEvent } from '../model/stored-event.js';
import { RecentEvents } from '../store/recent-events.js';
import { type StateFilter, stateFilterSql } from './state-filter.js';
import { selectGroupsOf, selectStates } from './state-groups.query.js';

/** A change of current state, in stream order. `eventId` absent: the entry was removed. */
export interface StateDelta {
  readonly streamId: number;
  readonly roomId: string;
  readonly type: string;
  readonly stateKey: string;
  readonly eventId: string | undefined;
  readonly prevEventId: string | undefined;
}

interface CurrentRow {
  readonly room_id: string;
  readonly type: string;
  readonly state_key: string;
  readonly event_id: string;
}

interface DeltaRow {
  readonly stream_id: number;
  readonly room_id: string;
  readonly type: string;
  readonly state_key: string;
  readonly event_id: string | null;
  readonly prev_event_id: string | null;
}

/** State of rooms, now and at events. Every method takes a bounded number of queries, whatever is asked. */
@Injectable()
export class RoomStateReader {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly recent: RecentEvents,
  ) {}

  /** Current state, by {@link stateKeyOf}. Empty for a room that is not known. */
  async currentIds(roomId: string, filter?: StateFilter, db: Db = this.database): Promise<Map<string, string>> {
    return (await this.currentIdsOf([roomId], filter, db)).get(roomId) ?? new Map();
  }

  /** Current state of many rooms; rooms without any matching entry are absent. */
  async currentIdsOf(
    roomIds: readonly string[],
    filter?: StateFilter,
    db: Db = this.database,
  ): Promise<Map<string, Map<string, string>>> {
    const condition = stateFilterSql(filter, (column) => db.dialect.anyOf(column));
    const rows = await db.query<CurrentRow>(
      `SELECT room_id, type, state_key, event_id FROM current_state_events
       WHERE ${db.dialect.anyOf('room_id')} ${condition ? `AND ${condition.sql}` : ''}`,
      [roomIds, ...(condition?.params ?? [])],
    );
    const rooms = new Map<string, Map<string, string>>();
    for (const row of rows) {
      let state = rooms.get(row.room_id);
      if (!state) rooms.set(row.room_id, (state = new Map()));
      state.set(stateKeyOf(row.type, row.state_key), row.event_id);
    }
    return rooms;
  }

  /** Current state, loaded. */
  async current(roomId: string, filter?: StateFilter): Promise<StoredEvent[]> {
    return this.events.inOrder([...(await this.currentIds(roomId, filter)).values()]);
  }

  /** One entry of current state. */
  async currentEvent(roomId: string, type: string, stateKey = ''): Promise<StoredEvent | undefined> {
    const eventId = await this.currentId(roomId, type, stateKey);
    return eventId === undefined ? undefined : this.events.one(eventId);
  }

  /** The id of one entry of current state. */
  async currentId(roomId: string, type: string, stateKey = ''): Promise<string | undefined> {
    const row = await this.database.get<{ event_id: string }>(
      'SELECT event_id FROM current_state_events WHERE room_id = ? AND type = ? AND state_key = ?',
      [roomId, type, stateKey],
    );
    return row?.event_id;
  }

  /** State after events, by event id. Outliers and unknown events are absent. */
  async idsAfter(eventIds: readonly string[], filter?: StateFilter): Promise<Map<string, StateMap>> {
    const groups = await selectGroupsOf(this.database, eventIds);
    const states = await selectStates(this.database, [...new Set(groups.values())], filter);
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
    if (changed.length === 0) return [];
    const rows = await this.database.query<DeltaRow>(
      `SELECT stream_id, room_id, type, state_key, event_id, prev_event_id FROM current_state_delta_stream
       WHERE ${this.database.dialect.anyOf('room_id')} AND stream_id > ? AND stream_id <= ? ORDER BY stream_id`,
      [changed, after, upTo],
    );
    return rows.map(delta);
  }

  /** The same over all rooms, for followers; at most `limit` rows, whole stream ids only. */
  async allDeltas(after: number, upTo: number, limit: number): Promise<StateDelta[]> {
    const rows = await this.database.query<DeltaRow>(
      `SELECT stream_id, room_id, type, state_key, event_id, prev_event_id FROM current_state_delta_stream
       WHERE stream_id > ? AND stream_id <= LEAST_OF(?, (
         SELECT MAX(stream_id) FROM (SELECT stream_id FROM current_state_delta_stream WHERE stream_id > ?
         ORDER BY stream_id LIMIT ${Math.max(1, Math.trunc(limit))}) AS page)) ORDER BY stream_id`.replace(
        'LEAST_OF',
        this.database.dialect.name === 'sqlite' ? 'MIN' : 'LEAST',
      ),
      [after, upTo, after],
    );
    return rows.map(delta);
  }

  /** Whether a user of this server is in a room: then its current state is kept up to date. */
  async isOurs(roomId: string): Promise<boolean> {
    const row = await this.database.get(
      `SELECT 1 AS found FROM local_current_membership WHERE room_id = ? AND membership = 'join' LIMIT 1`,
      [roomId],
    );
    return row !== undefined;
  }

  /** Versions of the rooms that are known. */
  async versions(roomIds: readonly string[]): Promise<Map<string, string>> {
    const rows = await this.database.query<{ room_id: string; room_version: string }>(
      `SELECT room_id, room_version FROM rooms WHERE ${this.database.dialect.anyOf('room_id')}`,
      [roomIds],
    );
    return new Map(rows.map((row) => [row.room_id, row.room_version]));
  }
}

function delta(row: DeltaRow): StateDelta {
  return {
    streamId: row.stream_id,
    roomId: row.room_id,
    type: row.type,
    stateKey: row.state_key,
    eventId: row.event_id ?? undefined,
    prevEventId: row.prev_event_id ?? undefined,
  };
}
