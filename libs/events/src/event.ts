import type { JsonObject } from '@rookery/matrix-types';
import type { RoomVersionRules } from './room-version-rules.js';

/** Identifies one piece of room state. */
export type StateKeyTuple = readonly [type: string, stateKey: string];

/**
 * One event of a room: the PDU and what is read from it all the time. Built only by this lib, frozen, never changed.
 * Whether it was rejected or soft-failed is not a property of the event but of a server's view of it.
 */
export interface RoomEvent {
  readonly eventId: string;
  readonly roomId: string;
  readonly type: string;
  /** `undefined` for a message event. */
  readonly stateKey: string | undefined;
  readonly sender: string;
  /** With plain numbers, whatever the PDU's text says. */
  readonly content: Readonly<JsonObject>;
  readonly originServerTs: number;
  readonly depth: number;
  /** In the order of the PDU. */
  readonly prevEventIds: readonly string[];
  /** In the order of the PDU; room version 12 leaves the create event out. */
  readonly authEventIds: readonly string[];
  /** Target of a redaction, from wherever the room version keeps it. */
  readonly redacts: string | undefined;
  /** The rules of its room's version. */
  readonly rules: RoomVersionRules;
  /**
   * The PDU as it travels between servers, with hashes and signatures: for `JSON.stringify` and for hashing. In room
   * versions 1 to 5 a number in it may be a `NumberText`; read {@link content}, not this.
   */
  readonly pdu: Readonly<JsonObject>;
}
