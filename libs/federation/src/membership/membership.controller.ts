import { Controller, Get, Param, Put } from '@nestjs/common';
import { type HttpReply, type Infer, type InferQuery, json, param, Query, queryOf } from '@rookery/http';
import { FederationAccess, Origin, SignedContent } from '../inbound/federation-access.js';
import { JoinAnswers } from './join-answers.js';
import { MembershipRequests, type Template } from './membership-requests.js';

const path = '/_matrix/federation';
/** Versions that a server may say it knows. */
const maxVersions = 100;

const eventBody = json.described(
  'The event that the template of `make_…` was made into, signed by its server; the version of the room says what is in it.',
  json.anyObject(),
);

const makeQuery = queryOf({
  ver: param.strings('The room versions that the server knows; `1` where none is said.'),
});

const sendJoinQuery = queryOf({
  omit_members: param.boolean('Whether members may be left out of the state (MSC3706).', { otherwise: false }),
});

/** Joining, leaving and knocking for users of other servers. */
@Controller()
export class MembershipForServersController {
  constructor(
    private readonly requests: MembershipRequests,
    private readonly joins: JoinAnswers,
  ) {}

  /** GET /_matrix/federation/v1/make_join/{roomId}/{userId} */
  @Get(`${path}/v1/make_join/:roomId/:userId`)
  @FederationAccess()
  makeJoin(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('userId') userId: string,
    @Query(makeQuery) query: InferQuery<typeof makeQuery>,
  ): Promise<Template> {
    return this.requests.make('join', origin, roomId, userId, versionsIn(query.ver));
  }

  /** PUT /_matrix/federation/v2/send_join/{roomId}/{eventId} */
  @Put(`${path}/v2/send_join/:roomId/:eventId`)
  @FederationAccess()
  sendJoin(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @Query(sendJoinQuery) query: InferQuery<typeof sendJoinQuery>,
    @SignedContent(eventBody) content: Infer<typeof eventBody>,
  ): Promise<HttpReply> {
    return this.joins.take(origin, roomId, eventId, content, { omitMembers: query.omit_members });
  }

  /** PUT /_matrix/federation/v1/send_join/{roomId}/{eventId} */
  @Put(`${path}/v1/send_join/:roomId/:eventId`)
  @FederationAccess()
  sendJoinV1(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @SignedContent(eventBody) content: Infer<typeof eventBody>,
  ): Promise<HttpReply> {
    return this.joins.take(origin, roomId, eventId, content, { asPair: true });
  }

  /** GET /_matrix/federation/v1/make_leave/{roomId}/{userId} */
  @Get(`${path}/v1/make_leave/:roomId/:userId`)
  @FederationAccess()
  makeLeave(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('userId') userId: string,
  ): Promise<Template> {
    return this.requests.make('leave', origin, roomId, userId, undefined);
  }

  /** PUT /_matrix/federation/v2/send_leave/{roomId}/{eventId} */
  @Put(`${path}/v2/send_leave/:roomId/:eventId`)
  @FederationAccess()
  async sendLeave(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @SignedContent(eventBody) content: Infer<typeof eventBody>,
  ): Promise<object> {
    await this.requests.send('leave', origin, roomId, eventId, content);
    return {};
  }

  /** PUT /_matrix/federation/v1/send_leave/{roomId}/{eventId} */
  @Put(`${path}/v1/send_leave/:roomId/:eventId`)
  @FederationAccess()
  async sendLeaveV1(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @SignedContent(eventBody) content: Infer<typeof eventBody>,
  ): Promise<object> {
    return [200, await this.sendLeave(origin, roomId, eventId, content)];
  }

  /** GET /_matrix/federation/v1/make_knock/{roomId}/{userId} */
  @Get(`${path}/v1/make_knock/:roomId/:userId`)
  @FederationAccess()
  makeKnock(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('userId') userId: string,
    @Query(makeQuery) query: InferQuery<typeof makeQuery>,
  ): Promise<Template> {
    return this.requests.make('knock', origin, roomId, userId, versionsIn(query.ver));
  }

  /** PUT /_matrix/federation/v1/send_knock/{roomId}/{eventId} */
  @Put(`${path}/v1/send_knock/:roomId/:eventId`)
  @FederationAccess()
  async sendKnock(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @SignedContent(eventBody) content: Infer<typeof eventBody>,
  ): Promise<object> {
    await this.requests.send('knock', origin, roomId, eventId, content);
    return { knock_room_state: await this.joins.shownOutside(roomId) };
  }
}

/** A server that says nothing knows the first version. */
function versionsIn(known: readonly string[]): readonly string[] {
  return known.length === 0 ? ['1'] : known.slice(0, maxVersions);
}
