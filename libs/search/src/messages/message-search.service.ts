import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError, passesRoom } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import {
  EventSerializer,
  EventStore,
  MembershipReader,
  readerOf,
  RoomReadingService,
  type VisibleEvent,
  VisibilityFilter,
} from '@rookery/rooms';
import { highlightsOf, queryWordsOf } from '../text/words.js';
import { countMatches, type FoundRow, type MessageQuery, selectByRank, selectByTime } from './message-index.query.js';
import { MessageFollower } from './message-follower.js';
import { ResultContexts } from './result-contexts.js';
import { formatPlace, parsePlace, parseSearchRequest, type SearchPlace, type SearchRequest } from './search-request.js';
import { typesWith } from './searchable.js';

/** Words of a search that count. */
const maxWords = 20;
/** Pages of which nothing may be shown are passed over, at most so many per request. */
const maxPages = 5;
const smallestPage = 20;

interface Found {
  readonly visible: VisibleEvent;
  /** Absent in the order of time: nobody asked for it. */
  readonly rank: number | undefined;
}

interface Page {
  readonly found: readonly Found[];
  readonly next: SearchPlace | undefined;
}

/**
 * Searches what was said in the rooms that a user is or was in.
 * @spec client-server-api#server-side-search
 */
@Injectable()
export class MessageSearch {
  constructor(
    private readonly database: Database,
    private readonly index: MessageFollower,
    private readonly config: Config,
    private readonly memberships: MembershipReader,
    private readonly events: EventStore,
    private readonly visibility: VisibilityFilter,
    private readonly serializer: EventSerializer,
    private readonly rooms: RoomReadingService,
    private readonly contexts: ResultContexts,
  ) {}

  /**
   * The part `room_events` of an answer.
   * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM`, `M_BAD_JSON` (the request), `M_UNKNOWN` (search is off)
   */
  async search(requester: Requester, criteria: JsonObject, nextBatch: string | undefined): Promise<JsonObject> {
    if (!this.config.get('enable_search')) throw MatrixError.badRequest('Search is disabled on this server');
    const request = parseSearchRequest(criteria);
    const place = nextBatch === undefined ? {} : parsePlace(nextBatch, request.order);
    const query = await this.#query(requester.userId, request, place);
    if (query.words.length === 0 || query.roomIds.length === 0)
      return { count: 0, highlights: [], results: [], ...(request.groupBy.length > 0 && { groups: {} }) };
    await this.index.caughtUp();
    const [count, page] = await Promise.all([
      countMatches(this.database, query),
      this.#page(requester.userId, request, query, place),
    ]);
    return {
      count,
      highlights: highlightsOf(request.term, maxWords),
      ...(await this.#write(requester, request, page)),
    };
  }

  async #query(userId: string, request: SearchRequest, { group }: SearchPlace): Promise<MessageQuery> {
    const { filter } = request;
    const memberships = await this.memberships.roomsOf(userId, ['join', 'leave', 'ban']);
    const roomIds = memberships
      .filter(({ membership, forgotten }) => membership === 'join' || !forgotten)
      .map(({ roomId }) => roomId)
      .filter((roomId) => passesRoom(filter, roomId));
    const inGroup = (key: string, value: string): boolean => group?.key !== key || group.value === value;
    return {
      words: queryWordsOf(request.term, maxWords),
      roomIds: roomIds.filter((roomId) => inGroup('room_id', roomId)),
      types: typesWith(request.keys),
      filter:
        group?.key === 'sender'
          ? { ...filter, senders: [group.value].filter((sender) => filter.senders?.includes(sender) ?? true) }
          : filter,
    };
  }

  async #page(userId: string, request: SearchRequest, query: MessageQuery, start: SearchPlace): Promise<Page> {
    const found: Found[] = [];
    let place = start;
    const size = Math.max(request.limit, smallestPage);
    for (let pages = 0; pages < maxPages; pages++) {
      const rows: readonly (FoundRow & { readonly rank?: number })[] =
        request.order === 'rank'
          ? await selectByRank(this.database, query, place.offset ?? 0, size)
          : await selectByTime(this.database, query, place.before, size);
      const visible = await this.#visible(userId, rows);
      for (const row of rows) {
        if (found.length >= request.limit) return { found, next: place };
        const event = visible.get(row.event_id);
        if (event) found.push({ visible: event, rank: row.rank });
        place =
          request.order === 'rank'
            ? { ...place, offset: (place.offset ?? 0) + 1 }
            : { ...place, before: { ts: row.origin_server_ts, stream: row.stream_ordering } };
      }
      if (rows.length < size) return { found, next: undefined };
    }
    return { found, next: place };
  }

  async #visible(userId: string, rows: readonly FoundRow[]): Promise<Map<string, VisibleEvent>> {
    const stored = await this.events.inOrder(rows.map((row) => row.event_id));
    const visible = await this.visibility.visible(
      userId,
      stored.filter(({ redactedBy }) => redactedBy === undefined),
    );
    return new Map(visible.map((one) => [one.stored.event.eventId, one]));
  }

  async #write(requester: Requester, request: SearchRequest, { found, next }: Page): Promise<JsonObject> {
    const visible = found.map((one) => one.visible);
    const [written, contexts] = await Promise.all([
      this.serializer.serialize(readerOf(requester), visible),
      request.context ? this.contexts.of(requester, visible, request.context) : undefined,
    ]);
    const results = found.map(({ visible: { stored }, rank }, index): JsonObject => {
      const context = contexts?.get(stored.event.eventId);
      return { ...(rank !== undefined && { rank }), result: { ...written[index] }, ...(context && { context }) };
    });
    const answer: JsonObject = { results };
    if (next) answer['next_batch'] = formatPlace(next);
    if (request.groupBy.length > 0) answer['groups'] = groupsOf(request, found, next);
    if (request.includeState) answer['state'] = await this.#states(requester, visible);
    return answer;
  }

  async #states(requester: Requester, visible: readonly VisibleEvent[]): Promise<JsonObject> {
    const states: JsonObject = {};
    for (const roomId of new Set(visible.map(({ stored }) => stored.event.roomId))) {
      try {
        states[roomId] = await this.rooms.allState(requester, roomId);
      } catch (error) {
        // Who may see some of a room's messages need not be one who may read its state.
        if (!MatrixError.is(error)) throw error;
      }
    }
    return states;
  }
}

function groupsOf(request: SearchRequest, found: readonly Found[], next: SearchPlace | undefined): JsonObject {
  const groups: JsonObject = {};
  for (const key of request.groupBy) {
    const byValue = Map.groupBy(found, ({ visible: { stored } }) =>
      key === 'room_id' ? stored.event.roomId : stored.event.sender,
    );
    groups[key] = Object.fromEntries(
      [...byValue].map(([value, members], index) => [
        value,
        {
          order: index + 1,
          results: members.map(({ visible }) => visible.stored.event.eventId),
          ...(next && { next_batch: formatPlace({ ...next, group: { key, value } }) }),
        },
      ]),
    );
  }
  return groups;
}
