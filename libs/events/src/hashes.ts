import { hash } from 'node:crypto';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { decodeBase64, encodeBase64 } from './base64.js';
import { canonicalJson } from './canonical-json.js';
import type { RoomEvent } from './event.js';
import { redactPdu } from './redaction.js';
import type { RoomVersionRules } from './room-version-rules.js';

const base64Sha256 = (text: string): string => hash('sha256', text, 'base64').slice(0, 43);

/** The text that a content hash covers: everything but what is added later. */
export function hashedText(pdu: Readonly<JsonObject>): string {
  return canonicalJson({ ...pdu, unsigned: undefined, signatures: undefined, hashes: undefined });
}

/**
 * SHA-256 over the whole event, unpadded base64: the value of `hashes.sha256`.
 * @spec server-server-api#calculating-the-content-hash-for-an-event
 */
export function contentHash(pdu: Readonly<JsonObject>): string {
  return base64Sha256(hashedText(pdu));
}

/**
 * Whether the event's content hash is right. Where it is not, the event is used in its redacted form.
 * @spec server-server-api#validating-hashes-and-signatures-on-received-events
 */
export function hasValidContentHash(event: RoomEvent): boolean {
  const claimed = isJsonObject(event.pdu['hashes']) ? event.pdu['hashes']['sha256'] : undefined;
  if (typeof claimed !== 'string') return false;
  const actual = contentHash(event.pdu);
  if (claimed === actual) return true;
  // Another alphabet, padding or spare bits.
  const bytes = decodeBase64(claimed);
  return bytes !== undefined && encodeBase64(bytes) === actual;
}

/** The text that signatures and the reference hash cover. */
export function signedText(pdu: Readonly<JsonObject>, rules: RoomVersionRules): string {
  const redacted = redactPdu(pdu, rules);
  delete redacted['signatures'];
  return canonicalJson(redacted);
}

/**
 * SHA-256 over the redacted event, unpadded base64; URL-safe where the room version's ids are.
 * @spec server-server-api#calculating-the-reference-hash-for-an-event
 */
export function referenceHash(pdu: Readonly<JsonObject>, rules: RoomVersionRules): string {
  return referenceHashOf(signedText(pdu, rules), rules);
}

/** {@link referenceHash} of a {@link signedText}. */
export function referenceHashOf(text: string, rules: RoomVersionRules): string {
  return rules.eventFormat === 'v4' ? hash('sha256', text, 'base64url') : base64Sha256(text);
}

/**
 * The event's id: the one in the PDU for the first format, else the reference hash.
 * @param pdu its shape was checked
 * @spec appendices#event-ids
 */
export function eventIdOf(pdu: Readonly<JsonObject>, rules: RoomVersionRules): string {
  return rules.eventFormat === 'v1' ? (pdu['event_id'] as string) : `$${referenceHash(pdu, rules)}`;
}
