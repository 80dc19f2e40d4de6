import { Injectable, type OnModuleInit } from '@nestjs/common';
import { defineBackgroundUpdate } from '@rookery/database';
import { isJsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { isServable, RoomHooks, type StoredEvent } from '@rookery/rooms';
import { rebuildUpdates } from '../migrations/index.js';
import {
  deleteMessages,
  deleteRedacted,
  deleteRoomMessages,
  type IndexedMessage,
  indexMessages,
  type RawEventRow,
  selectOlderEvents,
} from './message-index.query.js';
import { searchableTypes, searchableWords } from './searchable.js';

/**
 * Takes out of the index what is redacted or deleted, in the transactions that do it, and puts in what was fetched from the
 * past. What is said now comes in by `MessageFollower`.
 */
@Injectable()
export class MessageIndex implements OnModuleInit {
  /** Something may have been taken out of which the index still holds the words; after a start nobody knows. */
  hasTakenOut = true;

  constructor(
    private readonly hooks: RoomHooks,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    const isOn = this.config.get('enable_search');
    // What is deleted goes from the index even while nothing is added to it.
    this.hooks.subscribe({
      inTransaction: async (tx, { events, backfilled }) => {
        if (isOn && backfilled) await indexMessages(tx, events.flatMap(messageOf));
        const redactions = events.filter((stored) => stored.event.redacts !== undefined && isServable(stored));
        if (redactions.length === 0) return;
        this.hasTakenOut = true;
        await deleteRedacted(
          tx,
          redactions.map(({ event }) => event.eventId),
        );
      },
      onEventsPurged: (tx, _roomId, eventIds) => {
        this.hasTakenOut = true;
        return deleteMessages(tx, eventIds);
      },
      onRoomPurged: deleteRoomMessages,
    });
  }
}

function messageOf(stored: StoredEvent): IndexedMessage[] {
  const { event, streamOrdering } = stored;
  const words = isServable(stored) ? searchableWords(event.type, event.content) : [];
  return words.length === 0 ? [] : [{ streamOrdering, roomId: event.roomId, words }];
}

/** What of an event as it was stored belongs into the index, if anything. */
export function messageOfRow(row: RawEventRow): IndexedMessage | undefined {
  const { content } = JSON.parse(row.json) as { content?: unknown };
  const words = isJsonObject(content) ? searchableWords(row.type, content) : [];
  return words.length === 0 ? undefined : { streamOrdering: row.stream_ordering, roomId: row.room_id, words };
}

/** Indexes what was stored before there was an index, the newest first. */
export const messageIndexUpdate = defineBackgroundUpdate({
  name: rebuildUpdates.messages,
  async run({ tx, progress, batchSize }) {
    const before = typeof progress['before'] === 'number' ? progress['before'] : Number.MAX_SAFE_INTEGER;
    const rows = await selectOlderEvents(tx, searchableTypes, before, batchSize);
    await indexMessages(
      tx,
      rows.flatMap((row) => messageOfRow(row) ?? []),
    );
    const last = rows.at(-1);
    return {
      items: rows.length,
      progress: { before: last?.stream_ordering ?? before },
      finished: rows.length < batchSize,
    };
  },
});
