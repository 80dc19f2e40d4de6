import { Injectable } from '@nestjs/common';
import { type StickyEvent, StickyEvents } from '@rookery/ephemeral';
import type { JsonObject } from '@rookery/matrix-types';
import { EventSerializer } from '@rookery/rooms';
import type { Written } from './extension-context.js';

/** Which sticky events a sliding sync asks for. */
export interface StickyUpdatesQuery {
  readonly userId: string;
  readonly deviceId: string | undefined;
  /** Joined rooms that the client is interested in. */
  readonly rooms: readonly string[];
  /** Those among them that the user has joined lately: all of their sticky events are news. */
  readonly anew: readonly string[];
  readonly after: number;
  readonly upTo: number;
  readonly limit: number;
  /** Events that the answer shows anyway. */
  readonly shown: ReadonlySet<string>;
}

/** Newly joined rooms bring all their sticky events at once, if need be the newest; a sender counts with a hundred in a room at most. */
const maxOfNewRooms = 5_000;

/** Sticky events for sliding sync (MSC4480, once a part of MSC4354). */
@Injectable()
export class StickyUpdates {
  constructor(
    private readonly sticky: StickyEvents,
    private readonly serializer: EventSerializer,
  ) {}

  get isEnabled(): boolean {
    return this.sticky.isEnabled;
  }

  /** The part of an answer: `undefined` when there is nothing new. That there is more behind a page is news, though nothing of it is shown. */
  async read(query: StickyUpdatesQuery): Promise<Written | undefined> {
    const { userId, deviceId, after, upTo, limit, shown } = query;
    const changed = this.sticky.changedRooms(new Set(query.rooms), after);
    const [page, ofNewRooms] = await Promise.all([
      this.sticky.of(userId, changed, { after, upTo, limit }),
      this.sticky.newest(userId, query.anew, { after: 0, upTo: after, limit: maxOfNewRooms }),
    ]);
    const events = [...ofNewRooms, ...page.events].filter(({ stored }) => !shown.has(stored.event.eventId));
    if (events.length === 0 && page.position <= after) return undefined;
    const rooms = await this.#write({ userId, deviceId }, events);
    return {
      value: { next_batch: String(page.position), rooms },
      hasNews: events.length > 0 || page.position < upTo,
    };
  }

  async #write(
    reader: { readonly userId: string; readonly deviceId: string | undefined },
    events: readonly StickyEvent[],
  ): Promise<JsonObject> {
    const visible = events.map(({ stored }) => ({ stored, membership: undefined }));
    const written = await this.serializer.serialize(reader, visible, { withoutRoomId: true });
    const rooms: Record<string, { events: JsonObject[] }> = {};
    for (const [index, { stored }] of visible.entries()) {
      (rooms[stored.event.roomId] ??= { events: [] }).events.push({ ...written[index] });
    }
    return rooms;
  }
}
