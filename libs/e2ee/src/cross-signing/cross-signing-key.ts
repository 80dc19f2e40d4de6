import { canonicalJson, VerifyKey } from '@rookery/events';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { limits } from '../common/limits.js';
import type { CrossSigningType } from './cross-signing.query.js';

/** A cross-signing key that was checked. */
export interface CrossSigningKey {
  readonly type: CrossSigningType;
  readonly object: JsonObject;
  /** Base64; serves as the key's id. Unpadded, but for some that were stored long ago. */
  readonly publicKey: string;
  /** `ed25519:` and the public key. */
  readonly keyId: string;
  readonly verifyKey: VerifyKey;
}

/**
 * Reads a cross-signing key of a user. Its signatures are not checked.
 * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM`, 413 `M_TOO_LARGE`
 * @spec client-server-api#cross-signing
 */
export function parseCrossSigningKey(value: unknown, type: CrossSigningType, userId: string): CrossSigningKey {
  const name = `${type}_key`;
  if (!isJsonObject(value)) throw MatrixError.badJson(`'${name}' must be an object`);
  const { user_id: owner, usage, keys } = value;
  if (owner !== userId) throw MatrixError.invalidParam(`'${name}' must be your own`);
  if (!Array.isArray(usage) || !usage.includes(type))
    throw MatrixError.invalidParam(`'${name}.usage' must contain '${type}'`);
  const [entry, ...more] = isJsonObject(keys) ? Object.entries(keys) : [];
  const [keyId, publicKey] = entry ?? [];
  if (keyId === undefined || more.length > 0 || typeof publicKey !== 'string')
    throw MatrixError.invalidParam(`'${name}.keys' must hold one key`);
  const verifyKey = VerifyKey.parse(publicKey);
  if (keyId !== `ed25519:${publicKey}` || verifyKey === undefined)
    throw MatrixError.invalidParam(`'${name}.keys' must hold an Ed25519 key under its own name`);
  if (Buffer.byteLength(coveredText(value)) > limits.keyBytes)
    throw MatrixError.tooLarge(`'${name}' is larger than ${limits.keyBytes} bytes`);
  return { type, object: value, publicKey, keyId, verifyKey };
}

const unpaddedBase64 = /^[A-Za-z0-9+/]+$/;

/**
 * Refuses a key that others would not know by its id, or not as a key: one that is not in unpadded base64.
 * @throws MatrixError 400 `M_INVALID_PARAM`
 * @spec appendices#unpadded-base64
 */
export function checkEncoding({ type, publicKey }: CrossSigningKey): void {
  if (!unpaddedBase64.test(publicKey)) throw MatrixError.invalidParam(`'${type}_key' must be in unpadded base64`);
}

/**
 * What a signature covers, as one text for equal objects.
 * @throws MatrixError 400 `M_BAD_JSON` when the object has values that cannot be signed
 */
export function coveredText(object: JsonObject): string {
  try {
    return canonicalJson({ ...object, signatures: undefined, unsigned: undefined });
  } catch {
    throw MatrixError.badJson('There are values that cannot be signed');
  }
}

/** The signatures that a user made on an object, by key id; what is no text is passed over. */
export function signaturesBy(object: JsonObject, userId: string): [string, string][] {
  const { signatures } = object;
  const own = isJsonObject(signatures) ? signatures[userId] : undefined;
  return isJsonObject(own)
    ? Object.entries(own).filter((entry): entry is [string, string] => typeof entry[1] === 'string')
    : [];
}
