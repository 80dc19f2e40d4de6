import { Injectable } from '@nestjs/common';
import { addSignatures, hasValidSignature, InvalidEventError, type RoomEvent, VerifyKey } from '@rookery/events';
import { domainOf, isJsonObject, isValidServerName, MatrixError } from '@rookery/matrix-types';
import { Config, Logger } from '@rookery/platform';
import { stateKeyOf } from '@rookery/state-res';
import { RemoteRooms } from '../remote-rooms.js';
import type { EventDraft } from '../model/drafts.js';
import { EventStore } from '../store/event-store.js';
import type { WorkingRoom } from '../room/working-room.js';

/** The server whose signature a room wants on its events. */
interface PolicyServer {
  readonly name: string;
  readonly key: VerifyKey;
}

const policyType = 'm.room.policy';
const policyKey = stateKeyOf(policyType, '');
/** The id of the key, which the room's state holds. */
const keyId = 'ed25519:policy_server';
/** A client waits, or the events of another server. */
const sendingTimeoutMs = 20_000;
const receivingTimeoutMs = 10_000;

/**
 * Gets events approved by the policy server of their room, where its state names one: another server with a member there, whose
 * key the state holds. Rooms without one cost a look at a map. This server is nobody's policy server.
 * @spec server-server-api#policy-servers
 */
@Injectable()
export class PolicyServers {
  /** By the event that names the server. */
  readonly #named = new WeakMap<RoomEvent, PolicyServer | { readonly name: undefined }>();

  constructor(
    private readonly events: EventStore,
    private readonly remote: RemoteRooms,
    private readonly config: Config,
    private readonly logger: Logger,
  ) {}

  /** Whether the room may have a policy server that an event concerns; `false` is certain. */
  concerns(room: WorkingRoom, { type, stateKey }: Pick<EventDraft, 'type' | 'stateKey'>): boolean {
    return room.idAt(policyKey) !== undefined && !(type === policyType && stateKey === '');
  }

  /**
   * An event of this server with the policy server's signature; the same event where none is wanted.
   * @param event signed by this server
   * @param isOptional whether it must happen in any case: others may not show it then
   * @throws MatrixError 403 `M_FORBIDDEN` when it is refused, 413 `M_TOO_LARGE` where the signature finds no room in it, 429
   *   `M_LIMIT_EXCEEDED`, 502 or 504 when nobody answers
   */
  async approved(room: WorkingRoom, event: RoomEvent, isOptional: boolean): Promise<RoomEvent> {
    const policy = await this.#of(room, event);
    if (!policy) return event;
    try {
      return await this.#ask(policy, event, sendingTimeoutMs);
    } catch (error) {
      if (!isOptional || !MatrixError.is(error)) throw error;
      this.#report(policy, event, error);
      return event;
    }
  }

  /** An event of another server with the policy server's signature, by way of asking if need be; `undefined` when it gives none. */
  async checked(room: WorkingRoom, event: RoomEvent): Promise<RoomEvent | undefined> {
    const policy = await this.#of(room, event);
    if (!policy || hasValidSignature(event, policy.name, keyId, policy.key)) return event;
    try {
      return await this.#ask(policy, event, receivingTimeoutMs);
    } catch (error) {
      if (!MatrixError.is(error)) throw error;
      this.#report(policy, event, error);
      return undefined;
    }
  }

  async #of(room: WorkingRoom, event: RoomEvent): Promise<PolicyServer | undefined> {
    const id = this.concerns(room, event) ? room.idAt(policyKey) : undefined;
    if (id === undefined) return undefined;
    const state = room.stagedById.get(id)?.event ?? (await this.events.one(id))?.event;
    if (!state) return undefined;
    let policy = this.#named.get(state);
    if (!policy) this.#named.set(state, (policy = namedIn(state) ?? { name: undefined }));
    if (policy.name === undefined || policy.name === this.config.serverName) return undefined;
    return room.base.remoteServers.includes(policy.name) ? policy : undefined;
  }

  async #ask({ name, key }: PolicyServer, event: RoomEvent, timeoutMs: number): Promise<RoomEvent> {
    const { gateway } = this.remote;
    if (!gateway) throw MatrixError.forbidden('The policy server of this room cannot be asked');
    const signature = await gateway.policyServers.sign(name, event, keyId, timeoutMs);
    const signed = withSignature(event, name, signature);
    if (hasValidSignature(signed, name, keyId, key)) return signed;
    throw MatrixError.badGateway('The policy server of this room signs with another key than the room names');
  }

  #report({ name }: PolicyServer, { roomId, eventId, sender }: RoomEvent, { message }: MatrixError): void {
    this.logger.info('The policy server of a room did not approve of an event', {
      ...{ policy_server: name, room_id: roomId, event_id: eventId, origin: domainOf(sender), reason: message },
    });
  }
}

/** @throws MatrixError 413 `M_TOO_LARGE` */
function withSignature(event: RoomEvent, name: string, signature: string): RoomEvent {
  try {
    return addSignatures(event, { [name]: { [keyId]: signature } });
  } catch (error) {
    if (!(error instanceof InvalidEventError)) throw error;
    throw MatrixError.tooLarge('The event has no room for the signature of the policy server of this room');
  }
}

function namedIn({ content }: RoomEvent): PolicyServer | undefined {
  const { via, public_keys: keys } = content;
  const text = isJsonObject(keys) && Object.hasOwn(keys, 'ed25519') ? keys['ed25519'] : undefined;
  if (typeof via !== 'string' || !isValidServerName(via) || typeof text !== 'string') return undefined;
  const key = VerifyKey.parse(text);
  return key && { name: via, key };
}
