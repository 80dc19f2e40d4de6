import type { JsonObject } from './json.js';

/** What a user is to a room. @spec client-server-api#mroommember */
export type Membership = 'invite' | 'join' | 'knock' | 'leave' | 'ban';

const memberships: ReadonlySet<unknown> = new Set<Membership>(['invite', 'join', 'knock', 'leave', 'ban']);

/** Whether a value is one of the five memberships. */
export function isMembership(value: unknown): value is Membership {
  return memberships.has(value);
}

/** `content` of `m.room.member`. @spec client-server-api#mroommember */
export interface MemberContent {
  membership: Membership;
  displayname?: string | null;
  avatar_url?: string | null;
  reason?: string;
  is_direct?: boolean;
  join_authorised_via_users_server?: string;
  third_party_invite?: JsonObject;
  [key: string]: unknown;
}

/** State as shown to somebody outside the room: invites and knocks. @spec client-server-api#stripped-state */
export interface StrippedState {
  type: string;
  state_key: string;
  sender: string;
  content: JsonObject;
}

/** An event as clients see it. @spec client-server-api#room-event-format */
export interface ClientEvent {
  event_id: string;
  /** Left out of `/sync`, whose structure says the room. */
  room_id?: string;
  type: string;
  sender: string;
  /** Milliseconds since the epoch, as the sender's server claims. */
  origin_server_ts: number;
  content: JsonObject;
  /** Present for state events only. */
  state_key?: string;
  /** Target of a redaction; mirrored in `content.redacts`. */
  redacts?: string;
  unsigned?: UnsignedData;
}

/** What a server adds to an event for one reader; it is covered by no signature. */
export interface UnsignedData {
  /** Milliseconds since the event was made. */
  age?: number;
  /** Only for the device that sent the event. */
  transaction_id?: string;
  prev_content?: JsonObject;
  redacted_because?: ClientEvent;
  /** The reader's membership when the event was sent. */
  membership?: Membership;
  'm.relations'?: JsonObject;
  [key: string]: unknown;
}

/** Signatures by server and key id, unpadded base64. */
export type Signatures = { [serverName: string]: { [keyId: string]: string } };

/** A JSON object that servers or devices have signed. @spec appendices#signing-json */
export type SignedJson<T extends object = JsonObject> = T & { signatures: Signatures };
