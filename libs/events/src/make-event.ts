import type { JsonObject } from '@rookery/matrix-types';
import type { RoomEvent } from './event.js';
import { NumberText, withPlainNumbers } from './json-text.js';
import { isIdLike } from './relation.js';
import type { RoomVersionRules } from './room-version-rules.js';

/**
 * Makes the event of a PDU whose shape was checked.
 * @param odd there may be {@link NumberText}s inside: the event's content shows plain numbers, the PDU keeps their text
 */
export function makeEvent(
  pdu: Readonly<JsonObject>,
  eventId: string,
  rules: RoomVersionRules,
  odd: boolean,
): RoomEvent {
  const type = pdu['type'] as string;
  const content = (odd ? withPlainNumbers(pdu['content']) : pdu['content']) as JsonObject;
  const redacts = type === 'm.room.redaction' ? (rules.redactsInContent ? content : pdu)['redacts'] : undefined;
  return Object.freeze({
    eventId,
    // Only a create event whose hash is the room's id comes without one.
    roomId: typeof pdu['room_id'] === 'string' ? pdu['room_id'] : `!${eventId.slice(1)}`,
    type,
    stateKey: pdu['state_key'] as string | undefined,
    sender: pdu['sender'] as string,
    content,
    originServerTs: integerOf(pdu['origin_server_ts'], rules),
    depth: integerOf(pdu['depth'], rules),
    prevEventIds: referencedIds(pdu['prev_events'], rules),
    authEventIds: referencedIds(pdu['auth_events'], rules),
    redacts: isIdLike(redacts) ? redacts : undefined,
    rules,
    pdu,
  });
}

function referencedIds(list: unknown, rules: RoomVersionRules): readonly string[] {
  if (rules.eventFormat !== 'v1') return list as string[];
  return (list as [string, unknown][]).map(([id]) => id);
}

/** Integers beyond binary64 are cut to what 64-bit columns hold. */
function integerOf(value: unknown, rules: RoomVersionRules): number {
  if (typeof value === 'number') return value;
  return value instanceof NumberText ? Math.min(value.value, rules.maxDepth) : 0;
}
