import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { EventSerializer, EventStore, readerOf, VisibilityFilter } from '@rookery/rooms';
import { type NotificationRow, selectMarks, selectNotifications } from './push-actions.query.js';

/** A page of notifications. */
export interface NotificationsPage {
  readonly notifications: readonly JsonObject[];
  readonly next_token?: string;
}

/** What users were notified of, newest first. */
@Injectable()
export class NotificationHistory {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
  ) {}

  /**
   * A page, from a token of the page before it.
   * @throws MatrixError 400 `M_INVALID_PARAM` for a token that is none
   * @spec client-server-api#listing-notifications
   */
  async page(
    requester: Requester,
    options: { readonly from?: string | undefined; readonly limit: number; readonly onlyHighlights: boolean },
  ): Promise<NotificationsPage> {
    const { limit, onlyHighlights } = options;
    const { userId } = requester;
    const before = options.from === undefined ? Number.MAX_SAFE_INTEGER : parseToken(options.from);
    const rows = await selectNotifications(this.database, userId, { before, limit, onlyHighlights });
    if (rows.length === 0) return { notifications: [] };
    const [stored, marks] = await Promise.all([
      this.events.inOrder(rows.map((row) => row.event_id)),
      selectMarks(this.database, userId, [...new Set(rows.map((row) => row.room_id))]),
    ]);
    // An invite that came from another server has no place in a timeline, and is shown to its target nevertheless.
    const invites = stored.filter(({ outlier, event }) => outlier && event.stateKey === userId);
    const shown = [
      ...(await this.visibility.visible(userId, stored)),
      ...invites.map((invite) => ({ stored: invite, membership: undefined })),
    ];
    const written = await this.serializer.serialize(readerOf(requester), shown, { withoutRoomId: true });
    const byId = new Map(
      shown.map((visible, index) => [visible.stored.event.eventId, { visible, event: written[index] }]),
    );
    const notifications = rows.flatMap((row): JsonObject[] => {
      const found = byId.get(row.event_id);
      if (found?.event === undefined) return [];
      return [
        {
          room_id: row.room_id,
          event: { ...found.event },
          actions: JSON.parse(row.actions) as unknown[],
          read: isRead(row, marks.get(row.room_id)),
          ts: found.visible.stored.receivedTs,
        },
      ];
    });
    const last = rows.at(-1);
    return last === undefined || rows.length < limit
      ? { notifications }
      : { notifications, next_token: String(last.stream_ordering) };
  }
}

function isRead(row: NotificationRow, marks: ReadonlyMap<string, number> | undefined): boolean {
  const upTo = Math.max(marks?.get('') ?? 0, marks?.get(row.thread_id) ?? 0);
  return row.stream_ordering <= upTo;
}

function parseToken(token: string): number {
  if (!/^\d{1,15}$/.test(token)) throw MatrixError.invalidParam("'from' is not a token of this endpoint");
  return Number(token);
}
