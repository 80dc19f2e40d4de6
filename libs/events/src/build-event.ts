import { hash } from 'node:crypto';
import { domainOf, type JsonObject, type Signatures } from '@rookery/matrix-types';
import { canonicalJson } from './canonical-json.js';
import type { RoomEvent } from './event.js';
import { hashedText, eventIdOf, signedText } from './hashes.js';
import { InvalidEventError } from './invalid-event-error.js';
import { inspectJson, maxOwnNesting } from './json-text.js';
import { makeEvent } from './make-event.js';
import { checkShape, maxPduBytes } from './parse-pdu.js';
import { stickyKey } from './sticky.js';
import type { RoomVersionRules } from './room-version-rules.js';
import { maxKeyVersion, type SigningKey } from './signing-key.js';

/** What an event of this server is made from. */
export interface EventDraft {
  /** Absent for the create event of a room whose id is that event's hash. */
  readonly roomId?: string | undefined;
  readonly type: string;
  /** `undefined` for a message event. */
  readonly stateKey?: string | undefined;
  readonly sender: string;
  readonly content: Readonly<JsonObject>;
  /** Milliseconds since the epoch. */
  readonly originServerTs: number;
  /** More than the deepest of the previous events; cut to what every server can read. */
  readonly depth: number;
  readonly prevEventIds: readonly string[];
  readonly authEventIds: readonly string[];
  /** Target of an `m.room.redaction`; put where the room version wants it. */
  readonly redacts?: string | undefined;
  /** For how long the event is sticky, milliseconds (MSC4354). */
  readonly stickyDurationMs?: number | undefined;
  /** Room versions 1 and 2 only, where the sender's server chooses the id. */
  readonly eventId?: string | undefined;
  /** Room versions 1 and 2 only: reference hashes of previous and auth events by their ids. */
  readonly referenceHashes?: ReadonlyMap<string, string> | undefined;
}

/**
 * Makes an event: format of the room version, content hash, event id. It is not signed yet, so that gates can still
 * refuse it; the id does not depend on signatures.
 * @throws InvalidEventError when the draft cannot be an event of this room version: numbers that are not canonical,
 *   too large (room for one signature is kept), nested too deeply, too many previous or auth events, wrong identifiers
 * @spec server-server-api#adding-hashes-and-signatures-to-outgoing-events
 */
export function buildEvent(draft: EventDraft, rules: RoomVersionRules): RoomEvent {
  // In canonical order, so that hashing needs no sorting.
  const pdu: JsonObject = { auth_events: references(draft.authEventIds, draft, rules), content: draft.content };
  // Old room versions allow more, which not every server takes: whoever has made the room so deep would cut it off from us.
  pdu['depth'] = Math.min(draft.depth, Number.MAX_SAFE_INTEGER);
  if (rules.eventFormat === 'v1') pdu['event_id'] = draft.eventId;
  pdu['hashes'] = { sha256: '' };
  if (draft.stickyDurationMs !== undefined) pdu[stickyKey] = { duration_ms: draft.stickyDurationMs };
  pdu['origin_server_ts'] = draft.originServerTs;
  pdu['prev_events'] = references(draft.prevEventIds, draft, rules);
  if (draft.roomId !== undefined) pdu['room_id'] = draft.roomId;
  pdu['sender'] = draft.sender;
  pdu['signatures'] = {};
  if (draft.stateKey !== undefined) pdu['state_key'] = draft.stateKey;
  pdu['type'] = draft.type;
  if (draft.redacts !== undefined) {
    // It lies in one place only, wherever the client has put it.
    const { redacts: _redacts, ...content } = draft.content;
    pdu['content'] = rules.redactsInContent ? { ...draft.content, redacts: draft.redacts } : content;
    if (!rules.redactsInContent) pdu['redacts'] = draft.redacts;
  }
  const { odd } = inspectJson(pdu, rules.strictCanonicalJson, maxOwnNesting + 1);
  checkShape(pdu, rules, true);
  const text = hashedText(pdu);
  if (Buffer.byteLength(text) + addedBytes + domainOf(draft.sender).length > maxPduBytes) {
    throw new InvalidEventError('tooLarge', 'larger than 65536 bytes');
  }
  pdu['hashes'] = { sha256: hash('sha256', text, 'base64').slice(0, 43) };
  return makeEvent(pdu, eventIdOf(pdu, rules), rules, odd);
}

/**
 * Refuses content that no event of this server may have, where it is known before the event can be made.
 * @throws InvalidEventError when it is nested too deeply, or is not JSON
 */
export function checkOwnContent(content: Readonly<JsonObject>): void {
  inspectJson(content, false, maxOwnNesting);
}

/** Hashes and one signature with the longest key id that this server can have, without the server's name. */
const addedBytes = '"hashes":{"sha256":""},"signatures":{"":{"ed25519:":""}},'.length + 43 + 86 + maxKeyVersion;

function references(ids: readonly string[], draft: EventDraft, rules: RoomVersionRules): unknown[] {
  if (rules.eventFormat !== 'v1') return [...ids];
  return ids.map((id) => {
    const sha256 = draft.referenceHashes?.get(id);
    return [id, sha256 === undefined ? {} : { sha256 }];
  });
}

/**
 * The event with a signature of one more server, or of one more key. The id stays.
 * @throws InvalidEventError `tooLarge` when an event that carries signatures has no room for it; for the first one it has
 * @spec server-server-api#signing-events
 */
export function signEvent(event: RoomEvent, serverName: string, key: SigningKey): RoomEvent {
  const added = { [serverName]: { [key.keyId]: key.sign(signedText(event.pdu, event.rules)) } };
  const isFirst = Object.keys(event.pdu['signatures'] as Signatures).length === 0;
  return isFirst ? withSignatures(event, added) : addSignatures(event, added);
}

/**
 * The event with signatures that other servers gave for it: of an invited user's server, of a resident server that let
 * somebody join, of a policy server. They are not verified here; their shape was checked.
 * @throws InvalidEventError `tooLarge` when they make it larger than an event may be: everybody else would refuse it
 */
export function addSignatures(event: RoomEvent, added: Signatures): RoomEvent {
  const signed = withSignatures(event, added);
  const { unsigned: _, ...pdu } = signed.pdu;
  if (Buffer.byteLength(canonicalJson(pdu)) <= maxPduBytes) return signed;
  throw new InvalidEventError('tooLarge', 'larger than 65536 bytes with its signatures', event.eventId);
}

function withSignatures(event: RoomEvent, added: Signatures): RoomEvent {
  let signatures = event.pdu['signatures'] as Signatures;
  for (const [serverName, ofServer] of Object.entries(added)) {
    const before = Object.hasOwn(signatures, serverName) ? signatures[serverName] : undefined;
    // A literal defines its keys, so that no name can reach a prototype.
    signatures = { ...signatures, [serverName]: { ...before, ...ofServer } };
  }
  return Object.freeze({ ...event, pdu: { ...event.pdu, signatures } });
}
