import { domainOf, fitsBytes, isJsonObject, type JsonObject, maxIdBytes } from '@rookery/matrix-types';
import { canonicalJson } from './canonical-json.js';
import type { RoomEvent } from './event.js';
import { eventIdOf } from './hashes.js';
import { InvalidEventError } from './invalid-event-error.js';
import { inspectJson, NumberText, parseJson, readJson } from './json-text.js';
import { makeEvent } from './make-event.js';
import type { RoomVersionRules } from './room-version-rules.js';

/** Largest event in canonical form, signatures included, bytes. @spec client-server-api#size-limits */
export const maxPduBytes = 65_536;
/** @spec rooms/v12#event-format */
export const maxPrevEvents = 20;
/** @spec rooms/v12#event-format */
export const maxAuthEvents = 10;

/** Six characters of text can stand for one byte of the canonical form. */
const maxPduText = 8 * maxPduBytes;

const fail = (reason: string): never => {
  throw new InvalidEventError('shape', reason);
};

/**
 * Turns what another server sent into an event, or refuses it: the check that comes before everything else. It covers
 * JSON (canonical where the room version demands it), sizes and shape; not hashes, signatures or authorization.
 *
 * `unsigned` is dropped: it is covered by nothing, and this server writes its own. (Stripped state in an invite is read
 * from the request.)
 *
 * @param input JSON text, or a value from {@link parseJson}. In a value from plain `JSON.parse` numbers like `1.0` and
 *   `1e3` cannot be told from integers and pass.
 * @param options.roomId the room that the event must belong to
 * @throws InvalidEventError and nothing else
 * @spec server-server-api#checks-performed-on-receipt-of-a-pdu
 */
export function parsePdu(
  input: unknown,
  rules: RoomVersionRules,
  options: { readonly roomId?: string } = {},
): RoomEvent {
  if (typeof input === 'string' && input.length > maxPduText) throw new InvalidEventError('tooLarge', 'text too long');
  const value = typeof input === 'string' ? parseJson(input) : input;
  if (!isJsonObject(value) || value instanceof NumberText) return fail('not an object');
  // Before anything is copied: no more members than that fit into an event, each of at least five bytes.
  if (Object.keys(value).length > maxPduBytes / 5 + 1) throw new InvalidEventError('tooLarge', 'too many keys');
  const { unsigned: _, ...pdu } = value;
  const { odd, maxBytes } = inspectJson(pdu, rules.strictCanonicalJson);
  checkShape(pdu, rules, rules.strictByteLimits);
  if (maxBytes > maxPduBytes && Buffer.byteLength(canonicalJson(pdu)) > maxPduBytes) {
    throw new InvalidEventError('tooLarge', 'larger than 65536 bytes');
  }
  const event = makeEvent(pdu, eventIdOf(pdu, rules), rules, odd);
  if (options.roomId !== undefined && event.roomId !== options.roomId) {
    throw new InvalidEventError('shape', 'belongs to another room', event.eventId);
  }
  return event;
}

/**
 * Loads an event from this server's own database, where it was put after {@link parsePdu} or {@link buildEvent}.
 * Nothing is checked.
 */
export function eventFromRow(jsonText: string, eventId: string, rules: RoomVersionRules): RoomEvent {
  if (rules.strictCanonicalJson) return makeEvent(JSON.parse(jsonText) as JsonObject, eventId, rules, false);
  const { value, odd } = readJson(jsonText);
  return makeEvent(value as JsonObject, eventId, rules, odd);
}

/**
 * An event as it lies in the database, for {@link eventFromRow}. Old room versions may hold numbers that only canonical JSON
 * writes rightly.
 */
export function pduText({ pdu, rules }: RoomEvent): string {
  return rules.strictCanonicalJson ? JSON.stringify(pdu) : canonicalJson(pdu as JsonObject);
}

/**
 * The key whose value takes more bytes than an event may hold, although it has few enough characters. Before room version 11
 * such an event is refused like one that the auth rules refuse, and not thrown away: what follows upon it must not get lost
 * in a room where other servers took it.
 * @spec client-server-api#size-limits
 */
export function overlongKey({ pdu, rules }: RoomEvent): string | undefined {
  return limitedKeys.find((key) => {
    // Later formats do not know this key.
    if (key === 'event_id' && rules.eventFormat !== 'v1') return false;
    const value = Object.hasOwn(pdu, key) ? pdu[key] : undefined;
    return typeof value === 'string' && !fitsBytes(value, maxIdBytes);
  });
}

const limitedKeys = ['type', 'sender', 'state_key', 'room_id', 'event_id'] as const;

/**
 * Checks that every key which code reads without looking has the right type and size.
 * @param inBytes how ids, types and state keys are measured: in bytes, or in code points
 * @throws InvalidEventError
 */
