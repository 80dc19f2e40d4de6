import { Injectable } from '@nestjs/common';
import { RateLimiter } from '@rookery/http';
import { isIdLike, VerifyKey, verifyJson } from '@rookery/events';
import { domainOf, isJsonObject, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher, toStateView } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import { canonicalAddress } from '@rookery/users';
import { EventPersister } from '../pipeline/event-persister.js';
import { originOf } from '../model/requesters.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { IdentityServers, type ThreepidInvite } from './identity-servers.js';
import { MemberProfiles } from './member-profiles.js';
import { MembershipService } from './membership.service.js';
import { Participation } from '../sending/participation.js';

/** How an address is invited. */
export interface ThreepidInviteOptions {
  /** Further keys of the member event's content. */
  readonly content?: Readonly<JsonObject> | undefined;
  /** The room was made by the same request, which has taken the limits. */
  readonly duringRoomCreation?: boolean | undefined;
}

/** What may stand in an identity server's mail, by the state it comes from. */
const mailFacts = [
  ['m.room.name', 'name', 'room_name'],
  ['m.room.avatar', 'url', 'room_avatar_url'],
  ['m.room.canonical_alias', 'alias', 'room_alias'],
  ['m.room.join_rules', 'join_rule', 'room_join_rules'],
  ['m.room.create', 'type', 'room_type'],
] as const;

const maxSignatures = 20;
/** Identity servers that are asked about one invite: it names as many as whoever left it likes, and two where it is honest. */
const maxAsked = 3;

/** Invites by email address or telephone number. */
@Injectable()
export class ThreepidInvites {
  // Nine parameters: an address is looked up, then invited, stored or exchanged: each is another service.
  constructor(
    private readonly servers: IdentityServers,
    private readonly memberships: MembershipService,
    private readonly profiles: MemberProfiles,
    private readonly persister: EventPersister,
    private readonly state: RoomStateReader,
    private readonly modules: ModuleDispatcher,
    private readonly limiter: RateLimiter,
    private readonly config: Config,
    private readonly participation: Participation,
  ) {}

  /**
   * Takes the limits for a number of invites, and checks that identity servers can be asked about them.
   * @throws MatrixError 400 `M_MISSING_PARAM` or `M_INVALID_PARAM`, 403 `M_FORBIDDEN`, 429 `M_LIMIT_EXCEEDED`
   */
  async admit(requester: Requester, invites: readonly ThreepidInvite[]): Promise<void> {
    if (invites.length === 0) return;
    await this.participation.assertMaySend(requester);
    for (const invite of invites) this.#asStored(invite);
    if (!this.config.get('enable_3pid_lookup')) {
      throw MatrixError.forbidden('This server does not ask identity servers about addresses');
    }
    if (this.config.get('block_non_admin_invites') && !requester.isAdmin) {
      throw MatrixError.invitesDisabled();
    }
    await this.limiter.take('rc_third_party_invite', requester.userId, requester, invites.length);
  }

  /**
   * Invites the user behind an address, or leaves an invite for whoever will be.
   * @throws MatrixError 400 `M_MISSING_PARAM`, `M_INVALID_PARAM`, or what the identity server refuses with; 403
   *   `M_FORBIDDEN`; 429 `M_LIMIT_EXCEEDED`; 502 `M_UNKNOWN`
   * @spec client-server-api#third-party-invites
   */
  async invite(
    requester: Requester,
    roomId: string,
    given: ThreepidInvite,
    options: ThreepidInviteOptions = {},
  ): Promise<void> {
    if (!options.duringRoomCreation) await this.admit(requester, [given]);
    const invite = this.#asStored(given);
    const { userId: inviter } = requester;
    // Nobody's address is told around for those who could not invite anyway.
    const member = (await this.state.currentEvent(roomId, 'm.room.member', inviter))?.event;
    if (member?.content['membership'] !== 'join') throw MatrixError.notInRoom();
    const levels = await this.state.powerLevels(roomId);
    if (!levels || levels.user(inviter) < levels.scalar('invite'))
      throw MatrixError.forbidden('Your power level in this room is too low to invite');
    if (requester.shadowBanned) return void (await this.participation.pretend(requester, roomId));
    const context = callbackContext(requester, { duringRoomCreation: options.duringRoomCreation ?? false });
    const { medium, address } = invite;
    if (this.modules.has('checkThreepidCanBeInvited')) {
      const view = toStateView({
        get: async (type, stateKey) => (await this.state.currentEvent(roomId, type, stateKey))?.event,
        ofType: async (type) => (await this.state.current(roomId, { types: [[type]] })).map(({ event }) => event),
        all: async () => (await this.state.current(roomId)).map(({ event }) => event),
      });
      assertAllowed(await this.modules.gate('checkThreepidCanBeInvited', context, medium, address, view));
    }
    const userId = await this.servers.lookUp(invite);
    if (userId !== undefined) {
      const byLimits = options.duringRoomCreation ? { ...requester, rateLimitExempt: true } : requester;
      await this.memberships.invite(byLimits, roomId, userId, { content: options.content });
      return;
    }
    if (this.modules.has('userMaySend3pidInvite')) {
      assertAllowed(await this.modules.gate('userMaySend3pidInvite', context, inviter, medium, address, roomId));
    }
    const stored = await this.servers.store(invite, await this.#mailFacts(roomId, inviter));
    const [first] = stored.publicKeys;
    await this.persister.send({
      roomId,
      type: 'm.room.third_party_invite',
      stateKey: stored.token,
      sender: inviter,
      content: {
        display_name: stored.displayName,
        public_keys: stored.publicKeys.map((key) => ({ ...key })),
        key_validity_url: first!.key_validity_url,
        public_key: first!.public_key,
      },
      origin: originOf(requester, options.duringRoomCreation),
    });
  }

  /**
   * An invite to the address as servers store and compare it: identity servers and modules know one mailbox by one name.
   * @throws MatrixError 400 `M_MISSING_PARAM` or `M_INVALID_PARAM`
   */
  #asStored(invite: ThreepidInvite): ThreepidInvite {
    this.servers.check(invite);
    return { ...invite, address: canonicalAddress(invite.medium, invite.address) };
  }

