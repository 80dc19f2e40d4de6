/** One PDU: canonical JSON, format, hashes, redaction, signing. */
export { decodeBase64, decodeBase64Strict, encodeBase64, encodeBase64Url } from './base64.js';
export { addSignatures, buildEvent, checkOwnContent, type EventDraft, signEvent } from './build-event.js';
export { canonicalJson } from './canonical-json.js';
export { clientEventView } from './client-event.js';
export type { RoomEvent, StateKeyTuple } from './event.js';
export {
  hasValidSignature,
  type KeyLookup,
  type KnownKey,
  requiredSigners,
  type SignatureVerdict,
  signingKeyIds,
  soundForm,
  verifyEventSignatures,
} from './event-signatures.js';
export { contentHash, eventIdOf, hasValidContentHash, referenceHash } from './hashes.js';
export { InvalidEventError, type InvalidEventKind } from './invalid-event-error.js';
export { NumberText, parseJson } from './json-text.js';
export {
  eventFromRow,
  maxAuthEvents,
  maxPduBytes,
  maxPrevEvents,
  overlongKey,
  parsePdu,
  pduText,
} from './parse-pdu.js';
export { redactEvent, redactPdu } from './redaction.js';
export { isIdLike, type Relation, relationOf } from './relation.js';
export type { RoomVersionRules } from './room-version-rules.js';
export { defaultRoomVersion, roomVersionRules, roomVersions } from './room-versions.js';
export { type ServerAcl, serverAclOf } from './server-acl.js';
export { signJson, verifyJson } from './signed-json.js';
export { SigningKey, VerifyKey } from './signing-key.js';
export { longestStickyMs, stickyDurationOf, stickyKey } from './sticky.js';
export { prejoinStateOf, stripped, strippedStateFrom } from './stripped-state.js';
export { type HistoryVisibility, historyVisibilityIn } from './history-visibility.js';
