import { Injectable } from '@nestjs/common';
import {
  InvalidEventError,
  parsePdu,
  type RoomEvent,
  type RoomVersionRules,
  roomVersionRules,
  signEvent,
  type SigningKey,
} from '@rookery/events';
import { MatrixError } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { PartialRooms, RoomServers, RoomStateReader } from '@rookery/rooms';

/** How long a request of another server waits for the members of a room that was just joined; milliseconds. */
const patienceMs = 5_000;

/** The rooms of this server, as far as another one may ask about them. */
@Injectable()
export class ResidentRooms {
  constructor(
    private readonly state: RoomStateReader,
    private readonly servers: RoomServers,
    private readonly partial: PartialRooms,
    private readonly config: Config,
  ) {}

  /**
   * The rules of a room in which this server is, for a server that may take part in it.
   * @throws MatrixError 404 `M_NOT_FOUND`, 403 `M_FORBIDDEN` by the room's access control list
   */
  async open(origin: string, roomId: string): Promise<RoomVersionRules> {
    const version = (await this.state.versions([roomId])).get(roomId);
    const rules = roomVersionRules(version);
    if (!rules || !(await this.servers.isHere(roomId))) throw MatrixError.notFound('This server is not in the room');
    if (!(await this.servers.mayTakePart(roomId, origin)))
      throw MatrixError.forbidden('Your server may not take part in this room');
    return rules;
  }

  /**
   * The same for a server that is in the room.
   * @throws MatrixError 403 `M_FORBIDDEN`, 404 `M_NOT_FOUND`
   */
  async shared(origin: string, roomId: string): Promise<RoomVersionRules> {
    const rules = await this.open(origin, roomId);
    if (!(await this.servers.isIn(roomId, origin))) throw MatrixError.forbidden('Your server is not in the room');
    return rules;
  }

  /**
   * Whether all members of a room are known here. Waits for them for some seconds: a small room has them a moment after it was
   * joined, and whoever asks then would be sent away for nothing.
   */
  async isWhole(roomId: string): Promise<boolean> {
    return this.partial.arrives(roomId, patienceMs);
  }

  /**
   * {@link open}, for what needs all of the room's state.
   * @throws MatrixError 404 `M_NOT_FOUND` also when that has not arrived after some seconds
   */
  async whole(origin: string, roomId: string): Promise<RoomVersionRules> {
    const rules = await this.open(origin, roomId);
    if (!(await this.isWhole(roomId))) throw MatrixError.notFound('This server does not know all of the room yet');
    return rules;
  }
}

/**
 * An event of another server with the signature of this one beside that.
 * @throws MatrixError 413 `M_TOO_LARGE` when there is no room for it
 */
export function countersigned(event: RoomEvent, serverName: string, key: SigningKey): RoomEvent {
  try {
    return signEvent(event, serverName, key);
  } catch (error) {
    if (!(error instanceof InvalidEventError)) throw error;
    throw MatrixError.tooLarge(`The event is too large: ${error.reason}`);
  }
}

/**
 * Reads an event that a request is about.
 * @throws MatrixError 400 `M_BAD_JSON`, 413 `M_TOO_LARGE`, 400 `M_INVALID_PARAM` when it is not the one of the path
 */
export function eventOf(content: unknown, rules: RoomVersionRules, roomId: string, eventId: string): RoomEvent {
  let event: RoomEvent;
  try {
    event = parsePdu(content, rules, { roomId });
  } catch (error) {
    if (!(error instanceof InvalidEventError)) throw error;
    if (error.kind === 'tooLarge') throw MatrixError.tooLarge(`The event is too large: ${error.reason}`);
    throw MatrixError.badJson(`This is no event of the room: ${error.reason}`);
  }
  if (event.eventId !== eventId) throw MatrixError.invalidParam('The event is not the one of the path');
  return event;
}
