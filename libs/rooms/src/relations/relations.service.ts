import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { redactEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { RoomAccess } from '../history/room-access.js';
import { RoomReadingService } from '../history/room-reading.service.js';
import { EventSerializer } from '../reading/event-serializer.js';
import { HiddenSenders } from '../reading/hidden-senders.js';
import { formatRoomToken, parseRoomToken, type PlaceInRoom, type RoomPosition } from '../reading/room-token.js';
import { TimelineReader } from '../reading/timeline-reader.js';
import { type VisibleEvent, VisibilityFilter } from '../reading/visibility-filter.js';
import {
  type RelatedRow,
  type RelationQuery,
  selectRelations,
  selectThreadRoots,
  type ThreadPlaceRow,
} from './relations.query.js';

/** What somebody asks about the relations of an event. */
export interface RelationsRequest {
  readonly roomId: string;
  readonly eventId: string;
  readonly relType?: string | undefined;
  readonly eventType?: string | undefined;
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly direction: 'f' | 'b';
  readonly limit: number;
  /** Absent where the client said nothing of it, and is told nothing. */
  readonly recurse: boolean | undefined;
}

/** How far recursion follows relations of relations. */
const maxDepth = 3;
/** Pages of which nothing may be seen are passed over, at most so many per request. */
const maxHiddenPages = 5;

/** Relations of events, and threads. */
@Injectable()
export class RelationsService {
  constructor(
    private readonly database: Database,
    private readonly reading: RoomReadingService,
    private readonly access: RoomAccess,
    private readonly timeline: TimelineReader,
    private readonly visibility: VisibilityFilter,
    private readonly hidden: HiddenSenders,
    private readonly serializer: EventSerializer,
  ) {}

  /**
   * A page of the events that relate to an event.
   * @throws MatrixError 404 `M_NOT_FOUND` when the reader may not see that event, 400 `M_INVALID_PARAM`
   * @spec client-server-api#relationships-api
   */
  async relations(requester: Requester, request: RelationsRequest): Promise<JsonObject> {
    const { roomId, eventId } = request;
    await this.reading.visibleEvent(requester, roomId, eventId);
    const backwards = request.direction === 'b';
    const from = request.from === undefined ? undefined : parseRoomToken(request.from, 'from');
    const to = request.to === undefined ? undefined : parseRoomToken(request.to, 'to');
    const arrival = (place: RoomPosition | undefined): number | undefined =>
      place?.topological === undefined ? place?.stream : undefined;
    const query: RelationQuery = {
      roomId,
      eventId,
      relType: request.relType,
      eventType: request.eventType,
      depth: request.recurse ? maxDepth : 1,
      backwards,
      from: from && (await this.timeline.topological(roomId, from, request.direction)),
      to: to && (await this.timeline.stop(roomId, to, request.direction)),
      arrivedAfter: arrival(backwards ? to : from),
      arrivedUpTo: arrival(backwards ? from : to),
      limit: request.limit + 1,
    };
    const placeBehind = (row: RelatedRow): PlaceInRoom => ({
      topological: row.topological_ordering,
      stream: backwards ? row.stream_ordering - 1 : row.stream_ordering,
    });
    const { visible, next } = await firstVisible(
      request.limit,
      (last: RelatedRow | undefined) =>
        selectRelations(this.database, last ? { ...query, from: placeBehind(last) } : query),
      (rows) =>
        this.visibility.visibleOf(
          requester.userId,
          rows.map((row) => row.event_id),
        ),
    );
    return {
      chunk: await this.serializer.serialize(requester, visible),
      ...(next && { next_batch: formatRoomToken(placeBehind(next)) }),
      ...(request.from !== undefined && { prev_batch: request.from }),
      ...(request.recurse !== undefined && { recursion_depth: request.recurse ? maxDepth : 1 }),
    };
  }

  /**
   * Roots of a room's threads, the one with the newest reply first. What ignored users said comes redacted: the threads on it
   * are seen nevertheless.
   * @throws MatrixError 403 `M_FORBIDDEN`, 400 `M_INVALID_PARAM`
   */
  async threads(
    requester: Requester,
    roomId: string,
    options: { readonly participated: boolean; readonly from?: string | undefined; readonly limit: number },
  ): Promise<JsonObject> {
    await this.access.read(requester, roomId);
    const from = options.from === undefined ? undefined : parseRoomToken(options.from, 'from');
    const placeOf = (row: ThreadPlaceRow): PlaceInRoom => ({
      topological: row.topological_ordering,
      stream: row.stream_ordering,
    });
    const participant = options.participated ? requester.userId : undefined;
    const start = from && (await this.timeline.topological(roomId, from));
    const [ignored, { visible, next }] = await Promise.all([
      this.hidden.ignoredBy(requester.userId),
      firstVisible(
        options.limit,
        (last: ThreadPlaceRow | undefined) =>
          selectThreadRoots(this.database, roomId, participant, last ? placeOf(last) : start, options.limit + 1),
        (rows) =>
          this.visibility.visibleOf(
            requester.userId,
            rows.map((row) => row.thread_id),
            { withIgnored: true },
          ),
      ),
    ]);
    const inRoom = visible.filter(({ stored }) => stored.event.roomId === roomId);
    const shown = inRoom.map((one): VisibleEvent => {
      const { stored: root } = one;
      const isHidden = root.event.stateKey === undefined && ignored.has(root.event.sender);
      return isHidden ? { ...one, stored: { ...root, event: redactEvent(root.event) } } : one;
    });
    return {
      chunk: await this.serializer.serialize(requester, shown),
      ...(next && { next_batch: formatRoomToken(placeOf(next)) }),
    };
  }
}

/**
 * The first page of which a reader may see anything: what is hidden is no reason to show nothing though there is more.
 * @param rowsBehind one more than `limit` rows behind another, where there are as many; from the beginning without one
 * @returns `next`: the row behind which the next page begins; absent where there is no more
 */
async function firstVisible<Row>(
  limit: number,
  rowsBehind: (last: Row | undefined) => Promise<readonly Row[]>,
  visibleOf: (rows: readonly Row[]) => Promise<VisibleEvent[]>,
): Promise<{ readonly visible: VisibleEvent[]; readonly next: Row | undefined }> {
  let last: Row | undefined;
  for (let pages = 1; ; pages++) {
    const rows = await rowsBehind(last);
    const page = rows.slice(0, limit);
    const visible = await visibleOf(page);
    last = page.at(-1);
    const hasMore = rows.length > page.length;
    if (visible.length > 0 || !hasMore || last === undefined || pages >= maxHiddenPages)
      return { visible, next: hasMore ? last : undefined };
  }
}
