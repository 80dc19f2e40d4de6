import { Injectable } from '@nestjs/common';
import { hasValidContentHash, type RoomEvent, roomVersionRules, SigningKey } from '@rookery/events';
import { KeyRing } from '@rookery/federation-client';
import { domainOf, isValidUserId, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { InvitePolicy, RoomBlocking, RoomServers } from '@rookery/rooms';
import { countersigned, eventOf } from '../rooms/resident-rooms.js';
import { isCreate, maxShown, provenAmong, shownEvents } from '../rooms/shown-events.js';
import { TakenInvites } from './taken-invites.js';

/** An invite as another server shows it. */
export interface ShownInvite {
  readonly roomVersion: string;
  readonly event: unknown;
  /** What the invited user may see of the room. */
  readonly roomState: unknown;
}

/** Takes invites of local users to rooms of other servers: proves, judges and signs them. */
@Injectable()
export class InboundInvites {
  constructor(
    private readonly keys: KeyRing,
    private readonly key: SigningKey,
    private readonly policy: InvitePolicy,
    private readonly blocking: RoomBlocking,
    private readonly servers: RoomServers,
    private readonly taken: TakenInvites,
    private readonly config: Config,
  ) {}

  /**
   * Checks an invite and stores it; the event with this server's signature.
   * @throws MatrixError 400 `M_INCOMPATIBLE_ROOM_VERSION`, `M_BAD_JSON` or `M_INVALID_PARAM`, 403 `M_FORBIDDEN` or
   *   `M_INVITE_BLOCKED`, 413 `M_TOO_LARGE`, 429 `M_LIMIT_EXCEEDED`
   * @spec server-server-api#put_matrixfederationv2inviteroomideventid
   */
  async take(origin: string, roomId: string, eventId: string, shown: ShownInvite): Promise<JsonObject> {
    const rules = roomVersionRules(shown.roomVersion);
    if (!rules) {
      const message = 'This server does not know the version of the room';
      throw MatrixError.incompatibleRoomVersion(message, { room_version: shown.roomVersion });
    }
    const event = eventOf(shown.event, rules, roomId, eventId);
    const target = this.#checkShape(origin, event);
    if (shown.roomState !== undefined && !Array.isArray(shown.roomState))
      throw MatrixError.invalidParam("'invite_room_state' is not a list");
    if (!(await this.servers.mayTakePart(roomId, origin)))
      throw MatrixError.forbidden('Your server may not take part in this room');
    const verdict = await this.keys.verifyEvent(event, origin);
    if (!verdict.valid || !hasValidContentHash(event))
      throw MatrixError.invalidParam('The invite does not carry the right signatures and hash');
    if ((await this.blocking.blockedBy(roomId)) !== undefined) throw MatrixError.roomBlocked();
    // First: what the room shows may be of a hundred other servers, whose keys are looked for.
    const isWanted = await this.policy.checkRemote(origin, event);
    const roomState = rules.createEventImplied
      ? await this.#proven(origin, event, shown.roomState ?? [])
      : shown.roomState;
    const signed = countersigned(event, this.config.serverName, this.key);
    if (isWanted) await this.taken.store(origin, signed, target, roomState);
    return signed.pdu;
  }

  #checkShape(origin: string, { type, stateKey, sender, content }: RoomEvent): string {
    if (type !== 'm.room.member' || content['membership'] !== 'invite')
      throw MatrixError.invalidParam('The event is no invite');
    // Also with an invite to an address that was claimed: nothing else vouches for who is said to invite to an unknown room.
    if (domainOf(sender) !== origin) throw MatrixError.invalidParam('The sender is not a user of your server');
    if (stateKey === undefined || !isValidUserId(stateKey) || domainOf(stateKey) !== this.config.serverName)
      throw MatrixError.invalidParam('The invited user is not one of this server');
    return stateKey;
  }

  /**
   * What is shown of a room whose id is the hash of its create event, as far as it proves itself: events of that room with the
   * signatures of their servers. Those of servers whose keys cannot be had are left out.
   * @throws MatrixError 400 `M_INVALID_PARAM`
   */
  async #proven(origin: string, room: RoomEvent, shown: readonly unknown[]): Promise<JsonObject[]> {
    if (shown.length > maxShown) throw MatrixError.invalidParam("'invite_room_state' has too many entries");
    const refuse = (reason: string): never => {
      throw MatrixError.invalidParam(`'invite_room_state' holds ${reason}`);
    };
    const events = shownEvents(room, shown, refuse);
    const create = events.find(isCreate);
    if (!create) throw MatrixError.invalidParam("'invite_room_state' lacks the create event");
    if (create.content['room_version'] !== room.rules.version)
      throw MatrixError.invalidParam('The room has another version than the invite says');
    return (await provenAmong(this.keys, origin, events, refuse)).map(({ pdu }) => pdu);
  }
}
