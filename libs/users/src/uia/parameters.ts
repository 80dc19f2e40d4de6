import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';

/** Parameters that clients are known to change on the way and that decide nothing. */
const unboundParameters = new Set(['initial_device_display_name', 'x_show_msisdn']);

const cipher = 'aes-256-gcm';
const ivBytes = 12;
const tagBytes = 16;

/** What an operation was asked with, beside the proof of its user. What is `null` is absent. */
export function parametersOf(body: JsonObject): JsonObject {
  return Object.fromEntries(
    Object.entries(body).filter(([key, value]) => key !== 'auth' && value !== undefined && value !== null),
  );
}

/**
 * Tells whether two requests of a session ask for the same. Keyed with the session id, which is not stored.
 * @returns `undefined` for a request without parameters: it asks for the flows, and the parameters come with a stage
 */
export function digestOfParameters(sessionId: string, body: JsonObject): string | undefined {
  const parameters = parametersOf(body);
  const keys = Object.keys(parameters).filter((key) => !unboundParameters.has(key));
  if (keys.length === 0) return undefined;
  const hmac = createHmac('sha256', sessionId);
  for (const key of keys.sort()) hmac.update(JSON.stringify([key, sorted(parameters[key])]));
  return hmac.digest('base64url');
}

/** The parameters as they are stored: only who has the session id can read them. */
export function sealParameters(sessionId: string, body: JsonObject): string {
  const iv = randomBytes(ivBytes);
  const encryption = createCipheriv(cipher, keyOf(sessionId), iv);
  const sealed = Buffer.concat([encryption.update(JSON.stringify(parametersOf(body)), 'utf8'), encryption.final()]);
  return Buffer.concat([iv, encryption.getAuthTag(), sealed]).toString('base64url');
}

/** The other way round. */
export function openParameters(sessionId: string, sealed: string): JsonObject {
  const bytes = Buffer.from(sealed, 'base64url');
  const decryption = createDecipheriv(cipher, keyOf(sessionId), bytes.subarray(0, ivBytes)).setAuthTag(
    bytes.subarray(ivBytes, ivBytes + tagBytes),
  );
  const text = Buffer.concat([decryption.update(bytes.subarray(ivBytes + tagBytes)), decryption.final()]);
  return JSON.parse(text.toString('utf8')) as JsonObject;
}

const keyOf = (sessionId: string): Buffer =>
  Buffer.from(hkdfSync('sha256', sessionId, Buffer.alloc(0), 'rookery interactive auth parameters', 32));

/** The same value with its keys in order, so that the digest does not depend on how a client writes JSON. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isJsonObject(value)) return value;
  return Object.keys(value)
    .sort()
    .map((key) => [key, sorted(value[key])]);
}
