import { Injectable } from '@nestjs/common';
import { hasValidContentHash, type RoomEvent } from '@rookery/events';
import { KeyRing } from '@rookery/federation-client';
import { RateLimiter } from '@rookery/http';
import { domainOf, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { EventPersister, EventStore, isServable, MembershipTemplates, type StoredEvent } from '@rookery/rooms';
import { eventOf, ResidentRooms } from '../rooms/resident-rooms.js';
import { RestrictedAdmissions } from './restricted-admissions.js';

/** What users of other servers do with their memberships by way of this one. */
export type MembershipKind = 'join' | 'leave' | 'knock';

/** An event for its server to sign. */
export interface Template {
  readonly room_version: string;
  readonly event: JsonObject;
}

/**
 * Helps users of other servers into rooms, out of them, and to their doors: the two steps make and send.
 * @spec server-server-api#joining-rooms, server-server-api#knocking-upon-a-room, server-server-api#leaving-rooms-rejecting-invites
 */
@Injectable()
export class MembershipRequests {
  // Eight parameters: templates, authorisation, proof and storing are the steps of one handshake.
  constructor(
    private readonly rooms: ResidentRooms,
    private readonly templates: MembershipTemplates,
    private readonly admissions: RestrictedAdmissions,
    private readonly persister: EventPersister,
    private readonly events: EventStore,
    private readonly keys: KeyRing,
    private readonly limiter: RateLimiter,
    private readonly config: Config,
  ) {}

  /**
   * @param versions that the other server knows
   * @throws MatrixError 400 `M_INCOMPATIBLE_ROOM_VERSION`, `M_UNABLE_TO_AUTHORISE_JOIN` or `M_UNABLE_TO_GRANT_JOIN`, 403
   *   `M_FORBIDDEN`, 404 `M_NOT_FOUND`
   */
  async make(
    kind: MembershipKind,
    origin: string,
    roomId: string,
    userId: string,
    versions: readonly string[] | undefined,
  ): Promise<Template> {
    if (!isValidUserId(userId)) throw MatrixError.notUserId();
    if (domainOf(userId) !== origin) throw MatrixError.forbidden('The user is not one of your server');
    const rules = await (kind === 'leave' ? this.rooms.open(origin, roomId) : this.rooms.whole(origin, roomId));
    if (versions && !versions.includes(rules.version)) {
      const message = `Your server does not support version ${rules.version} of rooms`;
      throw MatrixError.incompatibleRoomVersion(message, { room_version: rules.version });
    }
    const content: JsonObject = { membership: kind };
    if (kind === 'join') {
      const authorizer = await this.admissions.authorizer(rules, roomId, userId);
      if (authorizer !== undefined) content['join_authorised_via_users_server'] = authorizer;
    }
    const event = await this.templates.make({ roomId, userId, content });
    const { event_id: _id, hashes: _hashes, signatures: _signatures, ...template } = event.pdu;
    return { room_version: rules.version, event: { ...template, origin: this.config.serverName } };
  }

  /**
   * Stores an event that its server has signed, and sends it on to the others in the room. Again: changes nothing.
   * @throws MatrixError 400 `M_INVALID_PARAM` for another event than the kind says, or one without the right signatures, 403
   *   `M_FORBIDDEN`, 404 `M_NOT_FOUND`, 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED`
   */
  async send(
    kind: MembershipKind,
    origin: string,
    roomId: string,
    eventId: string,
    content: JsonObject,
  ): Promise<StoredEvent> {
    const rules = await (kind === 'leave' ? this.rooms.open(origin, roomId) : this.rooms.whole(origin, roomId));
    const given = eventOf(content, rules, roomId, eventId);
    checkKind(kind, origin, given);
    const event = kind === 'join' ? await this.admissions.authorised(rules, given) : given;
    const verdict = await this.keys.verifyEvent(event, origin);
    if (!verdict.valid || !hasValidContentHash(event))
      throw MatrixError.invalidParam('The event does not carry the right signatures and hash');
    // Those who knock are as many as their server likes, too.
    if (kind !== 'leave') await this.limiter.take('rc_joins_per_room', roomId);
    const [received] = await this.persister.receive(roomId, [{ event, origin, onBehalfOf: origin }]);
    if (received?.kind === 'accepted') return received.stored;
    if (received?.kind === 'missingAncestors')
      throw MatrixError.invalidParam('The event builds upon others that are not known here');
    if (received?.kind === 'unjudged') throw MatrixError.internal('A module of this server failed');
    const stored = received?.kind === 'known' ? await this.events.one(eventId) : undefined;
    if (stored && isServable(stored)) return stored;
    throw MatrixError.forbidden(received?.kind === 'rejected' ? received.reason : 'The room does not allow this now');
  }
}

/** @throws MatrixError 400 `M_INVALID_PARAM` */
function checkKind(kind: MembershipKind, origin: string, { type, stateKey, sender, content }: RoomEvent): void {
  if (type !== 'm.room.member' || content['membership'] !== kind)
    throw MatrixError.invalidParam(`The event is no ${kind}`);
  if (domainOf(sender) !== origin) throw MatrixError.invalidParam('The sender is not a user of your server');
  if (stateKey !== sender) throw MatrixError.invalidParam('The event is about somebody else than its sender');
}
