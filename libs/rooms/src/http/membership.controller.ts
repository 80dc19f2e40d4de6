import { Controller, Param, Post, Put } from '@nestjs/common';
import { Access, type Infer, type InferQuery, json, JsonBody, param, Query, queryOf, stable, Who } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { Requester } from '@rookery/platform';
import { AliasService } from '../directory/alias.service.js';
import { RemoteLookups } from '../directory/remote-lookups.js';
import type { ResolvedAlias } from '../ports.js';
import { AnsweredTransactions } from '../sending/answered-transactions.js';
import { JoinService } from '../membership/join.service.js';
import { MembershipService } from '../membership/membership.service.js';
import { ThreepidClaims } from '../membership/threepid-claims.js';
import { ThreepidInvites } from '../membership/threepid-invites.js';
import { bodyLimitBytes, reason, type ReasonBody, reasonSchema, text } from './membership-bodies.js';

const joinSchema = json.object({
  reason,
  third_party_signed: json.optional(
    'Proves that the user was invited by an address: signed by its identity server.',
    json.object({
      sender: json.required('Who has invited.', text),
      mxid: json.required('Who was invited.', text),
      token: json.required('The state key of the invite by address.', text),
      signatures: json.required('Signatures of this object, by server and key.', json.anyObject()),
    }),
  ),
});
const targetSchema = json.object({ user_id: json.required('Whom it is about.', json.string()), reason });
const inviteSchema = json.object({
  user_id: json.optional('Who is invited; an address may be given in place of it.', json.string()),
  reason,
  id_server: json.optional('The identity server that may know whose the address is.', text),
  id_access_token: json.optional('A token of that server.', text),
  medium: json.optional('The kind of the address: `email` or `msisdn`.', text),
  address: json.optional('Who is invited, by address.', text),
});

type JoinBody = Infer<typeof joinSchema>;

type TargetBody = Infer<typeof targetSchema>;

type InviteBody = Infer<typeof inviteSchema>;

const maxVia = 50;
const viaQuery = queryOf({
  via: param.strings(`Servers to go through; the first ${maxVia} count.`, { also: ['server_name'] }),
});
type ViaQuery = InferQuery<typeof viaQuery>;

/** Joining, inviting, removing. */
@Controller()
export class MembershipController {
  constructor(
    private readonly joins: JoinService,
    private readonly memberships: MembershipService,
    private readonly aliases: AliasService,
    private readonly threepidInvites: ThreepidInvites,
    private readonly threepidClaims: ThreepidClaims,
    private readonly transactions: AnsweredTransactions,
    private readonly lookups: RemoteLookups,
  ) {}

  /** POST /_matrix/client/v3/rooms/{roomId}/join */
  @Post(stable('/rooms/:roomId/join'))
  @Access({ auth: 'required', guests: true, suspended: false, bodyLimitBytes })
  joinById(
    @Who() requester: Requester,
    @Query(viaQuery) query: ViaQuery,
    @Param('roomId') roomId: string,
    @JsonBody(joinSchema, { optional: true }) body: JoinBody,
  ): Promise<object> {
    return this.#join(requester, query, roomId, { reason: body.reason, third_party_signed: body.third_party_signed });
  }

  /** PUT /_matrix/client/v3/rooms/{roomId}/join/{txnId}, of clients from before the specification */
  @Put(stable('/rooms/:roomId/join/:txnId'))
  @Access({ auth: 'required', guests: true, suspended: false, bodyLimitBytes })
  joinByIdOnce(
    @Who() requester: Requester,
    @Query(viaQuery) query: ViaQuery,
    @Param('roomId') roomId: string,
    @Param('txnId') txnId: string,
    @JsonBody(joinSchema, { optional: true }) body: JoinBody,
  ): Promise<object> {
    return this.transactions.once(requester, ['rooms/join', roomId, txnId], () =>
      this.joinById(requester, query, roomId, body),
    );
  }

  /** POST /_matrix/client/v3/join/{roomIdOrAlias} */
  @Post(stable('/join/:roomIdOrAlias'))
  @Access({ auth: 'required', guests: true, suspended: false, bodyLimitBytes })
  join(
    @Who() requester: Requester,
    @Query(viaQuery) query: ViaQuery,
    @Param('roomIdOrAlias') roomIdOrAlias: string,
    @JsonBody(joinSchema, { optional: true }) body: JoinBody,
  ): Promise<object> {
    return this.#join(requester, query, roomIdOrAlias, body);
  }

