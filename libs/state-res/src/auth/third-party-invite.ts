import { type RoomEvent, VerifyKey, verifyJson } from '@rookery/events';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';

/**
 * Signatures times keys that one event may make us verify; an honest invite has one or two of each.
 *
 * NOTSPEC: with more it is refused, though a server without such a limit may allow it. Two events can hold half a million pairs, which no
 * order and no batch makes fewer: more than a minute in which this thread does nothing else.
 */
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
  const signatures = signatureNames(signed['signatures']);
  const keys = publicKeyTexts(offer);
  if (signatures.length * keys.length > maxVerifications) return false;
  return keys.some((text) => {
    const key = VerifyKey.parse(text);
    return key !== undefined && signatures.some(([signer, keyId]) => verifyJson(signed, signer, keyId, key));
  });
}

function signatureNames(signatures: unknown): [signer: string, keyId: string][] {
  if (!isJsonObject(signatures)) return [];
  return Object.entries(signatures).flatMap(([signer, ofSigner]) =>
    isJsonObject(ofSigner) ? Object.keys(ofSigner).map((keyId): [string, string] => [signer, keyId]) : [],
  );
}

function publicKeyTexts(offer: Readonly<JsonObject>): string[] {
  const listed = Array.isArray(offer['public_keys']) ? offer['public_keys'] : [];
  const texts = [
    offer['public_key'],
    ...listed.map((entry) => (isJsonObject(entry) ? entry['public_key'] : undefined)),
  ];
  return [...new Set(texts)].filter((text) => typeof text === 'string');
}
