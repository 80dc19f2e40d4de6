import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, type Requester } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import { EventSerializer, RoomAccess, TimelineReader, VisibilityFilter } from '@rookery/rooms';
import { RoomActivity } from '../caches/room-activity.js';
import { formatSyncToken, parseSyncToken } from '../request/sync-token.js';
import { SyncService } from '../sync.service.js';

/** Events of an answer. */
const maxEvents = 100;

/** Watches one room that the user may read, joined or not. */
@Injectable()
export class RoomNews {
  // Eight parameters: whether the room may be read, until when to wait, and what of it is shown.
  constructor(
    private readonly sync: SyncService,
    private readonly activity: RoomActivity,
    private readonly access: RoomAccess,
    private readonly timelines: TimelineReader,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
    private readonly notifier: Notifier,
    private readonly clock: Clock,
  ) {}

  /**
   * Its events since a token, the oldest first, a page at a time; waits until there are some, or the time is over.
   * @param from a token of an earlier answer; from now on without one
   * @throws MatrixError 400 `M_INVALID_PARAM`, 403 `M_FORBIDDEN`
   * @spec client-server-api#room-previews
   */
  async since(
    requester: Requester,
    roomId: string,
    from: string | undefined,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<JsonObject> {
    await this.access.read(requester, roomId);
    const since =
      from === undefined ? this.sync.currentToken() : (await this.sync.placed(parseSyncToken(from), signal)).token;
    const deadlineMs = this.clock.monotonicMs() + timeoutMs;
    let after = since.events;
    const told = (chunk: readonly JsonObject[]): JsonObject => ({
      start: formatSyncToken(since),
      end: formatSyncToken({ ...since, events: after }),
      chunk: [...chunk],
    });
    for (;;) {
      const leftMs = deadlineMs - this.clock.monotonicMs();
      // The wait begins before the reading, so that nothing falls between the two.
      const wait = this.notifier.begin(requester.userId, {
        timeoutMs: leftMs,
        signal,
        inRoom: (changed) => changed === roomId,
      });
      try {
        const page = await this.#page(requester, roomId, after, this.sync.currentToken().events);
        after = page.upTo;
        if (page.chunk.length > 0) return told(page.chunk);
        // Of a full page that shows nothing the next one follows.
        if (!page.isFull && (await wait.outcome) !== 'news') return told([]);
      } finally {
        wait.end();
      }
    }
  }

  async #page(
    requester: Requester,
    roomId: string,
    after: number,
    now: number,
  ): Promise<{ readonly chunk: readonly JsonObject[]; readonly upTo: number; readonly isFull: boolean }> {
    if (this.activity.changedRooms(new Set([roomId]), after).length === 0)
      return { chunk: [], upTo: now, isFull: false };
    const events = await this.timelines.arrivals(roomId, after, now, maxEvents);
    const isFull = events.length === maxEvents;
    const upTo = isFull ? (events.at(-1)?.streamOrdering ?? now) : now;
    const visible = await this.visibility.visible(requester.userId, events);
    // Whoever may not read on is told so, rather than left waiting.
    if (visible.length === 0) await this.access.read(requester, roomId);
    const chunk = (await this.serializer.serialize(requester, visible)) as unknown as JsonObject[];
    return { chunk, upTo, isFull };
  }
}