  /**
   * Invites the user who has claimed an invite, on behalf of the local user who left it. The auth rules check the identity
   * server's signature; here that the key it was made with is still valid. Whoever is in the room stays in it: identity
   * servers tell of an invite as often as its address is claimed, and the auth rules would let it make a member an invited user again.
   * @param signed `signed` of the third-party invite, as the identity server gave it out
   * @throws MatrixError 403 `M_FORBIDDEN`, 400 `M_BAD_JSON`
   * @spec server-server-api#third-party-invites
   */
  async exchangeInvite(roomId: string, sender: string, target: string, signed: Readonly<JsonObject>): Promise<void> {
    const { token } = signed;
    if (!isIdLike(token) || !isValidUserId(target)) throw MatrixError.badJson('The invite is not complete');
    const offer = (await this.state.currentEvent(roomId, 'm.room.third_party_invite', token))?.event;
    if (!offer) throw MatrixError.forbidden('There is no such invite');
    const { content } = offer;
    const listed = Array.isArray(content['public_keys']) ? content['public_keys'].slice(0, maxSignatures) : [];
    const keys = [content, ...listed].filter((key) => isJsonObject(key)).filter((key) => isSignedBy(signed, key));
    if (!(await this.#isAnyValid(keys))) throw MatrixError.forbidden('The key of the invite is not valid any more');
    if (await this.#hasWayIn(roomId, target)) return;
    const displayName = typeof content['display_name'] === 'string' ? content['display_name'] : '';
    await this.persister.send({
      roomId,
      type: 'm.room.member',
      stateKey: target,
      sender,
      content: {
        ...(await this.profiles.ofInvited(target)),
        membership: 'invite',
        third_party_invite: { display_name: displayName, signed },
      },
    });
  }

  /**
   * Whether somebody is in a room, or invited already. An invite of another server's user may be gone there, by a rejection of which
   * nobody was told: then it is made anew.
   */
  async #hasWayIn(roomId: string, userId: string): Promise<boolean> {
    const member = (await this.state.currentEvent(roomId, 'm.room.member', userId))?.event;
    const membership = member?.content['membership'];
    return membership === 'join' || (membership === 'invite' && domainOf(userId) === this.config.serverName);
  }

  async #isAnyValid(keys: readonly Readonly<JsonObject>[]): Promise<boolean> {
    // A key without an address to ask at cannot be revoked.
    if (keys.some(({ key_validity_url: url }) => url === undefined)) return true;
    const asked = new Map<string, [url: string, key: string]>();
    for (const { key_validity_url: url, public_key: key } of keys)
      if (typeof url === 'string' && asked.size < maxAsked) asked.set(JSON.stringify([url, key]), [url, String(key)]);
    // Side by side: the time of one is the time of all.
    const valid = await Promise.all([...asked.values()].map(([url, key]) => this.servers.isKeyValid(url, key)));
    return valid.includes(true);
  }

  async #mailFacts(roomId: string, sender: string): Promise<JsonObject> {
    const types = mailFacts.map(([type]): [string, string] => [type, '']);
    const state = await this.state.current(roomId, { types: [...types, ['m.room.member', sender]] });
    const facts: JsonObject = { room_id: roomId, sender };
    const client = this.config.get('email.invite_client_location');
    if (client !== undefined) facts['org.matrix.web_client_location'] = client;
    const set = (name: string, value: unknown): void => {
      if (typeof value === 'string') facts[name] = value;
    };
    for (const { event } of state) {
      for (const [type, key, name] of mailFacts) if (event.type === type) set(name, event.content[key]);
      if (event.type !== 'm.room.member') continue;
      set('sender_display_name', event.content['displayname']);
      set('sender_avatar_url', event.content['avatar_url']);
    }
    return facts;
  }
}

/** Whether any signature was made by a key of an invite. */
function isSignedBy(signed: Readonly<JsonObject>, { public_key: text }: Readonly<JsonObject>): boolean {
  const key = typeof text === 'string' ? VerifyKey.parse(text) : undefined;
  const signatures = signed['signatures'];
  if (!key || !isJsonObject(signatures)) return false;
  const names = Object.entries(signatures).flatMap(([signer, ofSigner]) =>
    isJsonObject(ofSigner) ? Object.keys(ofSigner).map((keyId) => [signer, keyId] as const) : [],
  );
  return names.slice(0, maxSignatures).some(([signer, keyId]) => verifyJson(signed, signer, keyId, key));
}
