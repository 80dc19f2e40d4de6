import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { domainOf, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import { Config, type Requester } from '@rookery/platform';
import type { SentEvent } from '../model/stored-event.js';
import { ComplexRooms } from './complex-rooms.js';
import { MemberProfiles } from './member-profiles.js';
import { MemberEvents, type MembershipOptions } from './member-events.js';
import { Participation } from '../sending/participation.js';
import { isBlocked, selectJoinFacts } from './membership.query.js';
import { RemoteRooms } from '../remote-rooms.js';
import { RestrictedJoins } from './restricted-joins.js';
import { checkNesting } from '../model/content-rules.js';

/** Joining and knocking. */
@Injectable()
export class JoinService {
  // Ten parameters: whether somebody may join is asked of five, and a join goes one of two ways.
  constructor(
    private readonly change: MemberEvents,
    private readonly profiles: MemberProfiles,
    private readonly restricted: RestrictedJoins,
    private readonly remote: RemoteRooms,
    private readonly modules: ModuleDispatcher,
    private readonly limiter: RateLimiter,
    private readonly database: Database,
    private readonly config: Config,
    private readonly participation: Participation,
    private readonly complex: ComplexRooms,
  ) {}

  /**
   * Joins a room. Joining again changes nothing, unless the content differs.
   * @returns the event; `undefined` where nothing changed, or another server took it
   * @throws MatrixError 403 `M_FORBIDDEN`, `M_GUEST_ACCESS_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED` or `M_CONSENT_NOT_GIVEN`, 404 `M_NOT_FOUND` when no server is known that has
   *   the room, 429 `M_LIMIT_EXCEEDED`
   */
  async join(requester: Requester, roomId: string, options: MembershipOptions = {}): Promise<SentEvent | undefined> {
    const { userId } = requester;
    const facts = await selectJoinFacts(this.database, userId, roomId);
    const before = facts.membership ?? 'leave';
    if (before === 'join' && !options.content) return undefined;
    if (options.content) checkNesting(options.content);
    if (!options.unchecked) await this.participation.assertMayJoin(requester, roomId);
    if (facts.is_blocked) {
      throw MatrixError.roomBlocked();
    }
    // Where nobody of this server is, a ban may have been lifted since.
    if (before === 'ban' && facts.is_ours) throw MatrixError.forbidden('You are banned from this room');
    const isInvited = before === 'invite';
    if (before !== 'join' && !options.unchecked) await this.#check(requester, roomId, isInvited);
    const content = { ...(await this.profiles.of(userId)), ...this.#ownProfile(options.content) };
    if (!facts.is_ours && !(await this.change.isOurs(roomId))) {
      await this.#joinRemote(requester, roomId, content, options);
      return undefined;
    }
    if (before === 'join') {
      if (!options.unchecked) await this.participation.takeEvent(requester);
      if (requester.shadowBanned) return this.participation.pretend(requester, roomId);
      return this.change.send(requester, roomId, userId, 'join', content, { ...options, content: undefined });
    }
    if (!options.unchecked) {
      await this.limiter.take('rc_joins.local', userId, requester);
      await this.limiter.take('rc_joins_per_room', roomId, requester);
    }
    if (!isInvited) {
      const authorizer = await this.restricted.authorizer(roomId, userId);
      // While not all members are known nobody here can tell who is banned.
      const isUnknown = facts.membership === null && !this.change.isWhole(roomId);
      if (authorizer === 'elsewhere' || isUnknown) {
        const { gateway } = this.remote;
        if (!gateway) {
          throw MatrixError.unableToAuthoriseJoin();
        }
        await gateway.membership.joinAuthorised(userId, roomId, options.via ?? [], {
          ...content,
          ...reasonIn(options),
        });
        return undefined;
      }
      if (authorizer !== undefined) content['join_authorised_via_users_server'] = authorizer;
    }
    return this.change.send(requester, roomId, userId, 'join', content, { ...options, content: undefined });
  }

  /**
   * Asks to be let into a room.
   * @returns the event; `undefined` where another server took it
   * @throws MatrixError 403 `M_FORBIDDEN`, 404 `M_NOT_FOUND`, 429 `M_LIMIT_EXCEEDED`
   */
  async knock(requester: Requester, roomId: string, options: MembershipOptions = {}): Promise<SentEvent | undefined> {
    const { userId } = requester;
    await this.participation.assertMaySend(requester);
    if (await isBlocked(this.database, roomId)) {
      throw MatrixError.roomBlocked();
    }
    await this.limiter.take('rc_joins.local', userId, requester);
    const content = await this.profiles.of(userId);
    if (await this.change.isOurs(roomId)) {
      return this.change.send(requester, roomId, userId, 'knock', content, options);
    }
    const { gateway } = this.remote;
    const servers = await this.#servers(roomId, options.via, undefined);
    if (!gateway || servers.length === 0) throw MatrixError.noServerHasRoom();
    await gateway.membership.knock(userId, roomId, servers, { ...content, ...reasonIn(options) });
    return undefined;
  }

  async #check(requester: Requester, roomId: string, isInvited: boolean): Promise<void> {
    if (requester.isGuest) {
      const access = await this.change.stateContent(roomId, 'm.room.guest_access');
      if (access?.['guest_access'] !== 'can_join') {
        throw MatrixError.guestAccessForbidden('Guests may not join this room');
      }
    }
    if (requester.isAdmin || !this.modules.has('userMayJoinRoom')) return;
    const context = callbackContext(requester);
    assertAllowed(await this.modules.gate('userMayJoinRoom', context, requester.userId, roomId, isInvited));
  }

  async #joinRemote(
    requester: Requester,
    roomId: string,
    content: Readonly<JsonObject>,
    options: MembershipOptions,
  ): Promise<void> {
    if (!options.unchecked) await this.limiter.take('rc_joins.remote', requester.userId, requester);
    const inviter = await this.change.inviterOf(roomId, requester.userId);
    const servers = await this.#servers(roomId, options.via, inviter);
    const { gateway } = this.remote;
    if (!gateway || servers.length === 0) throw MatrixError.noServerHasRoom();
    if (!options.unchecked) await this.complex.assertMayJoin(requester, roomId, servers);
    await gateway.membership.join(requester.userId, roomId, servers, { ...content, ...reasonIn(options) });
    if (options.unchecked || !(await this.complex.isTooLarge(requester, roomId))) return;
    await this.change.send(requester, roomId, requester.userId, 'leave', {}, { unchecked: true });
    throw this.complex.refusal;
  }

  /**
   * Servers that may know the room, likeliest first, without this one. The server in the room's id is no more than a guess, and so are
   * those that were in the room when somebody of this server was: they need not be there any more, so they are asked only where nobody
   * else is named.
   */
  async #servers(roomId: string, via: readonly string[] = [], inviter: string | undefined): Promise<string[]> {
    const others = (servers: Iterable<string>): string[] => [
      ...new Set([...servers].filter((server) => server !== '' && server !== this.config.serverName)),
    ];
    const named = others([...(inviter === undefined ? [] : [domainOf(inviter)]), ...via]);
    return named.length > 0 ? named : others([domainOf(roomId), ...(await this.change.serversIn(roomId))]);
  }

  /** What a client wrote into its own member event; the profile only where rooms may have their own. */
  #ownProfile(content: Readonly<JsonObject> | undefined): JsonObject {
    if (!content) return {};
    const { displayname, avatar_url: avatar, join_authorised_via_users_server: _, ...rest } = content;
    if (!this.config.get('allow_per_room_profiles')) return rest;
    return {
      ...rest,
      ...(displayname !== undefined && { displayname }),
      ...(avatar !== undefined && { avatar_url: avatar }),
    };
  }
}

/** The reason, for a member event that another server helps to make; into others {@link MemberEvents} puts it. */
const reasonIn = ({ reason }: MembershipOptions): JsonObject => (reason === undefined ? {} : { reason });
