import { Injectable } from '@nestjs/common';
import { Database } from '@rookery/database';
import { domainOf, type JsonObject, type Membership } from '@rookery/matrix-types';
import { Config, type Requester } from '@rookery/platform';
import { EventPersister } from '../pipeline/event-persister.js';
import { EventStore } from '../store/event-store.js';
import type { Unchecked } from '../model/drafts.js';
import type { SentEvent } from '../model/stored-event.js';
import { MembershipReader } from '../reading/membership-reader.js';
import type { RoomMembership } from '../reading/membership.query.js';
import { originOf } from '../model/requesters.js';
import { RoomServers } from '../servers/room-servers.js';
import { RoomStateReader } from '../state/room-state-reader.js';
import { hasAnyMember, hasLocalMember } from './membership.query.js';

/** What goes with a change of membership. */
export interface MembershipOptions {
  readonly reason?: string | undefined;
  /** Servers to join through. */
  readonly via?: readonly string[] | undefined;
  /** Further keys of the content, from a client that sends the member event itself. */
  readonly content?: Readonly<JsonObject> | undefined;
  /** The server acts on its own account, or a module does: no limits, no spam checks. */
  readonly unchecked?: Unchecked | undefined;
  /** Somebody makes a room, and was asked there about limits and whom they may invite: modules judge the event all the same. */
  readonly duringRoomCreation?: boolean | undefined;
  /** When it happened, milliseconds since the epoch; obeyed for application services only. */
  readonly originServerTs?: number | undefined;
}

/** Sends member events on top of what this server knows of a room. */
@Injectable()
export class MemberEvents {
  constructor(
    private readonly persister: EventPersister,
    private readonly events: EventStore,
    private readonly memberships: MembershipReader,
    private readonly servers: RoomServers,
    private readonly state: RoomStateReader,
    private readonly database: Database,
    private readonly config: Config,
  ) {}

  /**
   * Sends a member event. One about somebody else waits until their membership is known.
   * @throws MatrixError 403 when the auth rules or modules refuse, 503 when the room's state takes too long to arrive
   */
  async send(
    requester: Requester,
    roomId: string,
    target: string,
    membership: Membership,
    content: Readonly<JsonObject>,
    options: MembershipOptions,
  ): Promise<SentEvent> {
    if (target !== requester.userId && !this.state.isWhole(roomId)) await this.currentOf(roomId, target);
    // Clients copy it from the event before: whoever is named would have to sign this one, too.
    const { join_authorised_via_users_server: _authorizer, ...more } = options.content ?? {};
    return this.persister.send({
      roomId,
      type: 'm.room.member',
      stateKey: target,
      sender: requester.userId,
      content: {
        ...content,
        ...more,
        membership,
        ...(options.reason !== undefined && { reason: options.reason }),
      },
      skipUnchanged: membership === 'join',
      originServerTs: requester.appserviceId === undefined ? undefined : options.originServerTs,
      unchecked: options.unchecked,
      origin: originOf(requester, options.duringRoomCreation),
    });
  }

  /**
   * Membership by the room's state, once it can be told; `leave` when there is none.
   * @throws MatrixError 503 when the room's state takes too long to arrive
   */
  async currentOf(roomId: string, userId: string): Promise<Membership> {
    const known = await this.#knownOf(roomId, userId);
    if (known !== undefined || this.state.isWhole(roomId)) return known ?? 'leave';
    await this.state.whole(roomId);
    return (await this.#knownOf(roomId, userId)) ?? 'leave';
  }

  /** Whether all members of a room are known. */
  isWhole(roomId: string): boolean {
    return this.state.isWhole(roomId);
  }

  async #knownOf(roomId: string, userId: string): Promise<Membership | undefined> {
    if (domainOf(userId) === this.config.serverName) return (await this.localMembership(roomId, userId))?.membership;
    return this.memberships.currentOf(roomId, userId);
  }

  /**
   * Whether events of a room can be made here: somebody of this server is in it, or it was made here and nobody is in it at all, so that
   * no server knows better. Of a room that was left before all of its members had come that cannot be said: whoever is not known would
   * never hear of what was made here.
   */
  async isOurs(roomId: string): Promise<boolean> {
    if (await hasLocalMember(this.database, roomId)) return true;
    const creator = (await this.state.currentEvent(roomId, 'm.room.create'))?.event.sender;
    if (creator === undefined || domainOf(creator) !== this.config.serverName || !this.isWhole(roomId)) return false;
    if ((await this.state.currentId(roomId, 'm.room.member', creator)) === undefined) return false;
    return !(await hasAnyMember(this.database, roomId));
  }

  /** The current membership of a user of this server; `undefined` when there never was one. */
  localMembership(roomId: string, userId: string): Promise<RoomMembership | undefined> {
    return this.memberships.inRoom(userId, roomId);
  }

  /**
   * Whether a room, all of which is known here, has not heard of a user's membership: an invite that came from elsewhere before anybody
   * of this server was in the room.
   * @param eventId by which the user has it
   */
  async isBeside(roomId: string, userId: string, eventId: string): Promise<boolean> {
    return this.isWhole(roomId) && (await this.state.currentId(roomId, 'm.room.member', userId)) !== eventId;
  }

  /** The sender of a user's pending invite, and with it a server that knows the room. */
  async inviterOf(roomId: string, userId: string): Promise<string | undefined> {
    const current = await this.memberships.inRoom(userId, roomId);
    return current?.membership === 'invite' ? current.sender : undefined;
  }

  /**
   * Servers that may know a room, likeliest first, without this one. The server in the room's id is no more than a guess, and so are
   * those that were in the room when somebody of this server was: they need not be there any more, so they are asked only where nobody
   * else is named.
   * @param via named by whoever wants to go there
   */
  async likelyServers(roomId: string, via: readonly string[] = [], inviter?: string): Promise<string[]> {
    const others = (servers: Iterable<string>): string[] => [
      ...new Set([...servers].filter((server) => server !== '' && server !== this.config.serverName)),
    ];
    const named = others([...(inviter === undefined ? [] : [domainOf(inviter)]), ...via]);
    return named.length > 0 ? named : others([domainOf(roomId), ...(await this.servers.of(roomId))]);
  }

  /** A piece of state, by its content. */
  async stateContent(roomId: string, type: string): Promise<Readonly<JsonObject> | undefined> {
    const id = await this.state.currentId(roomId, type);
    return id === undefined ? undefined : (await this.events.one(id))?.event.content;
  }
}
