import { canonicalJson, verifyJson, VerifyKey } from '@rookery/events';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';

/** A key of another server. */
export interface ServerKey {
  readonly keyId: string;
  /** Unpadded base64, as written by its server. */
  readonly publicKey: string;
  readonly key: VerifyKey;
  /**
   * Until when it may be relied on, milliseconds since the epoch: at most seven days ahead of when it was told, or the time
   * at which it was given up.
   */
  readonly validUntilTs: number;
}

/** What a server says about its keys. */
export interface ServerKeysStatement {
  readonly serverName: string;
  /** By key id. Empty never. */
  readonly keys: ReadonlyMap<string, ServerKey>;
  /** Its own word for how long it holds, milliseconds since the epoch. */
  readonly validUntilTs: number;
  /** Canonical JSON with all signatures, to be passed on. */
  readonly text: string;
}

/** Longest time ahead that a key is relied on. @spec server-server-api#publishing-keys */
export const maxValidityMs = 7 * 86_400_000;
/** Keys of one server, current and old ones each, that are looked at. */
const maxKeys = 100;
const keyIdPattern = /^ed25519:[A-Za-z0-9_]{1,128}$/;

/**
 * Reads what a server says about its keys. It must carry the server's signature by one of its current keys.
 * @param object anything
 * @param serverName whose statement it has to be
 * @returns `undefined` when it is not that
 */
export function readServerKeys(object: unknown, serverName: string, nowTs: number): ServerKeysStatement | undefined {
  if (!isJsonObject(object) || object['server_name'] !== serverName) return undefined;
  const validUntilTs = object['valid_until_ts'];
  if (!isTimestamp(validUntilTs)) return undefined;
  const keys = new Map<string, ServerKey>();
  for (const [keyId, value] of entriesOf(object['old_verify_keys'])) {
    const expiredTs = value['expired_ts'];
    if (isTimestamp(expiredTs)) add(keys, keyId, value, Math.min(expiredTs, nowTs));
  }
  let signed = false;
  for (const [keyId, value] of entriesOf(object['verify_keys'])) {
    const key = add(keys, keyId, value, Math.min(validUntilTs, nowTs + maxValidityMs));
    signed ||= key !== undefined && verifyJson(object, serverName, keyId, key.key);
  }
  if (!signed) return undefined;
  return { serverName, keys, validUntilTs, text: canonicalJson(object) };
}

/** Whether a statement carries a signature of a notary by one of these keys. */
export function isSignedBy(object: JsonObject, notary: string, keys: ReadonlyMap<string, VerifyKey>): boolean {
  for (const [keyId, key] of keys) if (verifyJson(object, notary, keyId, key)) return true;
  return false;
}

function entriesOf(value: unknown): [string, JsonObject][] {
  if (!isJsonObject(value)) return [];
  return Object.entries(value)
    .slice(0, maxKeys)
    .filter((entry): entry is [string, JsonObject] => isJsonObject(entry[1]));
}

function add(
  keys: Map<string, ServerKey>,
  keyId: string,
  value: JsonObject,
  validUntilTs: number,
): ServerKey | undefined {
  const publicKey = value['key'];
  if (!keyIdPattern.test(keyId) || typeof publicKey !== 'string' || publicKey.length > 100) return undefined;
  const key = VerifyKey.parse(publicKey);
  if (key === undefined) return undefined;
  const known = { keyId, publicKey, key, validUntilTs };
  keys.set(keyId, known);
  return known;
}

const isTimestamp = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