  /** PUT /_matrix/client/v3/join/{roomIdOrAlias}/{txnId}, of clients from before the specification */
  @Put(stable('/join/:roomIdOrAlias/:txnId'))
  @Access({ auth: 'required', guests: true, suspended: false, bodyLimitBytes })
  joinOnce(
    @Who() requester: Requester,
    @Query(viaQuery) query: ViaQuery,
    @Param('roomIdOrAlias') roomIdOrAlias: string,
    @Param('txnId') txnId: string,
    @JsonBody(joinSchema, { optional: true }) body: JoinBody,
  ): Promise<object> {
    return this.transactions.once(requester, ['join', roomIdOrAlias, txnId], () =>
      this.join(requester, query, roomIdOrAlias, body),
    );
  }

  /** POST /_matrix/client/v3/knock/{roomIdOrAlias} */
  @Post(stable('/knock/:roomIdOrAlias'))
  @Access({ auth: 'required', suspended: false, bodyLimitBytes })
  async knock(
    @Who() requester: Requester,
    @Query(viaQuery) query: ViaQuery,
    @Param('roomIdOrAlias') roomIdOrAlias: string,
    @JsonBody(reasonSchema, { optional: true }) body: ReasonBody,
  ): Promise<object> {
    const { roomId, servers } = await this.#resolve(requester, query, roomIdOrAlias);
    await this.joins.knock(requester, roomId, { reason: body.reason, via: servers });
    return { room_id: roomId };
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/invite */
  @Post(stable('/rooms/:roomId/invite'))
  @Access({ auth: 'required', suspended: false, bodyLimitBytes })
  async invite(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(inviteSchema) body: InviteBody,
  ): Promise<object> {
    if (body.user_id !== undefined) {
      await this.memberships.invite(requester, roomId, body.user_id, { reason: body.reason });
      return {};
    }
    const { medium, address, id_server: idServer, id_access_token: idAccessToken } = body;
    if (medium === undefined || address === undefined || idServer === undefined) {
      throw MatrixError.missingParam("Missing parameter 'user_id'");
    }
    await this.threepidInvites.invite(requester, roomId, { medium, address, idServer, idAccessToken });
    return {};
  }

  /** PUT /_matrix/client/v3/rooms/{roomId}/invite/{txnId}, of clients from before the specification */
  @Put(stable('/rooms/:roomId/invite/:txnId'))
  @Access({ auth: 'required', suspended: false, bodyLimitBytes })
  inviteOnce(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @Param('txnId') txnId: string,
    @JsonBody(inviteSchema) body: InviteBody,
  ): Promise<object> {
    return this.transactions.once(requester, ['rooms/invite', roomId, txnId], () =>
      this.invite(requester, roomId, body),
    );
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/kick */
  @Post(stable('/rooms/:roomId/kick'))
  @Access({ auth: 'required', suspended: false, bodyLimitBytes })
  async kick(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(targetSchema) body: TargetBody,
  ): Promise<object> {
    await this.memberships.kick(requester, roomId, body.user_id, { reason: body.reason });
    return {};
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/ban */
  @Post(stable('/rooms/:roomId/ban'))
  @Access({ auth: 'required', suspended: false, bodyLimitBytes })
  async ban(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(targetSchema) body: TargetBody,
  ): Promise<object> {
    await this.memberships.ban(requester, roomId, body.user_id, { reason: body.reason });
    return {};
  }

  /** POST /_matrix/client/v3/rooms/{roomId}/unban */
  @Post(stable('/rooms/:roomId/unban'))
  @Access({ auth: 'required', suspended: false, bodyLimitBytes })
  async unban(
    @Who() requester: Requester,
    @Param('roomId') roomId: string,
    @JsonBody(targetSchema) body: TargetBody,
  ): Promise<object> {
    await this.memberships.unban(requester, roomId, body.user_id, { reason: body.reason });
    return {};
  }

  async #join(requester: Requester, query: ViaQuery, idOrAlias: string, body: JoinBody): Promise<object> {
    const { roomId, servers } = await this.#resolve(requester, query, idOrAlias);
    const { reason, third_party_signed: claim, ...more } = body;
    if (claim) await this.threepidClaims.claim(requester, roomId, claim);
    // NOTSPEC: clients put keys of their own into their member event this way.
    const content = Object.keys(more).length > 0 ? (more as JsonObject) : undefined;
    await this.joins.join(requester, roomId, { reason, content, via: servers });
    return { room_id: roomId };
  }

  async #resolve(requester: Requester, query: ViaQuery, idOrAlias: string): Promise<ResolvedAlias> {
    if (!/^[!#]/.test(idOrAlias)) throw MatrixError.invalidParam('This is neither a room id nor an alias');
    if (idOrAlias.startsWith('#')) await this.lookups.count([this.aliases.serverOf(idOrAlias)], requester);
    return this.aliases.resolveRoom(idOrAlias, viaOf(query));
  }
}

const viaOf = ({ via }: ViaQuery): string[] => [...new Set(via)].slice(0, maxVia);
