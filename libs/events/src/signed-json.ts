import { isJsonObject, type JsonObject, type Signatures, type SignedJson } from '@rookery/matrix-types';
import { canonicalJson } from './canonical-json.js';
import type { SigningKey, VerifyKey } from './signing-key.js';

const coveredText = (object: Readonly<JsonObject>): string =>
  canonicalJson({ ...object, signatures: undefined, unsigned: undefined });

/**
 * The object with one more signature. Signatures that are there stay; the input is not changed.
 * @param signer server name, or user id for cross-signing
 * @spec appendices#signing-json
 */
export function signJson<T extends object>(object: T, signer: string, key: SigningKey): SignedJson<T> {
  const signature = key.sign(coveredText(object as JsonObject));
  const before = (object as { signatures?: Signatures }).signatures;
  const signatures = { ...before, [signer]: { ...before?.[signer], [key.keyId]: signature } };
  return { ...object, signatures };
}

/**
 * Whether an object carries a valid signature of this signer by this key.
 * @param object anything; what is not a signed object is not valid
 * @param keyId `ed25519:…`; others are not valid
 * @spec appendices#checking-for-a-signature
 */
export function verifyJson(object: unknown, signer: string, keyId: string, key: VerifyKey): boolean {
  if (!isJsonObject(object) || !keyId.startsWith('ed25519:')) return false;
  const ofSigner = isJsonObject(object['signatures']) ? object['signatures'][signer] : undefined;
  const signature = isJsonObject(ofSigner) ? ofSigner[keyId] : undefined;
  if (typeof signature !== 'string') return false;
  try {
    return key.verify(coveredText(object), signature);
  } catch {
    return false; // no canonical form
  }
}
