import { createPublicKey, type KeyObject, verify } from 'node:crypto';
import { canonicalJson, type RoomEvent } from '@rookery/events';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';

/** Signatures times keys that one event may make us verify; an honest invite has one or two of each. */
const maxVerifications = 64;

/** Verdicts by membership event, since state resolution asks about the same events again and again. */
const verified = new WeakMap<RoomEvent, { readonly offer: RoomEvent; readonly isSigned: boolean }>();

/**
 * Whether any signature of a redeemed third-party invite was made by any key of the invite in the room.
 * @param signed `content.third_party_invite.signed` of the membership event
 * @param offer the room's `m.room.third_party_invite` event
 * @spec rooms/v12#authorization-rules (rule 5.4.1.7)
 */
export function isSignedByInvite(event: RoomEvent, signed: JsonObject, offer: RoomEvent): boolean {
  const known = verified.get(event);
  if (known?.offer === offer) return known.isSigned;
  const isSigned = verifySigned(signed, offer.content);
  verified.set(event, { offer, isSigned });
  return isSigned;
}

function verifySigned(signed: JsonObject, offer: Readonly<JsonObject>): boolean {
  const { signatures, unsigned: _unsigned, ...payload } = signed;
  const found = signaturesIn(signatures);
  const keys = publicKeysIn(offer);
  if (found.length === 0 || keys.length === 0 || found.length * keys.length > maxVerifications) return false;
  const message = Buffer.from(canonicalJson(payload));
  return keys.some((key) => found.some((signature) => verify(null, message, key, signature)));
}

function signaturesIn(signatures: unknown): Buffer[] {
  const found: Buffer[] = [];
  if (!isJsonObject(signatures)) return found;
  for (const ofServer of Object.values(signatures)) {
    if (!isJsonObject(ofServer)) continue;
    for (const [keyId, value] of Object.entries(ofServer)) {
      if (!keyId.startsWith('ed25519:') || typeof value !== 'string') continue;
      const signature = Buffer.from(value, 'base64');
      if (signature.length === 64) found.push(signature);
    }
  }
  return found;
}

function publicKeysIn(offer: Readonly<JsonObject>): KeyObject[] {
  const listed = Array.isArray(offer['public_keys']) ? offer['public_keys'] : [];
  const encoded = [
    offer['public_key'],
    ...listed.map((entry) => (isJsonObject(entry) ? entry['public_key'] : undefined)),
  ];
  const keys: KeyObject[] = [];
  for (const text of new Set(encoded)) {
    if (typeof text !== 'string') continue;
    // Node reads the URL-safe alphabet, padding and the standard alphabet alike.
    const raw = Buffer.from(text, 'base64');
    if (raw.length !== 32 || keys.length > maxVerifications) continue;
    const jwk = { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') };
    keys.push(createPublicKey({ key: jwk, format: 'jwk' }));
  }
  return keys;
}
