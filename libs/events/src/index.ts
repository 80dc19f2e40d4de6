/** One PDU: canonical JSON, format, hashes, redaction, signing. */
export type { RoomEvent, StateKeyTuple } from './event.js';
export type { RoomVersionRules } from './room-version-rules.js';
