import { Injectable } from '@nestjs/common';
import { prejoinStateOf, type RoomEvent, strippedStateFrom } from '@rookery/events';
import { KeyRing } from '@rookery/federation-client';
import { domainOf, type JsonObject, type StrippedState } from '@rookery/matrix-types';
import { EventPersister, EventStore, MembershipReader, RoomStateReader } from '@rookery/rooms';
import { maxShown, provenAmong, shownEvents } from '../rooms/shown-events.js';
import { Candidates } from './candidates.js';
import { MembershipHandshake } from './membership-handshake.js';

/** For how long other servers are tried before somebody leaves without them; milliseconds. */
const leavePatienceMs = 20_000;

/** Knocks at rooms in which this server has nobody, and leaves them: invites that are rejected, knocks that are taken back. */
@Injectable()
export class RemoteLeaves {
  constructor(
    private readonly candidates: Candidates,
    private readonly handshake: MembershipHandshake,
    private readonly persister: EventPersister,
    private readonly events: EventStore,
    private readonly memberships: MembershipReader,
    private readonly state: RoomStateReader,
    private readonly keys: KeyRing,
  ) {}

  /**
   * Knocks, and keeps what the room shows to whoever knocks.
   * @throws MatrixError as {@link Candidates.first}
   * @spec server-server-api#knocking-upon-a-room
   */
  async knock(
    userId: string,
    roomId: string,
    servers: readonly string[],
    content: Readonly<JsonObject>,
  ): Promise<void> {
    const knownVersion = await this.#provenVersion(roomId);
    await this.candidates.first(servers, async (server, attempt) => {
      const event = await this.handshake.prepare('knock', server, { roomId, knownVersion }, userId, content, attempt);
      const answer = await this.handshake.send('knock', server, event);
      const unsigned = { knock_room_state: await this.#shown(server, event, answer['knock_room_state']) };
      await this.#store(Object.freeze({ ...event, pdu: { ...event.pdu, unsigned } }));
    });
  }

  /**
   * Leaves.
   * @param servers asked first; then those of whom the user has heard with the invite, or the answer to the knock
   * @throws MatrixError as {@link Candidates.first}: the user is still in there as far as others know
   * @spec server-server-api#leaving-rooms-rejecting-invites
   */
  async leave(
    userId: string,
    roomId: string,
    servers: readonly string[],
    content: Readonly<JsonObject>,
  ): Promise<void> {
    const current = await this.memberships.inRoom(userId, roomId);
    const member = current && (await this.events.one(current.eventId))?.event;
    const heardOf = member ? prejoinStateOf(member).map(({ sender }) => domainOf(String(sender))) : [];
    const knownVersion = await this.#provenVersion(roomId);
    await this.candidates.first(
      [...servers, ...heardOf],
      async (server, attempt) => {
        const event = await this.handshake.prepare('leave', server, { roomId, knownVersion }, userId, content, attempt);
        await this.handshake.send('leave', server, event);
        await this.#store(event);
      },
      leavePatienceMs,
    );
  }

  /** The version of a room whose create event is here; what an invite tells of it may be wrong. */
  async #provenVersion(roomId: string): Promise<string | undefined> {
    return (await this.state.currentEvent(roomId, 'm.room.create'))?.event.rules.version;
  }

  /** What a room shows to who knocks; where the room's id vouches for its create event, what proves itself. */
  async #shown(server: string, event: RoomEvent, told: unknown): Promise<StrippedState[]> {
    if (!event.rules.createEventImplied || !Array.isArray(told)) return strippedStateFrom(told);
    const leaveOut = (): void => undefined;
    const events = shownEvents(event, told.slice(0, maxShown), leaveOut);
    return strippedStateFrom((await provenAmong(this.keys, server, events, leaveOut)).map(({ pdu }) => pdu));
  }

  async #store(event: RoomEvent): Promise<void> {
    await this.persister.receiveOutOfBand(event.rules.version, event);
  }
}
