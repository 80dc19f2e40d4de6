import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { FederationClient, federationPath, FederationRequestError, KeyRing } from '@rookery/federation-client';
import { domainOf, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { asMatrixError } from './candidates.js';
import { secondOf } from './membership-handshake.js';
import { withSignatureOf } from './returned-event.js';

const maxBytes = 1_048_576;
const maxClaimBytes = 65_536;
const claimTimeoutMs = 20_000;

/** Shows invites to the servers of those who are invited, and asks for those that were left for addresses. */
@Injectable()
export class RemoteInvites {
  constructor(
    private readonly client: FederationClient,
    private readonly keys: KeyRing,
  ) {}

  /**
   * @param event the invite, signed by this server
   * @param roomState what the invited user may see of the room, as PDUs
   * @returns the event with the signature of the target's server
   * @throws MatrixError 400 `M_UNSUPPORTED_ROOM_VERSION` where that server does not know the room's version, 403 and other refusals of
   *   that server; 502 or 504 when it does not answer as it must
   * @spec server-server-api#inviting-to-a-room
   */
  async invite(event: RoomEvent, roomState: readonly JsonObject[]): Promise<RoomEvent> {
    const server = domainOf(event.stateKey ?? '');
    try {
      const answer = await this.#send(server, event, roomState);
      return await withSignatureOf(this.keys, server, event, answer['event']);
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      if (error.reason === 'denied') throw MatrixError.forbidden('Users of that server cannot be invited');
      const shown = asMatrixError(error);
      // What servers call incompatible is unsupported to whoever invites.
      throw shown.errcode === 'M_INCOMPATIBLE_ROOM_VERSION'
        ? MatrixError.unsupportedRoomVersion('The server of the invited does not know the room version')
        : shown;
    }
  }

  /**
   * Asks the server of whoever left an invite to an address to make it one of a user here.
   * @param signed the identity server's proof that the user has claimed it
   * @throws MatrixError 403 and other refusals of that server; 502 or 504 when it cannot be reached
   * @spec server-server-api#third-party-invites
   */
  async claim(roomId: string, sender: string, userId: string, signed: Readonly<JsonObject>): Promise<void> {
    const event = {
      ...{ type: 'm.room.member', room_id: roomId, sender, state_key: userId },
      content: { membership: 'invite', third_party_invite: { display_name: '', signed } },
    };
    const path = `/_matrix/federation/v1/exchange_third_party_invite${federationPath`/${roomId}`}`;
    // Anybody may have made up the name of the server.
    const options = {
      timeoutMs: claimTimeoutMs,
      maxBytes: maxClaimBytes,
      retries: 'none',
      ignoreBackoff: true,
    } as const;
    try {
      await this.client.putJson(domainOf(sender), path, event, options);
    } catch (error) {
      if (!(error instanceof FederationRequestError)) throw error;
      if (error.reason === 'denied') throw MatrixError.forbidden('Invites of users of that server are not taken');
      throw asMatrixError(error);
    }
  }

  async #send(server: string, event: RoomEvent, roomState: readonly JsonObject[]): Promise<JsonObject> {
    const path = federationPath`/${event.roomId}/${event.eventId}`;
    // Whoever invites waits for it, and asks again as often as they like.
    const request = { destination: server, method: 'PUT', maxBytes, ignoreBackoff: true } as const;
    try {
      return await this.client.requestExactJson({
        ...request,
        path: `/_matrix/federation/v2/invite${path}`,
        content: { room_version: event.rules.version, event: event.pdu, invite_room_state: roomState },
      });
    } catch (error) {
      // The first version of the endpoint knows the first two versions of rooms only.
      const isOld = error instanceof FederationRequestError && (error.status === 404 || error.status === 400);
      if (!isOld || event.rules.eventFormat !== 'v1') throw error;
      const { body } = await this.client.request({
        ...request,
        path: `/_matrix/federation/v1/invite${path}`,
        content: { ...event.pdu, unsigned: { invite_room_state: roomState } },
      });
      return secondOf(server, body);
    }
  }
}
