import { isJsonObject, type JsonObject, MatrixError, maxIdBytes } from '@rookery/matrix-types';

/** What clients and other servers may ask for at once. */
export const limits = {
  /** Users in one query for keys. */
  queriedUsers: 5_000,
  /** Devices of one user in one query for keys. */
  queriedDevices: 5_000,
  /** Devices in one claim of one-time keys. */
  claimedDevices: 5_000,
  /** One-time keys in one upload, and held for one device. */
  uploadedKeys: 1_000,
  heldKeys: 5_000,
  /** Algorithms of which a device has one-time or fallback keys. */
  algorithms: 20,
  /** A device's identity keys, a one-time key, a cross-signing key, a backup's auth data; bytes of JSON. */
  keyBytes: 65_536,
  /** Keys of other servers' users that are gathered, bytes of JSON: of one server that is asked, for one user who asks, and altogether. */
  serverKeysBytes: 8_388_608,
  gatheredKeysBytes: 33_554_432,
  gatheredKeysBytesInAll: 268_435_456,
  /** Fallback keys in one upload. */
  fallbackKeys: 20,
  /** Signed objects in one upload of signatures. */
  signedObjects: 1_000,
  /** Messages to single devices in one request; bytes of one message's content. */
  toDeviceMessages: 10_000,
  toDeviceBytes: 65_536,
  /** What one request puts into the inboxes of devices here, those of `*` counted for each device: messages, and bytes of them. */
  inboxMessages: 50_000,
  inboxBytes: 33_554_432,
  /** Sessions in one request to a key backup; bytes of one session. */
  backupSessions: 20_000,
  backupSessionBytes: 65_536,
  /** Versions of a user's key backup. */
  backupVersions: 10_000,
  /** Data of a dehydrated device, bytes of JSON. */
  dehydratedBytes: 262_144,
  /** How long other servers are waited for, milliseconds: by default and at most. */
  remoteTimeoutMs: 10_000,
  longestRemoteTimeoutMs: 60_000,
} as const;

/** Whether a text may be a name in the database: not empty, not too long, no NUL, no halves of surrogates. */
export function isName(text: unknown, maxBytes: number = maxIdBytes): text is string {
  return (
    typeof text === 'string' &&
    text !== '' &&
    !text.includes('\0') &&
    text.isWellFormed() &&
    Buffer.byteLength(text) <= maxBytes
  );
}

/**
 * A JSON object from outside as text for the database.
 * @throws MatrixError 400 `M_BAD_JSON` when it is none, 413 `M_TOO_LARGE`
 */
export function objectText(value: unknown, what: string, maxBytes: number): string {
  if (!isJsonObject(value)) throw MatrixError.badJson(`${what} must be an object`);
  const text = JSON.stringify(value);
  if (Buffer.byteLength(text) > maxBytes) throw MatrixError.tooLarge(`${what} is larger than ${maxBytes} bytes`);
  // The database keeps no NUL, which JSON escapes, so the text is safe; halves of surrogates are escaped as well.
  return text;
}

/** How long to wait for other servers, as a client asks; clamped. */
export function remoteTimeoutOf(body: JsonObject): number {
  const { timeout } = body;
  return typeof timeout === 'number' && timeout >= 0
    ? Math.min(timeout, limits.longestRemoteTimeoutMs)
    : limits.remoteTimeoutMs;
}

/** Groups by server of the user. */
export function byServer<Value>(
  entries: Iterable<readonly [string, Value]>,
  serverOf: (userId: string) => string,
): Map<string, Record<string, Value>> {
  const servers = new Map<string, Record<string, Value>>();
  for (const [userId, value] of entries) {
    const server = serverOf(userId);
    let users = servers.get(server);
    if (!users) servers.set(server, (users = {}));
    users[userId] = value;
  }
  return servers;
}
