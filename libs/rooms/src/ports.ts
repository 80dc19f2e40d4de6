import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { Port } from '@rookery/platform';
import type { GivenState } from './model/remote-events.js';

/** A room alias as its server resolves it. */
export interface ResolvedAlias {
  readonly roomId: string;
  readonly servers: readonly string[];
}

/** Ways in and out of rooms that lead by way of another server. */
interface MembershipGateway {
  /** Joins a room through one of `servers`. @throws MatrixError 404, 403, 502 */
  join(userId: string, roomId: string, servers: readonly string[], content: Readonly<JsonObject>): Promise<void>;
  /** A join of a room in which this server is, which another server must allow: by a user of its own, or because it knows all members. */
  joinAuthorised(
    userId: string,
    roomId: string,
    servers: readonly string[],
    content: Readonly<JsonObject>,
  ): Promise<void>;
  knock(userId: string, roomId: string, servers: readonly string[], content: Readonly<JsonObject>): Promise<void>;
  /** Leaves, or rejects an invite to, a room in which this server has nobody. */
  leave(userId: string, roomId: string, servers: readonly string[], content: Readonly<JsonObject>): Promise<void>;
  /**
   * Shows an invite to the server of its target; the event comes back with that server's signature.
   * @param roomState what the target may see of the room, as PDUs
   */
  invite(event: RoomEvent, roomState: readonly JsonObject[]): Promise<RoomEvent>;
  /**
   * Has the server of whoever left an invite to an address invite the user of this one who has claimed it.
   * @param signed the identity server's proof
   * @throws MatrixError 403 and other refusals of that server; 502, 504
   */
  claimInvite(roomId: string, sender: string, userId: string, signed: Readonly<JsonObject>): Promise<void>;
}

/** What other servers tell of rooms to those who are not in them. */
interface DirectoryGateway {
  /** How large a room is as one of `servers` says, in units of 500 state events; `undefined` when none tells. */
  complexity(roomId: string, servers: readonly string[]): Promise<number | undefined>;
  resolveAlias(alias: string): Promise<ResolvedAlias | undefined>;
  /** One page of another server's directory; wire format. */
  publicRooms(server: string, body: Readonly<JsonObject>): Promise<JsonObject>;
  /** A room and its children as another server sees them; wire format of the federation API. */
  hierarchy(roomId: string, servers: readonly string[], suggestedOnly: boolean): Promise<JsonObject | undefined>;
}

/** The past of a room, as far as other servers have it and this one does not. */
interface HistoryGateway {
  /**
   * Fetches history before one of the room's backward extremities; whether anything came.
   * @param depth where somebody reads: what is missing there comes first
   */
  backfill(roomId: string, limit: number, depth?: number): Promise<boolean>;
  /** The event on one side of a point in time; it is stored then. */
  timestampToEvent(
    roomId: string,
    ts: number,
    direction: 'f' | 'b',
  ): Promise<{ readonly eventId: string; readonly ts: number } | undefined>;
}

/** Policy servers of rooms. */
interface PolicyGateway {
  /**
   * Asks the policy server of a room for its signature of an event.
   * @returns base64, not verified
   * @throws MatrixError 403 `M_FORBIDDEN`, 429 `M_LIMIT_EXCEEDED`, 502, 504
   */
  sign(server: string, event: RoomEvent, keyId: string, timeoutMs: number): Promise<string>;
}

/**
 * What can be done in rooms only with the help of other servers. Implemented by federation. Each method stores what it
 * brings through the persister and throws a MatrixError when no server would help.
 */
export interface RemoteRoomGateway {
  readonly membership: MembershipGateway;
  readonly directory: DirectoryGateway;
  readonly history: HistoryGateway;
  readonly policyServers: PolicyGateway;
}

/** Fetches events that are missing before remote ones, from the server that sent those. Implemented by federation. */
export interface MissingEventsSource {
  /** Ancestors of `latest` that are not older than `earliest`, as the origin has them; may be incomplete or empty. */
  missingEvents(
    origin: string,
    roomId: string,
    earliest: readonly string[],
    latest: readonly string[],
  ): Promise<readonly RoomEvent[]>;
  /** Single events; those that the origin does not have, or that fail the checks, are left out. */
  events(origin: string, roomId: string, eventIds: readonly string[]): Promise<readonly RoomEvent[]>;
  /** The auth chain of an event, as far as one server gives it at once and it passes the checks; may be empty. */
  authChain(origin: string, roomId: string, eventId: string): Promise<readonly RoomEvent[]>;
  /** The state before an event that is not stored yet; `undefined` when the origin will not tell. */
  stateBefore(origin: string, event: RoomEvent): Promise<GivenState | undefined>;
}

/** What application services know about aliases. */
export interface AliasClaimSource {
  /** Whether an application service other than `appserviceId` has the alias to itself. */
  isReserved(alias: string, appserviceId: string | undefined): boolean;
  /** Asks the services that are interested in an alias to make it; whether one did. */
  ask(alias: string): Promise<boolean>;
}

/** What this lib needs of those above it. */
@Injectable()
export class RoomPorts {
  /** Empty where the settings allow no other server. */
  readonly remoteRooms = new Port<RemoteRoomGateway>('remote_rooms', 'optional');
  readonly missingEvents = new Port<MissingEventsSource>('missing_events', 'optional');
  readonly aliasClaims = new Port<AliasClaimSource>('alias_claims', 'required');
}
