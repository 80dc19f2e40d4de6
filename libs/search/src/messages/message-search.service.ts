import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { type JsonObject, MatrixError, passesRoom } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { MembershipHistory, MembershipReader, type VisibleEvent, VisibilityFilter } from '@rookery/rooms';
import { highlightsOf, queryWordsOf } from '../text/words.js';
import {
  type FoundRow,
  type MessageQuery,
  type RankedRow,
  searchWindow,
  selectAlikeMatches,
  selectByRank,
  selectByTime,
  withinGroup,
} from './message-index.query.js';
import { MessageFollower } from './message-follower.js';
import { parsePlace, parseSearchRequest, type SearchPlace, type SearchRequest } from './search-request.js';
import { type FoundMessage, type SearchPage, SearchResults } from './search-results.js';
import { typesWith } from './searchable.js';

/** Words of a search that count. */
const maxWords = 20;
/** Pages of which nothing may be shown are passed over, at most so many per request. */
const maxPages = 5;
const smallestPage = 20;
/** How often the state may have changed between the matches that are counted; what is older does not count. */
const maxAlike = 500;
const nothing: SearchPage = { found: [], next: undefined };

/** A query with those of its rooms that the user is not in any more. */
interface UserQuery extends MessageQuery {
  readonly pastRoomIds: readonly string[];
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
    private readonly history: MembershipHistory,
    private readonly visibility: VisibilityFilter,
    private readonly results: SearchResults,
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
    if (query.words.length === 0 || withinGroup(query).roomIds.length === 0)
      return { count: 0, highlights: [], results: [], ...(request.groupBy.length > 0 && { groups: {} }) };
    await this.index.caughtUp();
    const { count, isNothing } = await this.#count(requester.userId, query);
    const page = isNothing ? nothing : await this.#page(requester.userId, request, query, place);
    return {
      count,
      highlights: highlightsOf(request.term, maxWords),
      ...(await this.results.write(requester, request, page)),
    };
  }

  async #query(userId: string, { term, keys, filter }: SearchRequest, { group }: SearchPlace): Promise<UserQuery> {
    const memberships = await this.memberships.roomsOf(userId, ['join', 'leave', 'ban']);
    const wanted = memberships.filter(
      ({ membership, forgotten, roomId }) => (membership === 'join' || !forgotten) && passesRoom(filter, roomId),
    );
    return {
      words: queryWordsOf(term, maxWords),
      roomIds: wanted.map(({ roomId }) => roomId),
      pastRoomIds: wanted.filter(({ membership }) => membership !== 'join').map(({ roomId }) => roomId),
      ...{ types: typesWith(keys), filter, group },
    };
  }

  /**
   * How many of the matches the user may see. Not how many there are: whoever was let in later, sent away, or only ever invited could
   * find out by it which words were said.
   * @returns `isNothing`: none of all that there are, so that there is no next page either
   */
  async #count(userId: string, query: UserQuery): Promise<{ readonly count: number; readonly isNothing: boolean }> {
    const ends = await this.history.endsOfStays(userId, query.pastRoomIds);
    const endsAt = new Map([...ends].map(([roomId, end]) => [roomId, end.streamOrdering]));
    const alike = await selectAlikeMatches(this.database, query, endsAt, maxAlike);
    const ids = alike.map((row) => row.event_id);
    const visible = await this.visibility.visibleOf(userId, ids, { withIgnored: true });
    const seen = new Set(visible.map(({ stored }) => stored.event.eventId));
    const totalOf = (rows: typeof alike): number => rows.reduce((sum, { total }) => sum + total, 0);
    const count = totalOf(alike.filter((row) => seen.has(row.event_id)));
    return { count, isNothing: count === 0 && alike.length < maxAlike && totalOf(alike) < searchWindow };
  }

  async #page(userId: string, request: SearchRequest, query: MessageQuery, start: SearchPlace): Promise<SearchPage> {
    const found: FoundMessage[] = [];
    let place = start;
    const size = Math.max(request.limit, smallestPage);
    for (let pages = 0; pages < maxPages; pages++) {
      const rows: readonly (FoundRow & Partial<RankedRow>)[] =
        request.order === 'rank'
          ? await selectByRank(this.database, query, place.offset ?? 0, size)
          : await selectByTime(this.database, query, place.before, size);
      const visible = await this.#visible(userId, rows);
      for (const row of rows) {
        if (found.length >= request.limit) return { found, next: place };
        const event = visible.get(row.event_id);
        if (event) found.push({ visible: event, rank: row.rank });
        place =
          row.place === undefined
            ? { ...place, before: { ts: row.origin_server_ts, stream: row.stream_ordering } }
            : { ...place, offset: row.place };
      }
      if (rows.length < size) return { found, next: undefined };
    }
    return { found, next: place };
  }

  async #visible(userId: string, rows: readonly FoundRow[]): Promise<Map<string, VisibleEvent>> {
    const visible = await this.visibility.visibleOf(
      userId,
      rows.map((row) => row.event_id),
    );
    const unredacted = visible.filter(({ stored }) => stored.redactedBy === undefined);
    return new Map(unredacted.map((one) => [one.stored.event.eventId, one]));
  }
}
