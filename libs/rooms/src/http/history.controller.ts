import { Controller, Get, Param } from '@nestjs/common';
import { Access, client, HttpReply, type InferQuery, param, Query, queryOf, stable, Who } from '@rookery/http';
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

/** Reads the `filter` parameter. @throws MatrixError 400 `M_NOT_JSON` or `M_BAD_JSON` */
function parseFilter(text: string | undefined): EventFilter {
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

/** The `filter` of endpoints that give events, as JSON. */
export const eventFilter = param.parsed('Which events are wanted.', 'filter as JSON', parseFilter);

const messagesQuery = queryOf({
  from: param.string('Where the page begins: a token of an earlier answer.'),
  to: param.string('Where to stop: a token of an earlier answer.'),
  dir: param.choice('Forwards (`f`) or backwards (`b`) in time.', ['f', 'b'], { otherwise: 'f' }),
  limit: param.integer(`How many events at most; never more than ${maxLimit}.`),
  filter: eventFilter,
});

const eventQuery = queryOf({
  'fi.mau.msc2815.include_unredacted_content': param.boolean('Whether to show what was redacted (MSC2815).', {
    otherwise: false,
  }),
});

const contextQuery = queryOf({
  limit: param.integer('How many entries at most.', { min: 0, max: maxLimit, clamp: true, otherwise: 10 }),
  filter: eventFilter,
});

const timestampToEventQuery = queryOf({
  ts: param.integer('The time that is asked about, milliseconds.', { required: true }),
  dir: param.choice('Forwards (`f`) or backwards (`b`) in time.', ['f', 'b'], { otherwise: 'f' }),
});

const membersQuery = queryOf({
  at: param.string('The position of which the members are: a token of an earlier answer.'),
  membership: param.string('Only members with this membership.'),
  not_membership: param.string('Only members without this membership.'),
});

const mutualRoomsQuery = queryOf({
  user_id: param.string('The other user.', { required: true }),
  from: param.string('Where the page begins: a token of an earlier answer.'),
});

const formerMutualRoomsQuery = queryOf({
  user_id: param.string('The other user; it has to be said.'),
  from: param.string('The same as `batch_token`, which counts for more.'),
  batch_token: param.string('Where the page begins: `next_batch_token` of an earlier answer.'),
});

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
    @Query(messagesQuery) query: InferQuery<typeof messagesQuery>,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    const { filter } = query;
    return this.reading.messages(requester, roomId, {
      from: query.from,
      to: query.to,
      direction: query.dir,
      limit: Math.min(query.limit ?? filter.limit ?? 10, maxLimit),
      filter,
    });
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/event/{eventId} */
  @Get(stable('/rooms/:roomId/event/:eventId'))
  @Access({ auth: 'required', guests: true, anyProcess: true })
  event(
    @Who() requester: Requester,
    @Query(eventQuery) query: InferQuery<typeof eventQuery>,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
  ): Promise<object> {
    const isUnredacted = this.redacted.isEnabled && query['fi.mau.msc2815.include_unredacted_content'];
    return (isUnredacted ? this.redacted : this.reading).event(requester, roomId, eventId);
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/context/{eventId} */
  @Get(stable('/rooms/:roomId/context/:eventId'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  context(
    @Who() requester: Requester,
    @Query(contextQuery) query: InferQuery<typeof contextQuery>,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
  ): Promise<object> {
    return this.reading.context(requester, roomId, eventId, query.limit, query.filter);
  }

  /** GET /_matrix/client/v1/rooms/{roomId}/timestamp_to_event */
  @Get(client(['v1'], '/rooms/:roomId/timestamp_to_event'))
  @Access({ auth: 'required', anyProcess: true })
  async timestampToEvent(
    @Who() requester: Requester,
    @Query(timestampToEventQuery) query: InferQuery<typeof timestampToEventQuery>,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    const found = await this.byTime.find(requester, roomId, query.ts, query.dir);
    return { event_id: found.eventId, origin_server_ts: found.ts };
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/members */
  @Get(stable('/rooms/:roomId/members'))
  @Access({ auth: 'required', guests: true, largeAnswer: true, anyProcess: true })
  async members(
    @Who() requester: Requester,
    @Query(membersQuery) query: InferQuery<typeof membersQuery>,
    @Param('roomId') roomId: string,
  ): Promise<object> {
    const chunk = await this.reading.members(requester, roomId, {
      at: query.at,
      membership: query.membership,
      notMembership: query.not_membership,
    });
    return { chunk };
  }

  /** GET /_matrix/client/v3/rooms/{roomId}/joined_members */
  @Get(stable('/rooms/:roomId/joined_members'))
  @Access({ auth: 'required', largeAnswer: true, anyProcess: true })
  async joinedMembers(@Who() requester: Requester, @Param('roomId') roomId: string): Promise<HttpReply> {
    await this.access.joined(requester, roomId);
    await this.access.whole(roomId);
    const parts = [Buffer.from('{"joined":{')];
    for await (const members of this.memberships.joinedMembers(roomId)) {
      const texts = members.map(({ userId, displayName, avatarUrl }) => {
        // Clients in use look for both.
        const profile = { display_name: displayName ?? null, avatar_url: avatarUrl ?? null };
        return `${JSON.stringify(userId)}:${JSON.stringify(profile)}`;
      });
      if (texts.length > 0) parts.push(Buffer.from((parts.length > 1 ? ',' : '') + texts.join()));
    }
    parts.push(Buffer.from('}}'));
    return new HttpReply(200, { 'content-type': 'application/json' }, parts);
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
  mutualRooms(
    @Who() requester: Requester,
    @Query(mutualRoomsQuery) query: InferQuery<typeof mutualRoomsQuery>,
  ): Promise<object> {
    return this.#mutualRooms(requester, query.user_id, query.from);
  }

  /** GET /_matrix/client/unstable/uk.half-shot.msc2666/user/mutual_rooms (MSC2666), for clients of before it was specified */
  @Get(client(['unstable'], '/uk.half-shot.msc2666/user/mutual_rooms'))
  @Access({ auth: 'required', anyProcess: true })
  async formerMutualRooms(
    @Who() requester: Requester,
    @Query(formerMutualRoomsQuery) query: InferQuery<typeof formerMutualRoomsQuery>,
  ): Promise<object> {
    if (!this.config.get('experimental_features.msc2666_enabled')) throw MatrixError.unrecognized();
    const { next_batch: next, ...page } = await this.#mutualRooms(
      requester,
      query.user_id,
      query.batch_token ?? query.from,
    );
    return { ...page, ...(next !== undefined && { next_batch_token: next }) };
  }

  async #mutualRooms(requester: Requester, other: string | undefined, from = ''): Promise<JsonObject> {
    if (other === undefined) throw MatrixError.missingParam("Missing query parameter 'user_id'");
    if (other === requester.userId) throw MatrixError.invalidParam('This is your own user id');
    if (!isValidUserId(other)) throw MatrixError.notUserId();
    const pageSize = 100;
    const rooms = await this.memberships.mutualRooms(requester.userId, other);
    if (from !== '' && !isValidRoomId(from)) throw MatrixError.invalidParam("'from' is not a token of this endpoint");
    const page = rooms.filter((roomId) => roomId > from).slice(0, pageSize);
    const last = page.at(-1);
    const more = last !== undefined && last !== rooms.at(-1);
    return { joined: page, count: rooms.length, ...(more && { next_batch: last }) };
  }
}
