import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import type { RoomEvent } from './event.js';
import { makeEvent } from './make-event.js';
import type { RoomVersionRules } from './room-version-rules.js';

/**
 * The PDU with only what redaction keeps: what signatures and event ids cover. The input is not changed; nested values
 * are shared with it.
 * @spec client-server-api#redactions
 */
export function redactPdu(pdu: Readonly<JsonObject>, rules: RoomVersionRules): JsonObject {
  const kept: JsonObject = {};
  for (const key of rules.redaction.topLevelKeys) {
    if (Object.hasOwn(pdu, key)) kept[key] = pdu[key];
  }
  if (!Object.hasOwn(pdu, 'content')) return kept;
  const contentKeys = typeof pdu['type'] === 'string' ? rules.redaction.contentKeys.get(pdu['type']) : undefined;
  if (contentKeys !== true) kept['content'] = keepContent(pdu['content'], contentKeys ?? []);
  return kept;
}

function keepContent(content: unknown, keys: readonly string[]): JsonObject {
  const kept: JsonObject = {};
  if (!isJsonObject(content)) return kept;
  for (const key of keys) {
    const dot = key.indexOf('.');
    const outer = dot < 0 ? key : key.slice(0, dot);
    if (!Object.hasOwn(content, outer)) continue;
    if (dot < 0) kept[outer] = content[outer];
    // An outer object without the inner key stays as an empty one: that is how servers hash it.
    else if (isJsonObject(content[outer])) kept[outer] = keepContent(content[outer], [key.slice(dot + 1)]);
  }
  return kept;
}

/**
 * The event as it is after redaction: same id, same signatures.
 * @spec client-server-api#redactions
 */
export function redactEvent(event: RoomEvent): RoomEvent {
  const odd = event.content !== event.pdu['content'];
  return makeEvent(redactPdu(event.pdu, event.rules), event.eventId, event.rules, odd);
}