export function checkShape(pdu: Readonly<JsonObject>, rules: RoomVersionRules, inBytes: boolean): void {
  const type = text(pdu, 'type', inBytes);
  const sender = identifier(pdu, 'sender', '@', inBytes);
  if (domainOf(sender) === '') fail('sender has no domain');
  if (Object.hasOwn(pdu, 'state_key')) text(pdu, 'state_key', inBytes);
  if (Object.hasOwn(pdu, 'room_id')) identifier(pdu, 'room_id', '!', inBytes);
  else if (rules.roomIdFormat !== 'createEventHash' || type !== 'm.room.create' || pdu['state_key'] !== '') {
    fail('room_id is missing');
  }
  if (!isPlainObject(pdu['content'])) fail('content is not an object');
  integer(pdu, 'origin_server_ts', Number.MIN_SAFE_INTEGER, rules);
  integer(pdu, 'depth', 0, rules);
  references(pdu, 'prev_events', maxPrevEvents, rules, inBytes);
  references(pdu, 'auth_events', maxAuthEvents, rules, inBytes);
  if (!isPlainObject(pdu['hashes']) || typeof pdu['hashes']['sha256'] !== 'string') fail('hashes is not right');
  checkSignatures(pdu['signatures']);
  if (rules.eventFormat === 'v1') {
    if (domainOf(identifier(pdu, 'event_id', '$', inBytes)) === '') fail('event_id has no domain');
  }
}

const isPlainObject = (value: unknown): value is JsonObject => isJsonObject(value) && !(value instanceof NumberText);

/** Whether a text is short enough. 255 code points take at most twice as many units of UTF-16. */
function isShort(value: string, inBytes: boolean): boolean {
  if (fitsBytes(value, maxIdBytes)) return true;
  return !inBytes && value.length <= 2 * maxIdBytes && [...value].length <= maxIdBytes;
}

function text(pdu: Readonly<JsonObject>, key: string, inBytes: boolean): string {
  const value = Object.hasOwn(pdu, key) ? pdu[key] : undefined;
  if (typeof value !== 'string') return fail(`${key} is not a string`);
  if (!isShort(value, inBytes)) {
    throw new InvalidEventError('tooLarge', `${key} is longer than 255 ${inBytes ? 'bytes' : 'characters'}`);
  }
  // NOTSPEC: PostgreSQL cannot hold NUL in a text, so such an event could never be stored.
  if (value.includes('\0')) return fail(`${key} holds a NUL`);
  return value;
}

function identifier(pdu: Readonly<JsonObject>, key: string, sigil: string, inBytes: boolean): string {
  const value = text(pdu, key, inBytes);
  return value.startsWith(sigil) ? value : fail(`${key} does not start with ${sigil}`);
}

function integer(pdu: Readonly<JsonObject>, key: string, min: number, rules: RoomVersionRules): void {
  const value = Object.hasOwn(pdu, key) ? pdu[key] : undefined;
  if (typeof value === 'number') {
    if (!Number.isInteger(value) || value < min || value > rules.maxDepth) fail(`${key} is out of range`);
  } else if (value instanceof NumberText) {
    if (!/^-?\d{1,19}$/.test(value.source)) fail(`${key} is not an integer`);
    const exact = BigInt(value.source);
    if (exact < BigInt(min) || exact >= 1n << 63n) fail(`${key} is out of range`);
  } else fail(`${key} is not a number`);
}

function references(
  pdu: Readonly<JsonObject>,
  key: string,
  max: number,
  rules: RoomVersionRules,
  inBytes: boolean,
): void {
  const list = Object.hasOwn(pdu, key) ? pdu[key] : undefined;
  if (!Array.isArray(list)) return fail(`${key} is not a list`);
  if (list.length > max) throw new InvalidEventError('tooLarge', `${key} has more than ${max} entries`);
  for (const entry of list) {
    const paired = rules.eventFormat === 'v1';
    if (paired && !(Array.isArray(entry) && entry.length === 2 && isPlainObject(entry[1]))) {
      fail(`${key} holds something else than pairs of id and hashes`);
    }
    const id: unknown = paired ? (entry as unknown[])[0] : entry;
    if (typeof id !== 'string' || !id.startsWith('$') || id.includes('\0'))
      fail(`${key} holds something else than event ids`);
    else if (!isShort(id, inBytes)) {
      throw new InvalidEventError('tooLarge', `${key} holds an id longer than 255 ${inBytes ? 'bytes' : 'characters'}`);
    }
  }
}

function checkSignatures(signatures: unknown): void {
  if (!isPlainObject(signatures)) return fail('signatures is not an object');
  for (const ofServer of Object.values(signatures)) {
    if (!isPlainObject(ofServer)) return fail('signatures of a server are not an object');
    for (const signature of Object.values(ofServer)) {
      if (typeof signature !== 'string') return fail('a signature is not a string');
    }
  }
}
