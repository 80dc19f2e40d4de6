import { Injectable } from '@nestjs/common';
import {
  type ClientEvent,
  type EventFilter,
  isMembership,
  type JsonObject,
  MatrixError,
  passesFilter,
  passesRoom,
} from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import type { WrittenList } from '@rookery/http';
import { RemoteRooms } from '../remote-rooms.js';
import { EventStore } from '../store/event-store.js';
import { mayComeLater } from '../model/later-state.js';
import { isShown, type ShownSoftFailed, type StoredEvent } from '../model/stored-event.js';
import { EventSerializer } from '../reading/event-serializer.js';
import { formatRoomToken, parseRoomToken, type RoomPosition } from '../reading/room-token.js';
import { type TimelinePage, TimelineReader } from '../reading/timeline-reader.js';
import { type VisibleEvent, VisibilityFilter } from '../reading/visibility-filter.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import type { StateFilter } from '../state/state-filter.js';
import { RoomAccess } from './room-access.js';

/** A page of `/messages`. */
export interface MessagesQuery {
  readonly from?: string | undefined;
  readonly to?: string | undefined;
  readonly direction: 'f' | 'b';
  readonly limit: number;
  readonly filter: EventFilter;
  /** Default `visible`. */
  readonly scope?: ReadingScope;
  /** Writes events as they travel between servers instead of how clients see them. */
  readonly asPdus?: boolean;
}

/** What is read: what the reader may see, or, for administrators, whatever is in the room's timeline. */
export type ReadingScope = 'visible' | 'everything';

type PageOptions = Parameters<TimelineReader['page']>[2];

interface GappedPage extends TimelinePage {
  /** It ends where something is missing that may be somewhere else. */
  readonly endsAtGap?: boolean;
}

/** Pages that hold nothing visible are passed over, so that a client makes progress; at most so many per request. */
const maxEmptyPages = 5;
/** Events that are fetched from another server at a time, and how often for one request. */
const backfillSize = 100;
const maxBackfills = 3;

/** What clients read of a room: events, context, pages of history, members, state. */
@Injectable()
export class RoomReadingService {
  constructor(
    private readonly access: RoomAccess,
    private readonly events: EventStore,
    private readonly state: RoomStateReader,
    private readonly timeline: TimelineReader,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
    private readonly remote: RemoteRooms,
  ) {}

  /** @throws MatrixError 404 `M_NOT_FOUND`, also for an event that the reader may not see */
  async event(requester: Requester, roomId: string, eventId: string): Promise<ClientEvent> {
    const visible = await this.#visible(requester, roomId, eventId);
    return (await this.serializer.serialize(requester, [visible]))[0]!;
  }

  /**
   * An event with what came before and after it, and the state at the last event.
   * @throws MatrixError 404 `M_NOT_FOUND`
   */
  async context(
    requester: Requester,
    roomId: string,
    eventId: string,
    limit: number,
    filter: EventFilter,
    scope: ReadingScope = 'visible',
  ): Promise<JsonObject> {
    const softFailed = await this.access.shownSoftFailed(requester);
    const withSoftFailed = softFailed !== 'none';
    const middle = await this.#visible(requester, roomId, eventId, scope);
    const { stored } = middle;
    const half = Math.floor(limit / 2);
    const start = this.timeline.placeOf(stored, 'before');
    const end = this.timeline.placeOf(stored, 'after');
    const page = (from: RoomPosition, direction: 'f' | 'b', size: number): ReturnType<TimelineReader['page']> =>
      size === 0 || !passesRoom(filter, roomId)
        ? Promise.resolve({ events: [], end: from })
        : this.timeline.page(roomId, from, { direction, limit: size, filter, withSoftFailed });
    const [before, after] = await Promise.all([page(start, 'b', half), page(end, 'f', limit - half)]);
    const visibleBefore = await this.#inScope(requester, before.events, scope, { softFailed });
    const visibleAfter = await this.#inScope(requester, after.events, scope, { softFailed });
    const all = [...visibleBefore, middle, ...visibleAfter];
    const last = visibleAfter.at(-1) ?? middle;
    const stateFilter: StateFilter | undefined = filter.lazyLoadMembers ? { members: sendersOf(all) } : undefined;
    // Everybody sees the event by which they were invited or knocked, and with it nothing of the room.
    const seesState = scope !== 'visible' || (await this.access.mayRead(requester, roomId));
    const ids = seesState
      ? (await this.state.idsAfter([last.stored.event.eventId], stateFilter)).get(last.stored.event.eventId)
      : undefined;
    const written = await this.serializer.serialize(requester, all);
    return {
      event: written[visibleBefore.length],
      events_before: written.slice(0, visibleBefore.length),
      events_after: written.slice(visibleBefore.length + 1),
      start: formatRoomToken(before.end ?? lastPlace(before.events, 'before') ?? start),
      end: formatRoomToken(after.end ?? lastPlace(after.events, 'after') ?? end),
      state: await this.serializer.writeState(requester, [...(ids?.values() ?? [])], {
        isWanted: ({ event }) => passesFilter(filter, { ...event, roomId }),
      }),
    };
  }

