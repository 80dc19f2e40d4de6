import { Controller, Get, Param } from '@nestjs/common';
import {
  Access,
  client,
  Inbound,
  type InboundRequest,
  queryBoolean,
  queryChoice,
  queryInteger,
  queryString,
  stable,
  Who,
} from '@rookery/http';
import {
  type EventFilter,
  isValidRoomId,
  isValidUserId,
  type JsonObject,
  MatrixError,
  parseEventFilter,
} from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { MembershipReader } from '../reading/membership-reader.js';
import { EventByTime } from '../history/event-by-time.service.js';
import { RedactedContent } from '../history/redacted-content.service.js';
import { RoomAccess } from '../history/room-access.js';
import { RoomReadingService } from '../history/room-reading.service.js';

const maxLimit = 1000;
const maxFilterLength = 65_536;

/** Events, pages of history, members. */
@Controller()
export class HistoryController {
  constructor(
    private readonly reading: RoomReadingService,
    private readonly access: RoomAccess,
    private readonly memberships: MembershipReader,
    private readonly byTime: EventByTime,
    private readonly redacted: RedactedContent,
    private readonly config: Config,
  ) {}

  /** GET /_matrix/client/v3/rooms/{roomId}/messages */
  @Get(stable('/rooms/:roomId/messages'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  messages(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    const filter = filterIn(request);
    return this.reading.messages(requester, roomId, {
      from: queryString(request, 'from'),
      to: queryString(request, 'to'),
      direction: queryChoice(request, 'dir', ['f', 'b']) ?? 'b',
      limit: Math.min(queryInteger(request, 'limit') ?? filter.limit ?? 10, maxLimit),
      filter,
    });
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/event/{eventId} */
  @Get(stable('/rooms/:roomId/event/:eventId'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  event(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
  ): Promise<object> {
    const isUnredacted =
      this.redacted.isEnabled && queryBoolean(request, 'fi.mau.msc2815.include_unredacted_content') === true;
    return (isUnredacted ? this.redacted : this.reading).event(requester, roomId, eventId);
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/context/{eventId} */
  @Get(stable('/rooms/:roomId/context/:eventId'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  context(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
  ): Promise<object> {
    const limit = queryInteger(request, 'limit', { min: 0, max: maxLimit, clamp: true }) ?? 10;
    return this.reading.context(requester, roomId, eventId, limit, filterIn(request));
  }

  /** GET /_matrix/client/v1/rooms/{roomId}/timestamp_to_event */
  @Get(client(['v1'], '/rooms/:roomId/timestamp_to_event'))
  @Access({ auth: 'required', anyProcess: true })
  async timestampToEvent(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    const ts = queryInteger(request, 'ts');
    if (ts === undefined) throw MatrixError.missingParam("Missing query parameter 'ts'");
    const found = await this.byTime.find(requester, roomId, ts, queryChoice(request, 'dir', ['f', 'b']) ?? 'f');
    return { event_id: found.eventId, origin_server_ts: found.ts };
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/members */
  @Get(stable('/rooms/:roomId/members'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  async members(
    @Who() requester: Requester,
    @Inbound() request: InboundRequest,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    const chunk = await this.reading.members(requester, roomId, {
      at: queryString(request, 'at'),
      membership: queryString(request, 'membership'),
      notMembership: queryString(request, 'not_membership'),
    });
    return { chunk };
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/joined_members */
  @Get(stable('/rooms/:roomId/joined_members'))
  @Access({ auth: 'required', largeAnswer: true, anyProcess: true })
  async joinedMembers(@Who() requester: Requester, @Param('roomId') roomId: string): Promise<object> {
    await this.access.joined(requester, roomId);
    await this.access.whole(roomId);
    const joined = (await this.memberships.joinedMembers(roomId)).map(({ userId, displayName, avatarUrl }) => [
      userId,
      {
        // Clients in use look for both.
        display_name: displayName ?? null,
        avatar_url: avatarUrl ?? null,
      },
    ]);
    return { joined: Object.fromEntries(joined) };
  }

  /** GET /_matrix/client/v3/joined_rooms */
  @Get(stable('/joined_rooms'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  async joinedRooms(@Who() requester: Requester): Promise<object> {
    return { joined_rooms: await this.memberships.joinedRoomIds(requester.userId) };
  }

  /** GET /_matrix/client/v1/mutual_rooms */
  @Get(client(['v1'], '/mutual_rooms'))
  @Access({ auth: 'required', anyProcess: true })
  async mutualRooms(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<object> {
    const other = queryString(request, 'user_id');
    if (other === undefined) throw MatrixError.missingParam("Missing query parameter 'user_id'");
    if (other === requester.userId) throw MatrixError.invalidParam('This is your own user id');
    if (!isValidUserId(other)) throw MatrixError.notUserId();
    const pageSize = 100;
    const rooms = await this.memberships.mutualRooms(requester.userId, other);
    const from = queryString(request, 'from') ?? '';
    if (from !== '' && !isValidRoomId(from)) throw MatrixError.invalidParam("'from' is not a token of this endpoint");
    const page = rooms.filter((roomId) => roomId > from).slice(0, pageSize);
    const last = page.at(-1);
    const more = last !== undefined && last !== rooms.at(-1);
    return { joined: page, count: rooms.length, ...(more && { next_batch: last }) };
  }

  /** GET /_matrix/client/unstable/uk.half-shot.msc2666/user/mutual_rooms (MSC2666), for clients of before it was specified */
  @Get(client(['unstable'], '/uk.half-shot.msc2666/user/mutual_rooms'))
  @Access({ auth: 'required', anyProcess: true })
  async formerMutualRooms(@Who() requester: Requester, @Inbound() request: InboundRequest): Promise<object> {
    if (!this.config.get('experimental_features.msc2666_enabled')) throw MatrixError.unrecognized();
    const from = queryString(request, 'batch_token');
    const query = { ...request.query, ...(from !== undefined && { from }) };
    const { next_batch: next, ...page } = (await this.mutualRooms(requester, { ...request, query })) as JsonObject;
    return { ...page, ...(next !== undefined && { next_batch_token: next }) };
  }
}

/** Reads the `filter` parameter. @throws MatrixError 400 `M_NOT_JSON` or `M_BAD_JSON` */
export function filterIn(request: InboundRequest): EventFilter {
  const text = queryString(request, 'filter');
  if (text === undefined) return parseEventFilter({});
  if (text.length > maxFilterLength) throw MatrixError.invalidParam('The filter is too long');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw MatrixError.notJson('The filter is not JSON');
  }
  return parseEventFilter(value);
}
