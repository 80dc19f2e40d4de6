import { Controller, Param, Post, Put } from '@nestjs/common';
import { Access, Inbound, type InboundRequest, type Infer, json, JsonBody } from '@rookery/http';
import { isJsonObject } from '@rookery/matrix-types';
import { FederationAccess, Origin, SignedContent } from '../inbound/federation-access.js';
import { InboundInvites } from './inbound-invites.js';
import { type BoundInvite, ThreepidExchange } from './threepid-exchange.js';

const inviteBody = json.object({
  room_version: json.required('The version of the room.', json.string({ maxLength: 64 })),
  event: json.required('The invite, signed by its server.', json.anyObject()),
  invite_room_state: json.optional(
    'What the invited user is shown of the room: a list of state events.',
    json.unknown(),
  ),
});
const inviteBodyV1 = json.described(
  'The invite, signed by its server; `unsigned.invite_room_state` is what the invited user is shown of the room.',
  json.anyObject(),
);

const text = json.string({ maxLength: 512 });
const boundSchema = json.object({
  medium: json.required('The kind of the address: `email` or `msisdn`.', text),
  address: json.required('The address.', text),
  mxid: json.required('Whose it is now.', text),
  invites: json.optional(
    'Invites that went to the address.',
    json.array(
      json.object({
        mxid: json.required('Who is invited.', text),
        room_id: json.required('The room of the invite.', text),
        sender: json.required('Who has invited.', text),
        signed: json.required('Proves whose the address is: signed by the identity server.', json.anyObject()),
      }),
      { maxItems: 100 },
    ),
  ),
});
const thirdPartyInviteBody = json.object({
  type: json.required('The type of the event.', json.enum('m.room.member')),
  room_id: json.required('The room of the invite.', text),
  sender: json.required('Who has invited.', text),
  state_key: json.required('Who is invited.', text),
  content: json.required(
    'The content of the event.',
    json.object({
      membership: json.optional('What the event makes the user.', json.enum('invite')),
      third_party_invite: json.required(
        'The invite by address.',
        json.object({
          signed: json.required('Proves whose the address is: signed by the identity server.', json.anyObject()),
        }),
      ),
    }),
  ),
});

/** Largest invite, with the state of its room; bytes. */
const bodyLimitBytes = 1_048_576;

/** Invites from other servers, and invites to addresses that somebody has claimed. */
@Controller()
export class InvitesForServersController {
  constructor(
    private readonly invites: InboundInvites,
    private readonly threepids: ThreepidExchange,
  ) {}

  /** PUT /_matrix/federation/v2/invite/{roomId}/{eventId} */
  @Put('/_matrix/federation/v2/invite/:roomId/:eventId')
  @FederationAccess({ bodyLimitBytes })
  async invite(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @SignedContent(inviteBody) content: Infer<typeof inviteBody>,
  ): Promise<object> {
    const { room_version: roomVersion, event, invite_room_state: roomState } = content;
    const shown = { roomVersion, event, roomState };
    return { event: await this.invites.take(origin, roomId, eventId, shown) };
  }

  /** PUT /_matrix/federation/v1/invite/{roomId}/{eventId} */
  @Put('/_matrix/federation/v1/invite/:roomId/:eventId')
  @FederationAccess({ bodyLimitBytes })
  async inviteV1(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @Param('eventId') eventId: string,
    @SignedContent(inviteBodyV1) content: Infer<typeof inviteBodyV1>,
  ): Promise<object> {
    const { unsigned } = content;
    const roomState = isJsonObject(unsigned) ? unsigned['invite_room_state'] : undefined;
    const shown = { roomVersion: oldVersionIn(roomState), event: content, roomState };
    return [200, { event: await this.invites.take(origin, roomId, eventId, shown) }];
  }

  /** PUT /_matrix/federation/v1/exchange_third_party_invite/{roomId} */
  @Put('/_matrix/federation/v1/exchange_third_party_invite/:roomId')
  @FederationAccess()
  async exchangeInvite(
    @Origin() origin: string,
    @Param('roomId') roomId: string,
    @SignedContent(thirdPartyInviteBody) content: Infer<typeof thirdPartyInviteBody>,
  ): Promise<object> {
    await this.threepids.forServer(origin, roomId, {
      roomId: content.room_id,
      sender: content.sender,
      userId: content.state_key,
      signed: content.content.third_party_invite.signed,
    });
    return {};
  }

  /** POST /_matrix/federation/v1/3pid/onbind: as identity servers in use send it. */
  @Post('/_matrix/federation/v1/3pid/onbind')
  @Access({ auth: 'none', bodyLimitBytes: 262_144 })
  boundByPost(
    @Inbound() request: InboundRequest,
    @JsonBody(boundSchema) body: Infer<typeof boundSchema>,
  ): Promise<object> {
    return this.bound(request, body);
  }

  /** PUT /_matrix/federation/v1/3pid/onbind */
  @Put('/_matrix/federation/v1/3pid/onbind')
  @Access({ auth: 'none', bodyLimitBytes: 262_144 })
  async bound(
    @Inbound() request: InboundRequest,
    @JsonBody(boundSchema) body: Infer<typeof boundSchema>,
  ): Promise<object> {
    const invites = (body.invites ?? []).map(({ room_id: roomId, sender, mxid: userId, signed }): BoundInvite => ({
      ...{ roomId, sender, userId, signed },
    }));
    await this.threepids.claim(request.ip, body.mxid, invites);
    return {};
  }
}

/** The version of a room that is too old to name it beside the invite: of the first two, which look the same. */
function oldVersionIn(roomState: unknown): string {
  const create = Array.isArray(roomState)
    ? roomState.find((entry: unknown) => isJsonObject(entry) && entry['type'] === 'm.room.create')
    : undefined;
  const content: unknown = isJsonObject(create) ? create['content'] : undefined;
  return isJsonObject(content) && content['room_version'] === '2' ? '2' : '1';
}