  /**
   * A page of history. `end` is absent when there is no more, or nobody gives what is missing from here on.
   * @throws MatrixError 403 `M_FORBIDDEN`, 400 `M_INVALID_PARAM`
   */
  async messages(requester: Requester, roomId: string, query: MessagesQuery): Promise<JsonObject> {
    const { scope = 'visible' } = query;
    const reading = scope === 'visible' ? await this.access.read(requester, roomId) : undefined;
    const softFailed = await this.access.shownSoftFailed(requester);
    const withSoftFailed = softFailed !== 'none';
    const backwards = query.direction === 'b';
    const leftAt = reading?.kind === 'left' ? reading.membership.streamOrdering : undefined;
    let from = query.from === undefined ? undefined : parseRoomToken(query.from, 'from');
    let to = query.to === undefined ? undefined : parseRoomToken(query.to, 'to');
    from ??= backwards ? await this.timeline.endPlace(roomId, leftAt) : { topological: 0, stream: 0 };
    if (!from) return { start: 's0', chunk: [] };
    if (leftAt !== undefined) {
      const leave = { topological: undefined, stream: leftAt };
      if (!backwards) to ??= leave;
      else if (from.topological === undefined && from.stream > leftAt) from = leave;
    }
    const start = query.from ?? formatRoomToken(from);
    const visible: VisibleEvent[] = [];
    let place: RoomPosition | undefined = passesRoom(query.filter, roomId) ? from : undefined;
    const isGapped = backwards && (await this.timeline.hasGap(roomId)) && this.remote.gateway !== undefined;
    const filling = isGapped ? { left: maxBackfills } : undefined;
    let last: StoredEvent | undefined;
    for (let pages = 0; place && visible.length < query.limit && pages < maxEmptyPages; pages++) {
      const { direction, filter } = query;
      const limit = query.limit - visible.length;
      const options = { direction, limit, to, filter, withSoftFailed };
      const page: GappedPage = filling
        ? await this.#gappedPage(roomId, place, options, filling)
        : await this.timeline.page(roomId, place, options);
      visible.push(...(await this.#inScope(requester, page.events, scope, { softFailed })));
      last = page.events.at(-1) ?? last;
      place = page.end;
      if (page.endsAtGap || (visible.length > 0 && visible.length >= limit / 2)) break;
    }
    // At the end of the room there will be more: whoever follows it goes on from there.
    if (!backwards && !to && last) place ??= this.timeline.placeOf(last, 'after');
    const response: JsonObject = {
      start,
      chunk: query.asPdus
        ? visible.map(({ stored: { event } }) => ({ ...event.pdu, event_id: event.eventId }))
        : await this.serializer.serialize(requester, visible),
    };
    if (place) response['end'] = formatRoomToken(place);
    if (query.filter.lazyLoadMembers && visible.length > 0) {
      // The newest: whoever has spoken on the page was in the room by then.
      const at = visible.at(backwards ? 0 : -1)!.stored.event.eventId;
      const types = sendersOf(visible).map((sender) => ['m.room.member', sender] as const);
      const state = (await this.state.idsAfter([at], { types })).get(at);
      response['state'] = await this.serializer.serializeState(
        requester,
        await this.events.inOrder([...(state?.values() ?? [])]),
      );
    }
    return response;
  }

  /** The end of a room as a token in the order of arrival, which is one of `/events` as well. */
  async endToken(roomId: string): Promise<string> {
    const last = await this.timeline.lastPlace(roomId);
    return formatRoomToken({ topological: undefined, stream: last?.stream ?? 0 });
  }

  /**
   * A page on the way back through a room of which something is missing. What other servers give of it is fetched first. A page
   * ends where something is missing still, so that it can be asked for again; one that begins there goes on behind it.
   * @param filling how often other servers may be asked yet
   */
  async #gappedPage(
    roomId: string,
    start: RoomPosition,
    options: PageOptions,
    filling: { left: number },
  ): Promise<GappedPage> {
    const from = await this.timeline.wayBack(roomId, start);
    const least = options.to && (await this.timeline.stop(roomId, options.to, 'b')).topological;
    let page = await this.timeline.page(roomId, start, options);
    const missesAny = (): Promise<boolean> =>
      this.timeline.hasGap(roomId, page.end?.topological ?? least ?? 0, from.topological);
    while (filling.left > 0 && (await missesAny())) {
      const hasCome = (await this.remote.gateway?.history.backfill(roomId, backfillSize, from.topological)) ?? false;
      filling.left = hasCome ? filling.left - 1 : 0;
      if (hasCome) page = await this.timeline.page(roomId, start, options);
    }
    const gap = await this.timeline.lastGap(roomId, from, page.end?.topological ?? least);
    if (!gap || (page.end && !isBehind(page.end, gap))) return page;
    const events = page.events.filter((stored) => isBehind(gap, this.timeline.placeOf(stored, 'after')));
    return { events, end: gap, endsAtGap: true };
  }

  /**
   * Member events, now or at a place in the timeline: all, or those whose membership is one or is not another.
   * @throws MatrixError 403 `M_FORBIDDEN`, 400 `M_INVALID_PARAM`
   */
  async members(
    requester: Requester,
    roomId: string,
    options: {
      readonly at?: string | undefined;
      readonly membership?: string | undefined;
      readonly notMembership?: string | undefined;
    },
  ): Promise<readonly ClientEvent[] | WrittenList> {
    for (const value of [options.membership, options.notMembership]) {
      if (value !== undefined && !isMembership(value)) throw MatrixError.invalidParam('There is no such membership');
    }
    const { membership: wanted, notMembership: unwanted } = options;
    const ids = await this.#stateIds(requester, roomId, { types: [['m.room.member']] }, options.at);
    const isWanted = ({ event: { content } }: StoredEvent): boolean => {
      if (wanted === undefined) return unwanted === undefined || content['membership'] !== unwanted;
      // Both together are an "or".
      return content['membership'] === wanted || (unwanted !== undefined && content['membership'] !== unwanted);
    };
    return this.serializer.writeState(requester, ids, { isWanted });
  }

  /** All state that the reader may see: current, or that at the time of leaving. @throws MatrixError 403 `M_FORBIDDEN` */
  async allState(requester: Requester, roomId: string): Promise<readonly ClientEvent[] | WrittenList> {
    return this.serializer.writeState(requester, await this.#stateIds(requester, roomId, undefined));
  }

  /** @throws MatrixError 403 `M_FORBIDDEN`, 404 `M_NOT_FOUND` */
  async stateEvent(requester: Requester, roomId: string, type: string, stateKey: string): Promise<StoredEvent> {
    const find = (): Promise<string[]> => this.#stateIds(requester, roomId, { types: [[type, stateKey]] });
    let [id] = await find();
    if (id === undefined && mayComeLater(type)) {
      await this.access.whole(roomId);
      [id] = await find();
    }
    const stored = id === undefined ? undefined : await this.events.one(id);
    if (!stored) throw MatrixError.notFound('There is no such state');
    return stored;
  }

  /** Writes one state event for a reader. */
  async write(requester: Requester, stored: StoredEvent): Promise<ClientEvent> {
    return (await this.serializer.serializeState(requester, [stored]))[0]!;
  }

  /** An event of the room, if the reader may see it. @throws MatrixError 404 `M_NOT_FOUND` */
  async visibleEvent(requester: Requester, roomId: string, eventId: string): Promise<StoredEvent> {
    return (await this.#visible(requester, roomId, eventId)).stored;
  }

  async #visible(
    requester: Requester,
    roomId: string,
    eventId: string,
    scope: ReadingScope = 'visible',
  ): Promise<VisibleEvent> {
    const stored = await this.events.one(eventId);
    if (stored?.event.roomId !== roomId) throw eventUnknown();
    if (scope === 'visible' && (await this.access.hasForgotten(requester, roomId))) throw eventUnknown();
    const softFailed = stored.softFailed ? await this.access.shownSoftFailed(requester) : 'none';
    const visible = await this.#inScope(requester, [stored], scope, { withIgnored: true, softFailed });
    if (visible.length === 0) throw eventUnknown();
    return visible[0]!;
  }

  async #inScope(
    requester: Requester,
    events: readonly StoredEvent[],
    scope: ReadingScope,
    options: { readonly withIgnored?: boolean; readonly softFailed: ShownSoftFailed },
  ): Promise<VisibleEvent[]> {
    if (scope === 'visible') return this.visibility.visible(requester.userId, events, options);
    return events
      .filter((stored) => isShown(stored, options.softFailed))
      .map((stored) => ({ stored, membership: undefined }));
  }

  async #stateIds(
    requester: Requester,
    roomId: string,
    filter: StateFilter | undefined,
    at?: string,
  ): Promise<string[]> {
    const reading = await this.access.read(requester, roomId);
    // Of single entries those that are here are what they are.
    if (filter?.types?.some(([, stateKey]) => stateKey === undefined) ?? true) await this.access.whole(roomId);
    const leftAt = reading.kind === 'left' ? reading.membership : undefined;
    let eventId = leftAt?.eventId;
    if (at !== undefined) {
      const place = parseRoomToken(at, 'at');
      const upTo = Math.min(place.stream, leftAt?.streamOrdering ?? place.stream);
      eventId = await this.timeline.lastEventId(roomId, upTo);
      const nearestId = eventId ?? (await this.timeline.firstEventId(roomId));
      const nearest = nearestId === undefined ? undefined : await this.events.one(nearestId);
      // The state of a time counts as what was said then: whoever came later may not see it everywhere.
      if (!nearest || !(await this.visibility.isTimeVisible(requester.userId, nearest))) throw MatrixError.notInRoom();
      // In front of all that this server knows of a room is what it found on joining through another server.
      if (eventId === undefined) return [...((await this.state.idsBefore(nearest, filter))?.values() ?? [])];
    }
    if (eventId === undefined) return [...(await this.state.currentIds(roomId, filter)).values()];
    return [...((await this.state.idsAfter([eventId], filter)).get(eventId)?.values() ?? [])];
  }
}

const eventUnknown = (): MatrixError => MatrixError.notFound('There is no such event, or you may not see it');

const sendersOf = (events: readonly VisibleEvent[]): string[] => [
  ...new Set(events.map(({ stored }) => stored.event.sender)),
];

/** Whether one place comes after another on the way back through a room. */
const isBehind = (place: RoomPosition, other: RoomPosition): boolean =>
  place.topological === other.topological
    ? place.stream < other.stream
    : (place.topological ?? 0) < (other.topological ?? 0);

function lastPlace(events: readonly StoredEvent[], side: 'before' | 'after'): RoomPosition | undefined {
  const last = events.at(-1);
  return (
    last && {
      topological: last.event.depth,
      stream: side === 'before' ? last.streamOrdering - 1 : last.streamOrdering,
    }
  );
}
