import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { RateLimiter } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { assertAllowed, callbackContext, ModuleDispatcher } from '@rookery/module-host';
import type { Requester } from '@rookery/platform';
import type { SentEvent } from '../model/stored-event.js';
import { ComplexRooms } from './complex-rooms.js';
import { LeaveService } from './leave.service.js';
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
  // Ten parameters: whether somebody may join is asked of five, and a join goes one of two ways, or back.
  constructor(
    private readonly change: MemberEvents,
    private readonly profiles: MemberProfiles,
    private readonly restricted: RestrictedJoins,
    private readonly remote: RemoteRooms,
    private readonly modules: ModuleDispatcher,
    private readonly limiter: RateLimiter,
    private readonly database: Database,
    private readonly participation: Participation,
    private readonly complex: ComplexRooms,
    private readonly leaves: LeaveService,
  ) {}

  /**
   * Joins a room. Joining again changes nothing, unless the content differs.
   * @returns the event; `undefined` where nothing changed, or another server took it
   * @throws MatrixError 403 `M_FORBIDDEN`, `M_GUEST_ACCESS_FORBIDDEN`, `M_RESOURCE_LIMIT_EXCEEDED`, `M_CONSENT_NOT_GIVEN` or `M_USER_DEACTIVATED`, 404 `M_NOT_FOUND` when no server is known that has
   *   the room, 429 `M_LIMIT_EXCEEDED`
   */
  async join(requester: Requester, roomId: string, options: MembershipOptions = {}): Promise<SentEvent | undefined> {
    const { userId } = requester;
    const facts = await selectJoinFacts(this.database, userId, roomId);
    // The room may not have heard of an invite that came from elsewhere, and does not let its user in for it.
    const isKnown = Boolean(facts.is_ours) && this.change.isWhole(roomId);
    const before = (isKnown ? facts.in_state : facts.membership) ?? 'leave';
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
    const content = await this.profiles.ofJoining(userId, options.content);
    if (!facts.is_ours && !(await this.change.isOurs(roomId))) {
      await this.#joinRemote(requester, roomId, content, options);
      return undefined;
    }
    if (before === 'join') {
      if (!options.unchecked) await this.participation.takeEvent(requester);
      if (requester.shadowBanned) return this.participation.pretend(requester, roomId);
      return this.#send(requester, roomId, 'join', content, { ...options, content: undefined });
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
        await this.leaves.leaveBlocked(requester, roomId);
        return undefined;
      }
      if (authorizer !== undefined) content['join_authorised_via_users_server'] = authorizer;
    }
    return this.#send(requester, roomId, 'join', content, { ...options, content: undefined });
  }

  /**
   * Asks to be let into a room.
   * @returns the event; `undefined` where another server took it
   * @throws MatrixError 403 `M_FORBIDDEN` or `M_USER_DEACTIVATED`, 404 `M_NOT_FOUND`, 429 `M_LIMIT_EXCEEDED`
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
      return this.#send(requester, roomId, 'knock', content, options);
    }
    const { gateway } = this.remote;
    const servers = await this.change.likelyServers(roomId, options.via);
    if (!gateway || servers.length === 0) throw MatrixError.noServerHasRoom();
    await gateway.membership.knock(userId, roomId, servers, { ...content, ...reasonIn(options) });
    await this.leaves.leaveBlocked(requester, roomId);
    return undefined;
  }

  async #send(
    requester: Requester,
    roomId: string,
    membership: 'join' | 'knock',
    content: Readonly<JsonObject>,
    options: MembershipOptions,
  ): Promise<SentEvent> {
    const sent = await this.change.send(requester, roomId, requester.userId, membership, content, options);
    await this.leaves.leaveClosed(requester, roomId);
    return sent;
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
    // A module may take its time.
    if (await isBlocked(this.database, roomId)) throw MatrixError.roomBlocked();
  }

  async #joinRemote(
    requester: Requester,
    roomId: string,
    content: Readonly<JsonObject>,
    options: MembershipOptions,
  ): Promise<void> {
    if (!options.unchecked) await this.limiter.take('rc_joins.remote', requester.userId, requester);
    const inviter = await this.change.inviterOf(roomId, requester.userId);
    const servers = await this.change.likelyServers(roomId, options.via, inviter);
    const { gateway } = this.remote;
    if (!gateway || servers.length === 0) throw MatrixError.noServerHasRoom();
    if (!options.unchecked) await this.complex.assertMayJoin(requester, roomId, servers);
    await gateway.membership.join(requester.userId, roomId, servers, { ...content, ...reasonIn(options) });
    await this.leaves.leaveBlocked(requester, roomId);
    if (options.unchecked || !(await this.complex.isTooLarge(requester, roomId))) return;
    await this.leaves.leave(requester, roomId, { unchecked: true });
    throw this.complex.refusal;
  }
}

/** The reason, for a member event that another server helps to make; into others {@link MemberEvents} puts it. */
const reasonIn = ({ reason }: MembershipOptions): JsonObject => (reason === undefined ? {} : { reason });
