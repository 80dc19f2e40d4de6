/** Identifiers, wire types and error codes of the Matrix protocol. */
export type { AnyErrcode, Errcode } from './errcodes.js';
export { type ErrorRow, errorTable } from './error-table.js';
export { MatrixError } from './errors.js';
export { errorOfOther } from './remote-errors.js';
export {
  emptyEventFilter,
  type EventFilter,
  type FilterableEvent,
  parseEventFilter,
  parseSyncFilter,
  passesFilter,
  passesRoom,
  type SyncFilter,
} from './event-filter.js';
export { matchesGlob } from './glob.js';
export {
  type DomainId,
  domainOf,
  type EventId,
  fitsBytes,
  isHistoricalLocalpart,
  isValidEventId,
  isValidNewLocalpart,
  isValidRoomAlias,
  isValidRoomId,
  isValidUserId,
  localpartOf,
  maxIdBytes,
  type OpaqueId,
  parseEventId,
  parseRoomAlias,
  parseRoomId,
  parseUserId,
  type RoomAlias,
  type RoomId,
  type ServerName,
  type UserId,
} from './identifiers.js';
export { isJsonObject, type Json, type JsonObject } from './json.js';
export { isValidServerName, maxServerNameBytes, parseServerName, type ServerNameParts } from './server-name.js';
export {
  type ClientEvent,
  isMembership,
  type MemberContent,
  type Membership,
  type Signatures,
  type SignedJson,
  type StrippedState,
  type UnsignedData,
} from './wire.js';
