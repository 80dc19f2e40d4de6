import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { RemoteRooms } from '../remote-rooms.js';
import { EventStore } from '../store/event-store.js';
import type { StoredEvent } from '../model/stored-event.js';
import { MembershipHistory } from '../reading/membership-history.js';
import { TimelineReader } from '../reading/timeline-reader.js';
import { VisibilityFilter } from '../reading/visibility-filter.js';
import { selectStays } from '../reading/aggregations.query.js';
import { RoomAccess } from './room-access.js';
import type { ReadingScope } from './room-reading.service.js';
import { selectNearest, type TimePlace } from './event-by-time.query.js';

/** Candidates looked at at a time, and how often before the search is given up. */
const candidatesAtOnce = 50;
const maxPages = 20;

/** Finds the event that lies nearest to a point in time. */
@Injectable()
export class EventByTime {
  constructor(
    private readonly database: Database,
    private readonly access: RoomAccess,
    private readonly events: EventStore,
    private readonly visibility: VisibilityFilter,
    private readonly memberships: MembershipHistory,
    private readonly timeline: TimelineReader,
    private readonly remote: RemoteRooms,
  ) {}

  /**
   * @param direction `f`: the first event at or after `ts`; `b`: the last at or before it
   * @throws MatrixError 403 `M_FORBIDDEN`, 404 `M_NOT_FOUND`
   * @spec client-server-api#get_matrixclientv1roomsroomidtimestamp_to_event
   */
  async find(
    requester: Requester,
    roomId: string,
    ts: number,
    direction: 'f' | 'b',
    scope: ReadingScope = 'visible',
  ): Promise<{ readonly eventId: string; readonly ts: number }> {
    if (scope === 'visible') await this.access.read(requester, roomId);
    const found =
      scope === 'visible'
        ? await this.#visible(requester.userId, roomId, ts, direction)
        : await this.nearest(roomId, ts, direction, ([first]) => first);
    const here = found && { eventId: found.event.eventId, ts: found.event.originServerTs };
    if (here && !(await this.#isGapBetween(roomId, found, direction))) return here;
    const told = await this.remote.gateway?.history.timestampToEvent(roomId, ts, direction);
    const elsewhere = told && (scope === 'everything' || (await this.#sees(requester.userId, told.eventId))) && told;
    const nearest = elsewhere && (!here || Math.abs(elsewhere.ts - ts) < Math.abs(here.ts - ts)) ? elsewhere : here;
    if (!nearest) throw MatrixError.notFound('There is no event on that side of this time');
    return nearest;
  }

  async #sees(userId: string, eventId: string): Promise<boolean> {
    return (await this.visibility.visibleOf(userId, [eventId], { withIgnored: true })).length > 0;
  }

  /** Whether something may be missing between a time and the event that is nearest to it of those that are here. */
  #isGapBetween(roomId: string, { event: { depth } }: StoredEvent, direction: 'f' | 'b'): Promise<boolean> {
    return direction === 'f' ? this.timeline.hasGap(roomId, 0, depth) : this.timeline.hasGap(roomId, depth + 1);
  }

  async #visible(userId: string, roomId: string, ts: number, direction: 'f' | 'b'): Promise<StoredEvent | undefined> {
    const first = async (candidates: readonly StoredEvent[]): Promise<StoredEvent | undefined> => {
      const [found] = await this.visibility.visible(userId, candidates, { withIgnored: true });
      return found?.stored;
    };
    const found = await this.nearest(roomId, ts, direction, first);
    if (found !== undefined) return found;
    // Any number of events may lie before the reader came, or after they went, of which none is shown.
    const edge = direction === 'f' ? await this.#beginOfStay(userId, roomId) : await this.#endOfStay(userId, roomId);
    if (edge === undefined || (direction === 'f' ? edge <= ts : edge >= ts)) return undefined;
    return this.nearest(roomId, edge, direction, first);
  }

  async #beginOfStay(userId: string, roomId: string): Promise<number | undefined> {
    return (await selectStays(this.database, userId, [roomId])).get(roomId)?.ts;
  }

  async #endOfStay(userId: string, roomId: string): Promise<number | undefined> {
    const leave = await this.memberships.lastLeave(userId, roomId);
    return leave && (await this.events.one(leave.eventId))?.event.originServerTs;
  }

  /**
   * Looks for the nearest event on one side of a time, among a bounded number.
   * @param pick takes one of some candidates, the nearest of which comes first: who may see them is to be asked there
   */
  async nearest<T>(
    roomId: string,
    ts: number,
    direction: 'f' | 'b',
    pick: (candidates: readonly StoredEvent[]) => Promise<T | undefined> | T | undefined,
  ): Promise<T | undefined> {
    let behind: TimePlace | undefined;
    for (let page = 0; page < maxPages; page++) {
      const ids = await selectNearest(this.database, roomId, ts, direction, behind, candidatesAtOnce);
      const stored = await this.events.inOrder(ids);
      const found = await pick(stored);
      const last = stored.at(-1);
      if (found !== undefined || last === undefined || ids.length < candidatesAtOnce) return found;
      behind = [last.event.originServerTs, last.event.depth, last.streamOrdering];
    }
    return undefined;
  }
}
