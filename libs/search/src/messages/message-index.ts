import { Injectable, type OnModuleInit } from '@nestjs/common';
import { defineBackgroundUpdate } from '@rookery/database';
import { domainOf, isJsonObject } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { type EventBatch, EventStore, isServable, RoomHooks } from '@rookery/rooms';
import { PowerLevels } from '@rookery/state-res';
import { rebuildUpdates } from '../migrations/index.js';
import {
  deleteMessages,
  deleteRoomMessages,
  type IndexedMessage,
  insertMessages,
  selectOlderEvents,
} from './message-index.query.js';
import { searchableTypes, searchableWords } from './searchable.js';

interface Prepared {
  readonly messages: readonly IndexedMessage[];
  readonly withdrawn: readonly string[];
}

/** Keeps the index of messages, in the transactions that store them. */
@Injectable()
export class MessageIndex implements OnModuleInit {
  constructor(
    private readonly hooks: RoomHooks,
    private readonly events: EventStore,
    private readonly config: Config,
  ) {}

  onModuleInit(): void {
    const isOn = this.config.get('enable_search');
    // What is deleted goes from the index even while nothing is added to it.
    this.hooks.subscribe<Prepared>({
      prepare: async (batch) => ({
        messages: isOn ? this.#messages(batch) : [],
        withdrawn: await this.#withdrawn(batch),
      }),
      inTransaction: async (tx, _batch, prepared) => {
        if (prepared === undefined) return;
        await insertMessages(tx, prepared.messages);
        if (prepared.withdrawn.length > 0) await deleteMessages(tx, prepared.withdrawn);
      },
      onEventsPurged: (tx, _roomId, eventIds) => deleteMessages(tx, eventIds),
      onRoomPurged: deleteRoomMessages,
    });
  }

  #messages({ events }: EventBatch): IndexedMessage[] {
    return events.flatMap((stored): IndexedMessage[] => {
      const { event, streamOrdering } = stored;
      const found = isServable(stored) ? searchableWords(event.type, event.content) : undefined;
      if (found === undefined) return [];
      const { eventId, roomId, sender, originServerTs } = event;
      return [{ eventId, roomId, sender, originServerTs, streamOrdering, ...found }];
    });
  }

  /** What the batch redacts: own events and those of the own server, and what the power levels let one redact. */
  async #withdrawn({ events, room }: EventBatch): Promise<string[]> {
    const redactions = events.filter((stored) => stored.event.redacts !== undefined && isServable(stored));
    if (redactions.length === 0) return [];
    const targets = await this.events.many(redactions.map(({ event }) => event.redacts ?? ''));
    const [powerLevels, create] = await Promise.all([
      room.state('m.room.power_levels', ''),
      room.state('m.room.create', ''),
    ]);
    const levels = new PowerLevels(powerLevels, create, room.rules);
    return redactions.flatMap(({ event }) => {
      const target =
        targets.get(event.redacts ?? '')?.event ?? events.find((each) => each.event.eventId === event.redacts)?.event;
      if (target === undefined || target.roomId !== room.roomId) return [];
      const mayRedact =
        domainOf(event.sender) === domainOf(target.sender) || levels.user(event.sender) >= levels.scalar('redact');
      return mayRedact ? [target.eventId] : [];
    });
  }
}

/** Indexes what was stored before there was an index, the newest first. */
export const messageIndexUpdate = defineBackgroundUpdate({
  name: rebuildUpdates.messages,
  async run({ tx, progress, batchSize }) {
    const before = typeof progress['before'] === 'number' ? progress['before'] : Number.MAX_SAFE_INTEGER;
    const rows = await selectOlderEvents(tx, searchableTypes, before, batchSize);
    const messages = rows.flatMap((row): IndexedMessage[] => {
      const { content } = JSON.parse(row.json) as { content?: unknown };
      const found = isJsonObject(content) ? searchableWords(row.type, content) : undefined;
      if (found === undefined) return [];
      const [eventId, roomId, originServerTs] = [row.event_id, row.room_id, row.origin_server_ts];
      return [{ eventId, roomId, originServerTs, sender: row.sender, streamOrdering: row.stream_ordering, ...found }];
    });
    // What was stored since the server started is in the index already.
    await deleteMessages(
      tx,
      rows.map((row) => row.event_id),
    );
    await insertMessages(tx, messages);
    const last = rows.at(-1);
    return {
      items: rows.length,
      progress: { before: last?.stream_ordering ?? before },
      finished: rows.length < batchSize,
    };
  },
});
