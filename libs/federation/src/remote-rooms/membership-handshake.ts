import { Injectable } from '@nestjs/common';
import {
  buildEvent,
  canonicalJson,
  InvalidEventError,
  NumberText,
  parseJson,
  type RoomEvent,
  roomVersionRules,
  type RoomVersionRules,
  roomVersions,
  signEvent,
  SigningKey,
} from '@rookery/events';
import {
  FederationClient,
  federationPath,
  type FederationRequest,
  FederationRequestError,
} from '@rookery/federation-client';
import { domainOf, isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { Clock, Config, Ids } from '@rookery/platform';
import { type Attempt, WrongAnswer } from './candidates.js';
import { stateLimitsOf } from './state-limits.js';
import { ToldJoin } from './told-join.js';

/** What a user can do in a room only with the help of a server that is in it. */
export type Handshake = 'join' | 'knock' | 'leave';

/** Largest proposal, and largest answer to a leave or a knock, bytes. */
const maxSmallBytes = 1_048_576;
/** Answer to a join, the whole state of the room with its auth chain: most are smaller by far; and the largest that lies in memory; bytes. */
const usualJoinBytes = 32 * 1_048_576;
const maxMemoryBytes = 256 * 1_048_576;
/** Who leaves waits for one server no longer than this; milliseconds. */
const leaveTimeoutMs = 15_000;
/** How much longer than any other answer the one to a join may take, while it keeps coming. */
const joinPatience = 3;

/**
 * The two steps in which a user of this server enters or leaves a room of others: a resident server proposes an event, this
 * one makes and signs its own and hands it over.
 * @spec server-server-api#joining-rooms
 */
@Injectable()
export class MembershipHandshake {
  constructor(
    private readonly client: FederationClient,
    private readonly key: SigningKey,
    private readonly clock: Clock,
    private readonly ids: Ids,
    private readonly config: Config,
  ) {}

  /**
   * The signed event that `server` would take. Of its proposal only the place in the room's graph is used, and for joins
   * the user who lets somebody in.
   * @param content without `membership`
   * @param knownVersion the room's, where this server knows it already
   * @throws FederationRequestError when the server does not help, or proposes something else
   */
  async prepare(
    kind: Handshake,
    server: string,
    room: { readonly roomId: string; readonly knownVersion?: string | undefined },
    userId: string,
    content: Readonly<JsonObject>,
    { retries, timeoutMs }: Attempt,
  ): Promise<RoomEvent> {
    const { roomId, knownVersion } = room;
    const answer = await this.client.requestExactJson({
      destination: server,
      method: 'GET',
      path: `/_matrix/federation/v1/make_${kind}/${encodeURIComponent(roomId)}/${encodeURIComponent(userId)}`,
      ...(kind !== 'leave' && { query: { ver: versionsFor(kind) } }),
      timeoutMs: timeoutMs ?? this.#timeoutMs(kind),
      // Somebody waits for it; and who was given less time than usual is not down for that.
      ignoreBackoff: true,
      maxBytes: maxSmallBytes,
      retries,
    });
    const version = answer['room_version'] ?? '1';
    const rules = typeof version === 'string' ? roomVersionRules(version) : undefined;
    if (!rules) throw new WrongAnswer(server, 'a room version that this server does not know');
    if (knownVersion !== undefined && rules.version !== knownVersion) {
      throw new WrongAnswer(server, `room version ${rules.version}, which is known to be ${knownVersion}`);
    }
    const proposal = answer['event'];
    if (!isJsonObject(proposal)) throw new WrongAnswer(server, 'no event');
    const proposed = isJsonObject(proposal['content']) ? proposal['content'] : {};
    const isMeant =
      proposal['type'] === 'm.room.member' &&
      (proposal['room_id'] ?? roomId) === roomId &&
      proposal['sender'] === userId &&
      proposal['state_key'] === userId &&
      proposed['membership'] === kind;
    if (!isMeant) throw new WrongAnswer(server, 'an event that was not asked for');
    const authorizer = kind === 'join' && rules.joinRules.restricted ? authorizerIn(server, proposed) : undefined;
    return this.#build(server, rules, proposal, {
      roomId,
      userId,
      content: {
        ...content,
        membership: kind,
        ...(authorizer !== undefined && { join_authorised_via_users_server: authorizer }),
      },
    });
  }

  /** Hands over an event with which somebody knocks or leaves. @throws FederationRequestError */
  async send(kind: Exclude<Handshake, 'join'>, server: string, event: RoomEvent): Promise<JsonObject> {
    const latest = kind === 'knock' ? 'v1' : 'v2';
    try {
      return await this.client.requestExactJson(this.#sending(kind, server, event, latest));
    } catch (error) {
      if (latest === 'v1' || !isUnrecognized(error)) throw error;
      return secondOf(server, (await this.client.request(this.#sending(kind, server, event, 'v1'))).body);
    }
  }

  /** Whether this server can do without most of the members of a room that it joins (MSC3706). */
  get mayOmit(): boolean {
    return this.config.get('experimental.faster_joins');
  }

  /**
   * Hands over an event with which somebody joins; the same one may be handed over again. What a server tells as it has to lies in
   * a file, which is to be closed; what one tells that knows the first version of the endpoint alone is in memory.
   * @param huge whether the largest answer is taken, instead of one of the usual size
   * @param mayGrow asked once an answer turns out to be larger than usual
   * @throws FederationRequestError `too_large` when the answer is larger
   */
  async join(
    server: string,
    event: RoomEvent,
    huge: boolean,
    mayGrow: () => boolean = () => false,
  ): Promise<ToldJoin | JsonObject> {
    const { maxEvents, maxBytes } = stateLimitsOf(this.config);
    try {
      const { body } = await this.client.stream({
        ...this.#sending('join', server, event, 'v2'),
        ...{ maxBytes, query: { omit_members: this.mayOmit } },
      });
      return await ToldJoin.read(server, body, event, maxEvents, (sizeBytes) => {
        if (sizeBytes > usualJoinBytes && !huge && !mayGrow())
          throw new FederationRequestError(server, 'too_large', `${server} tells more of the room than is usual`);
      });
    } catch (error) {
      if (!isUnrecognized(error)) throw error;
      const { body } = await this.client.request({
        ...this.#sending('join', server, event, 'v1'),
        maxBytes: huge ? Math.min(maxBytes, maxMemoryBytes) : usualJoinBytes,
      });
      return secondOf(server, body);
    }
  }

  #sending(kind: Handshake, server: string, event: RoomEvent, version: 'v1' | 'v2'): FederationRequest {
    return {
      destination: server,
      method: 'PUT',
      path: `/_matrix/federation/${version}/send_${kind}${federationPath`/${event.roomId}/${event.eventId}`}`,
      canonicalContent: canonicalJson(event.pdu),
      maxBytes: maxSmallBytes,
      retries: 'none',
      ignoreBackoff: true,
      timeoutMs: this.#timeoutMs(kind) * (kind === 'join' ? joinPatience : 1),
      silenceMs: this.#timeoutMs(kind),
    };
  }

  #timeoutMs(kind: Handshake): number {
    const usualMs = this.config.get('federation.client_timeout');
    return kind === 'leave' ? Math.min(usualMs, leaveTimeoutMs) : usualMs;
  }

  #build(
    server: string,
    rules: RoomVersionRules,
    proposal: Readonly<JsonObject>,
    own: { readonly roomId: string; readonly userId: string; readonly content: Readonly<JsonObject> },
  ): RoomEvent {
    const hashes = new Map<string, string>();
    const idsIn = (list: unknown): string[] => {
      if (!Array.isArray(list)) throw new WrongAnswer(server, 'an event without references');
      return list.map((entry: unknown) => {
        const paired = rules.eventFormat === 'v1' && Array.isArray(entry);
        const id: unknown = paired ? (entry as unknown[])[0] : entry;
        if (typeof id !== 'string') throw new WrongAnswer(server, 'a reference that is no event id');
        const of: unknown = paired ? (entry as unknown[])[1] : undefined;
        if (isJsonObject(of) && typeof of['sha256'] === 'string') hashes.set(id, of['sha256']);
        return id;
      });
    };
    const { serverName } = this.config;
    const depth = proposal['depth'] instanceof NumberText ? proposal['depth'].value : proposal['depth'];
    if (typeof depth !== 'number' || !(depth >= 0)) {
      throw new WrongAnswer(server, 'an event without a depth');
    }
    try {
      const event = buildEvent(
        {
          roomId: own.roomId,
          type: 'm.room.member',
          stateKey: own.userId,
          sender: own.userId,
          content: own.content,
          originServerTs: this.clock.nowMs(),
          depth: Math.min(Math.trunc(depth), rules.maxDepth),
          prevEventIds: idsIn(proposal['prev_events']),
          authEventIds: idsIn(proposal['auth_events']),
          ...(rules.eventFormat === 'v1' && {
            eventId: `$${this.ids.letters(18)}:${serverName}`,
            referenceHashes: hashes,
          }),
        },
        rules,
      );
      return signEvent(event, serverName, this.key);
    } catch (error) {
      if (!(error instanceof InvalidEventError)) throw error;
      throw new WrongAnswer(server, error.message);
    }
  }
}

