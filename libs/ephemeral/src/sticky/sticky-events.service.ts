import { Injectable, type OnModuleInit } from '@nestjs/common';
import { Database } from '@rookery/database';
import { stickyDurationOf } from '@rookery/events';
import { BackgroundTasks, Clock, Config } from '@rookery/platform';
import { type ChangedKeys, defineStream, type Stream, Streams } from '@rookery/replication';
import { type EventBatch, EventStore, isServable, HiddenSenders, RoomHooks, type StoredEvent } from '@rookery/rooms';
import {
  deleteExpiredSticky,
  deleteSticky,
  deleteStickyOfRoom,
  highestSticky,
  insertSticky,
  type NewStickyRow,
  selectNewestSticky,
  selectSticky,
  type StickyRange,
  type StickyRow,
} from './sticky-event.query.js';

/** Sticky events, by room. */
export const stickyEventsStream = defineStream({
  name: 'sticky_events',
  takenUpTo: highestSticky,
  keys: { room: {} },
});

/** A sticky event with its place in the stream. */
export interface StickyEvent {
  readonly position: number;
  readonly stored: StoredEvent;
}

/** Which sticky events a reader wants. */
export interface StickyQuery {
  readonly after: number;
  readonly upTo: number;
  readonly limit: number;
}

/** Nobody takes more room in others' syncs than so many events of one room. */
const maxPerSender = 100;
const sweepEveryMs = 3_600_000;

/**
 * Events that everybody in a room gets while they are sticky, however much is said there (MSC4354). Nothing of it where the
 * server is not set so.
 */
@Injectable()
export class StickyEvents implements OnModuleInit {
  readonly isEnabled: boolean;
  readonly #stream: Stream<'room'> | undefined;
  readonly #inRooms: ChangedKeys | undefined;

  // Eight parameters: noted with the event, swept by a task, told by a stream, and shown to those who do not ignore the
  // sender.
  constructor(
    private readonly database: Database,
    private readonly clock: Clock,
    private readonly events: EventStore,
    private readonly hidden: HiddenSenders,
    private readonly hooks: RoomHooks,
    private readonly tasks: BackgroundTasks,
    config: Config,
    streams: Streams,
  ) {
    this.isEnabled = config.get('experimental_features.msc4354_enabled');
    this.#stream = this.isEnabled ? streams.of(stickyEventsStream) : undefined;
    this.#inRooms = this.#stream?.changes('room');
  }

  onModuleInit(): void {
    const stream = this.#stream;
    if (stream === undefined) return;
    this.hooks.subscribe<readonly Omit<NewStickyRow, 'stream_id'>[]>({
      prepare: async (batch) => this.#stickyOf(batch),
      inTransaction: async (tx, { roomId, room }, rows = []) => {
        if (rows.length === 0) return;
        const positions = await stream.allocateIn(tx, rows.length);
        await insertSticky(
          tx,
          rows.map((row, index) => ({ ...row, stream_id: positions[index] ?? 0 })),
        );
        const users = new Set(room.localMembers);
        stream.announceIn(tx, positions.at(-1) ?? 0, { changed: { room: [roomId] }, users });
      },
      onEventsPurged: (tx, _, eventIds) => deleteSticky(tx, eventIds),
      onRoomPurged: deleteStickyOfRoom,
    });
    const run = (): Promise<void> => this.#sweep();
    this.tasks.add({ name: 'forget_sticky_events', role: 'background', everyMs: sweepEveryMs, run }).start();
  }

  /** Rooms that may have new sticky events since a position; all others have none. Costs no query. */
  changedRooms(roomIds: ReadonlySet<string>, since: number): string[] {
    return this.#inRooms?.changedSince(roomIds, since) ?? [];
  }

  /**
   * Events of rooms that are sticky now and have `after < position <= upTo`, oldest first, without what ignored users sent.
   * History visibility does not hide them: who is in the room gets them.
   * @param position up to where the answer goes: short of `upTo` when there are more
   */
  async of(
    userId: string,
    roomIds: readonly string[],
    { after, upTo, limit }: StickyQuery,
  ): Promise<{ readonly events: readonly StickyEvent[]; readonly position: number }> {
    if (!this.isEnabled || roomIds.length === 0 || upTo <= after) return { events: [], position: upTo };
    const rows = await selectSticky(this.database, roomIds, await this.#rangeOf(userId, { after, upTo, limit }));
    const position = rows.length < limit ? upTo : (rows.at(-1)?.stream_id ?? upTo);
    return { events: await this.#eventsOf(rows), position };
  }

  /**
   * The same for who is told of them but once: where there are more, the newest, and of each room as many as of any other that has
   * more. Oldest first.
   */
  async newest(userId: string, roomIds: readonly string[], query: StickyQuery): Promise<readonly StickyEvent[]> {
    if (!this.isEnabled || roomIds.length === 0 || query.upTo <= query.after) return [];
    return this.#eventsOf(await selectNewestSticky(this.database, roomIds, await this.#rangeOf(userId, query)));
  }

  async #rangeOf(userId: string, query: StickyQuery): Promise<StickyRange> {
    const without = [...(await this.hidden.ignoredBy(userId))];
    return { ...query, nowMs: this.clock.nowMs(), perSender: maxPerSender, without };
  }

  async #eventsOf(rows: readonly StickyRow[]): Promise<StickyEvent[]> {
    const loaded = await this.events.many(rows.map((row) => row.event_id));
    return rows.flatMap((row): StickyEvent[] => {
      const stored = loaded.get(row.event_id);
      return stored === undefined || stored.redactedBy !== undefined ? [] : [{ position: row.stream_id, stored }];
    });
  }

  #stickyOf({ events, roomId }: EventBatch): Omit<NewStickyRow, 'stream_id'>[] {
    const nowMs = this.clock.nowMs();
    return events.flatMap((stored) => {
      const durationMs = isServable(stored) ? stickyDurationOf(stored.event) : undefined;
      if (durationMs === undefined) return [];
      const { eventId, sender, originServerTs } = stored.event;
      const expiresMs = Math.min(nowMs, originServerTs) + durationMs;
      if (expiresMs <= nowMs) return [];
      return [
        {
          event_id: eventId,
          room_id: roomId,
          event_stream_ordering: stored.streamOrdering,
          sender,
          expires_at: expiresMs,
        },
      ];
    });
  }

  async #sweep(): Promise<void> {
    const options = { name: 'sticky_events_sweep', anyProcess: true };
    await this.database.write((tx) => deleteExpiredSticky(tx, this.clock.nowMs()), options);
  }
}
