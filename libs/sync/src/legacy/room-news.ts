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
   * Its events since a token; waits until there are some, or the time is over.
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
    for (;;) {
      const leftMs = deadlineMs - this.clock.monotonicMs();
      // The wait begins before the reading, so that nothing falls between the two.
      const wait = this.notifier.begin(requester.userId, {
        timeoutMs: leftMs,
        signal,
        inRoom: (changed) => changed === roomId,
      });
      try {
        const now = { ...since, events: this.sync.currentToken().events };
        const chunk = await this.#eventsOf(requester, roomId, since.events, now.events);
        if (chunk.length > 0 || (await wait.outcome) !== 'news')
          return { start: formatSyncToken(since), end: formatSyncToken(now), chunk };
      } finally {
        wait.end();
      }
    }
  }

  async #eventsOf(requester: Requester, roomId: string, after: number, upTo: number): Promise<JsonObject[]> {
    if (this.activity.changedRooms(new Set([roomId]), after).length === 0) return [];
    const slices = await this.timelines.latest([roomId], { after, upTo, limit: maxEvents });
    const visible = await this.visibility.visible(requester.userId, slices.get(roomId)?.events ?? []);
    // Whoever may not read on is told so, rather than left waiting.
    if (visible.length === 0) await this.access.read(requester, roomId);
    return (await this.serializer.serialize(requester, visible)) as unknown as JsonObject[];
  }
}
