import { Injectable } from '@nestjs/common';
import type { JsonObject } from '@rookery/matrix-types';
import { Clock, eachLimit, type Requester } from '@rookery/platform';
import { Notifier } from '@rookery/replication';
import { EventSerializer, RoomAccess, type StoredEvent, TimelineReader, VisibilityFilter } from '@rookery/rooms';
import { RoomActivity } from '../caches/room-activity.js';
import { formatSyncToken, parseSyncToken } from '../request/sync-token.js';
import { SyncService } from '../sync.service.js';

/** Events of an answer, of each room. */
const maxEvents = 100;
const parallelReads = 8;

/** What came into rooms, the oldest first. */
export interface NewsPage {
  readonly chunk: readonly JsonObject[];
  /** Up to here it is all that there is to see; what came later follows upon it. */
  readonly upTo: number;
  /** More may have come. */
  readonly isFull: boolean;
}

/** What comes into rooms, a page at a time; and watches one room that the user may read, joined or not. */
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
        const page = await this.#pageOf(requester, roomId, after, this.sync.currentToken().events);
        after = page.upTo;
        if (page.chunk.length > 0) return told(page.chunk);
        // Of a full page that shows nothing the next one follows.
        if (!page.isFull && (await wait.outcome) !== 'news') return told([]);
      } finally {
        wait.end();
      }
    }
  }

  /**
   * Events of rooms after a position, up to another or as many as go into an answer: nobody is told of what would be left out.
   * @param roomIds rooms that the user is in, or was in: of these it is what came until then
   */
  async page(requester: Requester, roomIds: readonly string[], after: number, now: number): Promise<NewsPage> {
    const { byId } = await this.activity.roomsOf(requester.userId);
    const endOf = (roomId: string): number => {
      const own = byId.get(roomId);
      return own === undefined || own.membership === 'join' ? now : Math.min(now, own.streamOrdering);
    };
    return this.#page(requester, new Map(roomIds.map((roomId) => [roomId, endOf(roomId)])), after, now);
  }

  async #pageOf(requester: Requester, roomId: string, after: number, now: number): Promise<NewsPage> {
    if (this.activity.changedRooms(new Set([roomId]), after).length === 0)
      return { chunk: [], upTo: now, isFull: false };
    const page = await this.#page(requester, new Map([[roomId, now]]), after, now);
    // Whoever may not read on is told so, rather than left waiting.
    if (page.chunk.length === 0) await this.access.read(requester, roomId);
    return page;
  }

  /** @param rooms up to where each is read */
  async #page(requester: Requester, rooms: ReadonlyMap<string, number>, after: number, now: number): Promise<NewsPage> {
    const found: StoredEvent[] = [];
    let upTo = now;
    await eachLimit(rooms, parallelReads, async ([roomId, end]) => {
      const events = await this.timelines.arrivals(roomId, after, end, maxEvents);
      found.push(...events);
      if (events.length === maxEvents) upTo = Math.min(upTo, events.at(-1)!.streamOrdering);
    });
    const told = found
      .filter(({ streamOrdering }) => streamOrdering <= upTo)
      .sort((a, b) => a.streamOrdering - b.streamOrdering);
    const visible = await this.visibility.visible(requester.userId, told);
    const chunk = (await this.serializer.serialize(requester, visible)) as unknown as JsonObject[];
    return { chunk, upTo, isFull: upTo < now };
  }
}