/** Versions of rooms that this server can be in, or knock at. */
function versionsFor(kind: Handshake): string[] {
  return roomVersions.filter((version) => kind !== 'knock' || roomVersionRules(version)?.joinRules.knock);
}

/** The user who lets somebody in: one of the server that is asked, since it must sign for it. */
function authorizerIn(server: string, proposed: Readonly<JsonObject>): string | undefined {
  const via = proposed['join_authorised_via_users_server'];
  if (via === undefined) return undefined;
  if (typeof via !== 'string' || domainOf(via) !== server) {
    throw new WrongAnswer(server, 'somebody of another server is to let the user in');
  }
  return via;
}

/** Whether an endpoint is not known to another server. */
export function isUnrecognized(error: unknown): boolean {
  if (!(error instanceof FederationRequestError)) return false;
  return (error.status === 404 && error.errcode !== 'M_NOT_FOUND') || error.status === 405;
}

/** What the first version of an endpoint answers with: a pair of status and object. @throws FederationRequestError */
export function secondOf(server: string, body: Buffer): JsonObject {
  let value: unknown;
  try {
    value = parseJson(body.toString('utf8'));
  } catch {
    throw new WrongAnswer(server, 'no JSON');
  }
  const second: unknown = Array.isArray(value) ? value[1] : value;
  if (!isJsonObject(second)) throw new WrongAnswer(server, 'no object');
  return second;
}
