import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { EventSerializer, EventStore, MembershipReader, VisibilityFilter } from '@rookery/rooms';
import { OwnReads } from './own-reads.js';
import {
  countRoomEvents,
  type NotificationRow,
  selectMarks,
  selectNotifications,
  selectNotifiedRange,
} from './push-actions.query.js';

/** A page of notifications. */
export interface NotificationsPage {
  readonly notifications: readonly JsonObject[];
  /** `null` on the last page. */
  readonly next_token: string | null;
}

/** So many events at most are looked at for a page: in some rooms hardly any of them notifies. */
const maxLookedAt = 20_000;
/** So many positions are looked at first, then more with each step. Less than {@link maxLookedAt}, so that a page gets on. */
const firstStep = 4_096;

/** What users were notified of, newest first. */
@Injectable()
export class NotificationHistory {
  constructor(
    private readonly database: Database,
    private readonly events: EventStore,
    private readonly memberships: MembershipReader,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
    private readonly ownReads: OwnReads,
  ) {}

  /**
   * A page, from a token of the page before it. It may be empty although there are more: where many events lie between two
   * notifications, the token goes on behind those that were looked at. Of rooms that the user has forgotten nothing is told.
   * @throws MatrixError 400 `M_INVALID_PARAM` for a token that is none
   * @spec client-server-api#listing-notifications
   */
  async page(
    requester: Requester,
    options: { readonly from?: string | undefined; readonly limit: number; readonly onlyHighlights: boolean },
  ): Promise<NotificationsPage> {
    const { userId } = requester;
    const before = options.from === undefined ? Number.MAX_SAFE_INTEGER : parseToken(options.from);
    await this.ownReads.settle(userId);
    const { rows, next } = await this.#rows(userId, { ...options, before });
    const more = { next_token: next === undefined ? null : String(next) };
    if (rows.length === 0) return { notifications: [], ...more };
    const roomIds = [...new Set(rows.map((row) => row.room_id))];
    const [found, marks, memberships] = await Promise.all([
      this.events.inOrder(rows.map((row) => row.event_id)),
      selectMarks(this.database, userId, roomIds),
      this.memberships.inRooms(userId, roomIds),
    ]);
    const stored = found.filter(({ event }) => {
      const membership = memberships.get(event.roomId);
      return membership?.forgotten !== true || membership.membership === 'join';
    });
    // An invite that came from another server has no place in a timeline, and is shown to its target nevertheless.
    const invites = stored.filter(({ outlier, event }) => outlier && event.stateKey === userId);
    const shown = [
      ...(await this.visibility.visible(userId, stored)),
      ...invites.map((invite) => ({ stored: invite, membership: undefined })),
    ];
    const written = await this.serializer.serialize(requester, shown, { withoutRoomId: true });
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
    return { notifications, ...more };
  }

  /** @returns `next`: what lies before this position was not looked at; absent where all was */
  async #rows(
    userId: string,
    options: { readonly before: number; readonly limit: number; readonly onlyHighlights: boolean },
  ): Promise<{ readonly rows: readonly NotificationRow[]; readonly next: number | undefined }> {
    const { limit, onlyHighlights } = options;
    const { oldest, newest } = await selectNotifiedRange(this.database, userId);
    const rows: NotificationRow[] = [];
    let before = Math.min(options.before, newest + 1);
    // Messages that highlight have an index of their own.
    let step = onlyHighlights ? Infinity : firstStep;
    let left = maxLookedAt;
    for (;;) {
      const lowest = before - 1 - step;
      const after = lowest < oldest ? 0 : lowest;
      const events = onlyHighlights ? 0 : await countRoomEvents(this.database, userId, { after, before, limit: left });
      if (events > left) {
        if (left < firstStep) return { rows, next: before };
        step = Math.max(firstStep, Math.min(step / 4, left));
        continue;
      }
      const range = { after, before, limit: limit - rows.length, onlyHighlights };
      rows.push(...(await selectNotifications(this.database, userId, range)));
      if (rows.length >= limit) return { rows, next: rows.at(-1)!.stream_ordering };
      if (after === 0) return { rows, next: undefined };
      left -= events;
      before = after + 1;
      step *= 4;
    }
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
