import { canonicalJson } from '@rookery/events';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import { isName, limits } from '../common/limits.js';
import type { OfferedKey } from './one-time-key.query.js';

/** What a device uploads, checked and ready for the database. */
export interface KeyUpload {
  /** Canonical JSON of the identity keys. */
  readonly deviceKeys: string | undefined;
  readonly oneTimeKeys: readonly OfferedKey[];
  readonly fallbackKeys: readonly OfferedKey[];
}

/**
 * Reads the body of an upload of keys.
 * @throws MatrixError 400 `M_BAD_JSON`, `M_INVALID_PARAM` (keys of somebody else), 413 `M_TOO_LARGE`
 * @spec client-server-api#post_matrixclientv3keysupload
 */
export function parseKeyUpload(body: JsonObject, userId: string, deviceId: string): KeyUpload {
  const fallbackKeys = offeredKeys(body['fallback_keys'], 'fallback_keys', limits.fallbackKeys);
  if (new Set(fallbackKeys.map((key) => key.algorithm)).size < fallbackKeys.length)
    throw MatrixError.invalidParam('There is one fallback key of each algorithm');
  return {
    deviceKeys: deviceKeysOf(body['device_keys'], userId, deviceId),
    oneTimeKeys: offeredKeys(body['one_time_keys'], 'one_time_keys', limits.uploadedKeys),
    fallbackKeys,
  };
}

function deviceKeysOf(keys: unknown, userId: string, deviceId: string): string | undefined {
  if (keys === undefined || keys === null) return undefined;
  if (!isJsonObject(keys)) throw MatrixError.badJson("'device_keys' must be an object");
  if (keys['user_id'] !== userId || keys['device_id'] !== deviceId)
    throw MatrixError.invalidParam("'device_keys' must be those of your own device");
  const { algorithms, keys: publicKeys, signatures } = keys;
  if (!Array.isArray(algorithms) || !algorithms.every((name) => typeof name === 'string'))
    throw MatrixError.badJson("'device_keys.algorithms' must be a list of names");
  if (!isJsonObject(publicKeys) || !Object.values(publicKeys).every((key) => typeof key === 'string'))
    throw MatrixError.badJson("'device_keys.keys' must hold texts");
  if (signatures !== undefined && (!isJsonObject(signatures) || !Object.values(signatures).every(isJsonObject)))
    throw MatrixError.badJson("'device_keys.signatures' must hold objects");
  return canonicalText(keys, 'device_keys');
}

function offeredKeys(value: unknown, name: string, max: number): OfferedKey[] {
  if (value === undefined || value === null) return [];
  if (!isJsonObject(value)) throw MatrixError.badJson(`'${name}' must be an object`);
  const entries = Object.entries(value);
  if (entries.length > max) throw MatrixError.tooLarge(`Not more than ${max} keys can be uploaded in '${name}'`);
  return entries.map(([fullId, key]) => {
    const colon = fullId.indexOf(':');
    const algorithm = fullId.slice(0, colon);
    const keyId = fullId.slice(colon + 1);
    if (colon < 0 || !isName(algorithm) || !isName(keyId))
      throw MatrixError.invalidParam(`Names in '${name}' are an algorithm, a colon, and an id`);
    if (typeof key !== 'string' && !isJsonObject(key)) throw MatrixError.badJson(`'${name}' must hold keys`);
    return { algorithm, keyId, keyJson: canonicalText(key, name) };
  });
}

/** One text for equal keys, whatever the order of their parts. */
function canonicalText(value: unknown, name: string): string {
  let text;
  try {
    text = canonicalJson(value);
  } catch {
    throw MatrixError.badJson(`'${name}' must be of the values that can be signed`);
  }
  if (Buffer.byteLength(text) > limits.keyBytes)
    throw MatrixError.tooLarge(`A key in '${name}' is larger than ${limits.keyBytes} bytes`);
  return text;
}
